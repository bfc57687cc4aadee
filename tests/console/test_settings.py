"""Settings: a wrong value names its variable and the remedy, and the embedded parts serve the sandbox only."""

from pathlib import Path

import pytest

from remit.console.places import policy_server
from remit.console.settings import load, variable
from remit.tools.errors import Misconfigured


def refusal() -> str:
    with pytest.raises(Misconfigured) as caught:
        load()
    return str(caught.value)


def test_without_any_variable_it_is_the_sandbox(clean: Path) -> None:
    """A newcomer needs no setting at all."""
    settings = load()
    assert (settings.environment, settings.engine, settings.database_url) == ("sandbox", "embedded", None)
    assert settings.tokens == clean / "tokens"


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("environment", "prod", "Use sandbox, staging or production"),
        ("policy_engine", "none", "Use embedded or server"),
        ("opa_revision", "latest", "Give the revision that `python -m remit.policies.build` printed"),
        ("lease_seconds", "soon", "Give seconds, from 2 to 600"),
        ("lease_seconds", "0.5", "Give seconds, from 2 to 600"),
        ("zone", "Berlin (summer)", "Use an IANA name such as Europe/Berlin"),
        ("tenant", "Two Words", "Use up to 40 small letters"),
        ("payments_url", "payments:80", "Give an address such as https://HOST:PORT"),
        ("model_name", "a b", "Give the name of a model without spaces"),
    ],
)
def test_a_wrong_value_names_variable_and_remedy(
    clean: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, remedy: str
) -> None:
    """Whoever reads the message knows which line of the environment to change."""
    monkeypatch.setenv(variable(name), value)
    message = refusal()
    assert variable(name) in message
    assert remedy in message


@pytest.mark.parametrize("below", ["", "below/it"])
def test_a_home_that_is_a_file_is_refused(
    clean: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str
) -> None:
    """Before anything is written, and with the variable's name."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMIT_HOME", str(tmp_path / "file" / below))
    assert refusal().startswith("REMIT_HOME is no folder")


def test_a_value_is_never_repeated_in_the_message(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address may hold a password, and messages end in logs."""
    monkeypatch.setenv("REMIT_PAYMENTS_URL", "ftp://user:hunter2@payments")
    assert "hunter2" not in refusal()


def test_secrets_are_not_shown(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are printed by mistake give nothing away."""
    for name in ("model_key", "database_url", "owner_url", "opa_token"):
        monkeypatch.setenv(variable(name), "hunter2")
    assert "hunter2" not in repr(load())


def test_a_slip_of_the_pen_is_no_silent_default(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt REMIT_DATABASE_URL would otherwise start an empty embedded database."""
    monkeypatch.setenv("REMIT_DATABSE_URL", "postgresql://db/remit")
    assert "Did you mean REMIT_DATABASE_URL?" in refusal()


def test_an_unlike_variable_of_somebody_else_is_left_alone(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build has variables with the same beginning."""
    monkeypatch.setenv("REMIT_OPA", "bin/opa")
    monkeypatch.setenv("REMIT_SOMETHING_OF_ANOTHER_TOOL", "1")
    assert load().opa_url is None


def test_an_empty_value_is_an_unset_one(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files and CI set variables to nothing."""
    monkeypatch.setenv("REMIT_DATABASE_URL", "")
    assert load().database_url is None


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_the_compiled_policy_serves_the_sandbox_only(
    clean: Path, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    """Elsewhere a server is asked, whose revision others can see."""
    monkeypatch.setenv("REMIT_ENVIRONMENT", environment)
    monkeypatch.setenv("REMIT_DATABASE_URL", "postgresql://db/remit")
    assert load().engine == "server"
    monkeypatch.setenv("REMIT_POLICY_ENGINE", "embedded")
    assert "REMIT_POLICY_ENGINE" in refusal()


def test_outside_the_sandbox_a_database_has_to_be_named(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded Postgres is refused in production, before anything is started."""
    monkeypatch.setenv("REMIT_ENVIRONMENT", "production")
    assert "REMIT_DATABASE_URL is not set" in refusal()


INSTALLED = "r1-0123456789abcdef"
PRODUCTION = {
    "ENVIRONMENT": "production",
    "DATABASE_URL": "postgresql://user@db.example/remit",
    "OPA_URL": "https://policy.example",
    "OPA_REVISION": INSTALLED,
}


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"OPA_URL": ""}, r"Set it to https://HOST:PORT\.$"),
        ({"OPA_URL": "http://127.0.0.1:8181"}, r"plain http, .* Set it to https://HOST:PORT\.$"),
        ({"OPA_REVISION": ""}, rf"The policy here is {INSTALLED}: set it to that after a review\.$"),
        ({"OPA_REVISION": "r1-0000000000000000"}, r"review this one and set REMIT_OPA_REVISION\.$"),
        ({"OPA_TOKEN_FILE": "nothing"}, r"REMIT_OPA_TOKEN_FILE names no file .* or unset it\.$"),
    ],
)
@pytest.mark.parametrize("environment", ["staging", "production"])
def test_outside_the_sandbox_policy_is_asked_over_tls_at_a_revision_that_was_written_down(
    clean: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], remedy: str, environment: str
) -> None:
    """Without the address, TLS, the expected revision or its token no policy is asked, and so nothing is sent."""
    for name, value in (PRODUCTION | {"ENVIRONMENT": environment} | changed).items():
        monkeypatch.setenv(f"REMIT_{name}", value)
    with pytest.raises(Misconfigured, match=remedy):
        policy_server(load(), INSTALLED)


def test_the_token_for_the_policy_server_is_read_from_its_file(
    clean: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file wins over the variable, and the line's end is no part of it."""
    (tmp_path / "token").write_text("from-the-file\n")
    more = {"OPA_TOKEN": "from-the-variable", "OPA_TOKEN_FILE": str(tmp_path / "token")}
    for name, value in (PRODUCTION | more).items():
        monkeypatch.setenv(f"REMIT_{name}", value)
    server = policy_server(load(), INSTALLED)
    assert (server.token, server.revision) == ("from-the-file", INSTALLED)


def test_in_the_sandbox_a_server_on_this_machine_will_do(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain http to this machine, at the revision that is installed."""
    monkeypatch.setenv("REMIT_OPA_URL", "http://127.0.0.1:8181")
    assert policy_server(load(), INSTALLED).revision == INSTALLED
