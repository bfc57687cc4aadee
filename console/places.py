"""Where the company's systems, the policy server and the model are, and what they are called with.

In the sandbox the pretended company says so itself, in HOME/sandbox; elsewhere the settings do. Keeps credentials
out of memory: they are read from their file at each call and never logged.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from remit.console.settings import Settings, variable
from remit.tools.catalogue import RECEIVERS
from remit.tools.errors import Misconfigured, NotSent

_DEFAULT_SCRIPT = "outage-credit"
"""What the sandbox's model plays where there is no script of the purpose's own name."""


def receivers(settings: Settings) -> dict[str, str]:
    """The base URL of each company system. Raises Misconfigured naming the variable of one that is missing."""
    return {name: _url(settings, name) for name in RECEIVERS}


def model(settings: Settings, purpose: str) -> tuple[str, str, str]:
    """URL, key and name of the model. In the sandbox a script is played, by default the one for `purpose`."""
    own = settings.model_url is not None
    url = settings.model_url or _url(settings, "model") + "/v1"
    if settings.model_key is not None:
        key = settings.model_key.get_secret_value()
    elif own or not settings.sandboxed:
        raise _missing("model_key")
    else:
        key = credential(settings, "model")
    if settings.model_name is None and own:
        raise _missing("model_name")
    return url, key, settings.model_name or f"script:{_script(settings, purpose)}"


def credential(settings: Settings, reference: str) -> str:
    """The secret behind one reference, read anew. Raises NotSent, since a call without it was never written."""
    file = credentials_file(settings)
    try:
        found = json.loads(file.read_bytes())[reference]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotSent(
            f"The credential of {reference} cannot be read from {file}. Put it there, or correct "
            "REMIT_CREDENTIALS_FILE.",
            code="credential",
        ) from error
    return str(found)


def credentials_file(settings: Settings) -> Path:
    """A JSON object of secrets by reference. Raises Misconfigured where it is needed and not set."""
    if settings.credentials_file is not None:
        return settings.credentials_file
    if not settings.sandboxed:
        raise _missing("credentials_file")
    return settings.home / "sandbox" / "credentials.json"


@dataclass(frozen=True)
class PolicyServer:
    """Where verdicts come from, what is expected there, and what it is asked with."""

    url: str
    revision: str
    token: str | None
    trusted: Path | None


def policy_server(settings: Settings, installed: str) -> PolicyServer:
    """The OPA server to ask; `installed` is the revision of the policy in this installation.

    Raises Misconfigured. Outside the sandbox it is asked over TLS only, and the expected revision stands in the
    settings too: a policy that came with an upgrade decides nothing before somebody wrote its revision down.
    """
    if settings.opa_url is None:
        raise Misconfigured(
            "REMIT_OPA_URL is not set, and policy is asked of a server. Set it to https://HOST:PORT.",
            code="setting",
        )
    if not settings.sandboxed and not settings.opa_url.startswith("https://"):
        raise Misconfigured(
            f"REMIT_OPA_URL is plain http, and this is {settings.environment}. Set it to https://HOST:PORT.",
            code="setting",
        )
    if settings.opa_revision is None and not settings.sandboxed:
        raise Misconfigured(
            f"REMIT_OPA_REVISION is not set, and {settings.environment} asks no policy whose revision nobody wrote "
            f"down. The policy here is {installed}: set it to that after a review.",
            code="setting",
        )
    if settings.opa_revision not in (None, installed):
        raise Misconfigured(
            f"REMIT_OPA_REVISION is {settings.opa_revision}, and the policy here is {installed}. Install the policy "
            "that was reviewed, or review this one and set REMIT_OPA_REVISION.",
            code="setting",
        )
    return PolicyServer(settings.opa_url, installed, _opa_token(settings), settings.opa_ca_file)


def _opa_token(settings: Settings) -> str | None:
    """The decision token. In its file it stands alone; white space around it is no part of it."""
    if settings.opa_token_file is None:
        return settings.opa_token.get_secret_value() if settings.opa_token is not None else None
    try:
        token = settings.opa_token_file.read_text("ascii").strip()
    except (OSError, ValueError):
        token = ""
    if not token or not token.isprintable():
        raise Misconfigured(
            "REMIT_OPA_TOKEN_FILE names no file with a token that can be read. Put the token there, or unset it.",
            code="setting",
        )
    return token


def _url(settings: Settings, name: str) -> str:
    given: str | None = getattr(settings, f"{name}_url")
    if given is not None:
        return given.rstrip("/")
    if not settings.sandboxed:
        raise _missing(f"{name}_url")
    file = settings.home / "sandbox" / "sandbox.json"
    try:
        return str(json.loads(file.read_bytes())["urls"][name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"There is no sandbox company in {settings.home}. Start one with `remit sandbox up`, or set "
            f"{variable(f'{name}_url')}.",
            code="no_company",
        ) from error


def _script(settings: Settings, purpose: str) -> str:
    from remit.sandbox.model import SHIPPED

    folders = (settings.home / "sandbox" / "scripts", SHIPPED)
    return purpose if any((folder / f"{purpose}.yaml").is_file() for folder in folders) else _DEFAULT_SCRIPT


def _missing(name: str) -> Misconfigured:
    return Misconfigured(f"{variable(name)} is not set, and this command needs it. Set it.", code="setting")
