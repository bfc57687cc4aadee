"""The settings of an installation, from `REMIT_*`, read once per process.

Keeps two rules of DESIGN: the embedded parts serve the sandbox only, and a wrong value names its variable and what
to do about it. Secrets are never shown, not even in that message.
"""

import difflib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from remit.tools.actions import SUBJECT
from remit.tools.errors import Misconfigured

PREFIX = "REMIT_"

_Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*)?$")]


class Settings(BaseSettings):
    """Every setting, named in the environment as REMIT_ and its name in capitals. Durations in seconds.

    What is None has a default that depends on the environment; see `remit.console.places`.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    home: Path = Path(".remit")
    environment: Literal["sandbox", "staging", "production"] = "sandbox"
    tenant: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "default"
    database_url: SecretStr | None = None
    owner_url: SecretStr | None = None
    zone: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")] | None = None
    accounts_url: _Url | None = None
    payments_url: _Url | None = None
    mail_url: _Url | None = None
    credentials_file: Path | None = None
    model_url: _Url | None = None
    model_key: SecretStr | None = None
    model_name: Annotated[str, Field(pattern=r"^\S{1,200}$")] | None = None
    policy_engine: Literal["embedded", "server"] | None = None
    opa_url: _Url | None = None
    opa_token: SecretStr | None = None
    opa_token_file: Path | None = None
    opa_ca_file: Path | None = None
    opa_revision: Annotated[str, Field(pattern=r"^r1-[0-9a-f]{16}$")] | None = None
    lease_seconds: Annotated[float, Field(ge=2, le=600)] = 15.0
    token_file: Path | None = None
    notify_url: _Url | None = None
    notify_secret: SecretStr | None = None
    notify_command: str | None = None
    probe_subjects: Annotated[str, Field(pattern=rf"^{SUBJECT}(,{SUBJECT})*$")] | None = None

    @property
    def sandboxed(self) -> bool:
        """Whether the pretended company and the embedded parts may be used."""
        return self.environment == "sandbox"

    @property
    def engine(self) -> Literal["embedded", "server"]:
        """Which policy engine is asked: the server everywhere but in the sandbox."""
        return self.policy_engine or ("embedded" if self.sandboxed else "server")

    @property
    def probed(self) -> list[str]:
        """The test subjects of `remit catalogue --probe`."""
        return self.probe_subjects.split(",") if self.probe_subjects else []

    @property
    def tokens(self) -> Path:
        """The folder of the token files."""
        return self.home / "tokens"


_REMEDIES = {
    "environment": "Use sandbox, staging or production",
    "tenant": "Use up to 40 small letters, digits and dashes",
    "policy_engine": "Use embedded or server",
    "opa_revision": "Give the revision that `python -m remit.policies.build` printed",
    "probe_subjects": "Use subjects such as customer:c-104, with commas",
    "zone": "Use an IANA name such as Europe/Berlin",
    "lease_seconds": "Give seconds, from 2 to 600",
    "model_name": "Give the name of a model without spaces",
}
_URL_REMEDY = "Give an address such as https://HOST:PORT"

_OTHERS = ("REMIT_OPA",)
"""Variables of the build that are no settings."""


def load() -> Settings:
    """The settings of this process. Raises Misconfigured, naming the variable and what to do."""
    known = [variable(name) for name in Settings.model_fields]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known and name not in _OTHERS:
            _refuse_slip(name, known)
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = " ".join(_sentence(str(one["loc"][0])) for one in error.errors())
        raise Misconfigured(wrong, code="setting") from None
    _check_home(settings.home)
    _check_environment(settings)
    return settings


def require_installation(settings: Settings) -> None:
    """Raises Misconfigured where nothing was installed yet, so that no command that only looks makes anything."""
    if settings.database_url is not None:
        return
    try:
        installed = _there(settings.home.expanduser() / "postgres.json")
    except PermissionError:
        # Somebody else's: whoever reads it says so.
        installed = True
    if not installed:
        raise Misconfigured(
            f"There is no installation in {settings.home.absolute()}. Is this the right folder? Set REMIT_HOME, "
            "or make one: `remit sandbox up`.",
            code="no_installation",
        )


def variable(name: str) -> str:
    """The environment variable of one setting."""
    return PREFIX + name.upper()


def _refuse_slip(name: str, known: list[str]) -> None:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    if close:
        raise Misconfigured(
            f"{name} is no setting. Did you mean {close[0]}? Rename it, or unset it.", code="setting"
        )


def _sentence(name: str) -> str:
    remedy = _REMEDIES.get(name, _URL_REMEDY if name.endswith("_url") else "Correct it")
    return f"{variable(name)} has a value that cannot be used. {remedy}, or unset it."


def _check_home(home: Path) -> None:
    """It is a folder, or can become one: the nearest thing on its way that exists is a folder."""
    try:
        whole = home.expanduser().absolute()
        usable = next(part for part in (whole, *whole.parents) if _there(part)).is_dir()
    except (OSError, RuntimeError):
        usable = False
    if not usable:
        raise Misconfigured(
            "REMIT_HOME is no folder and cannot become one. Set it to a folder of your own, or unset it.",
            code="setting",
        )


def _there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_environment(settings: Settings) -> None:
    if settings.notify_url is not None and settings.notify_secret is None:
        raise Misconfigured(
            "REMIT_NOTIFY_SECRET is not set, and nobody could tell a notice from a forged one. Set it to at least 16 "
            "bytes in base64, the same as at REMIT_NOTIFY_URL.",
            code="setting",
        )
    if settings.sandboxed:
        return
    if settings.policy_engine == "embedded":
        raise Misconfigured(
            f"REMIT_POLICY_ENGINE is embedded, which serves the sandbox only, and this is {settings.environment}. "
            "Set it to server, with REMIT_OPA_URL.",
            code="setting",
        )
    if settings.database_url is None:
        raise Misconfigured(
            f"REMIT_DATABASE_URL is not set, and {settings.environment} has no embedded Postgres. "
            "Set it to your database.",
            code="setting",
        )
