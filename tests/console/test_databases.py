"""The database: brought up in one place, only looked at everywhere else."""

import pytest

from remit.checkpoints.embedded_access import Urls
from remit.console.edge import DATABASE_AWAY

from .conftest import Remit


def test_an_empty_database_gets_its_administrator_once(remit: Remit) -> None:
    """The first token needs no other one; the second `up` mints nothing."""
    assert "administrator's" in remit.done("db", "up")
    assert "administrator's" not in remit.done("db", "up")
    (row,) = remit.json("token", "list")["tokens"]
    assert (row["person"], row["minted_by"]) == ("administrator", "bootstrap")


def test_status_tells_whose_database_it_is(remit: Remit) -> None:
    """Exit 0 and the installation's name."""
    found = remit.json("db", "status")
    assert remit("db", "status").code == 0
    assert (found["usable"], found["environment"], found["tenant"], found["embedded"]) == (
        True,
        "sandbox",
        "test",
        False,
    )


def test_a_database_without_tables_is_not_migrated_by_the_way(
    bare: Remit, empty_database_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that start at once must not change tables; the message names the command that does."""
    monkeypatch.setenv("REMIT_DATABASE_URL", empty_database_urls.app_url)
    said = bare("runs")
    assert said.code == 1
    assert "`remit db up`" in said.errors


def test_changing_tables_takes_the_owner(
    bare: Remit, empty_database_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of the agent's processes cannot do it, and the variable is named."""
    monkeypatch.setenv("REMIT_DATABASE_URL", empty_database_urls.app_url)
    said = bare("db", "up")
    assert said.code == 1
    assert "REMIT_OWNER_URL" in said.errors


@pytest.mark.parametrize(("name", "value"), [("REMIT_TENANT", "another"), ("REMIT_ENVIRONMENT", "staging")])
def test_another_installation_s_database_is_refused(
    remit: Remit, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """One database is one tenant and one environment."""
    monkeypatch.setenv(name, value)
    for words in (("runs",), ("db", "up")):
        said = remit(*words)
        assert said.code == 1
        assert "test" in said.errors
    assert remit("db", "status").code == 1


def test_a_database_that_does_not_answer_is_no_traceback(
    bare: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens there."""
    monkeypatch.setenv("REMIT_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    said = bare("runs")
    assert said.code == 1
    assert "REMIT_DATABASE_URL" in said.errors


@pytest.mark.parametrize(
    "words",
    [
        *(("runs",), ("status",), ("inbox",), ("resume", "--wait"), ("work", "--once"), ("token", "list")),
        *(("stop", "all"), ("lift", "1"), ("run", "outage-0611"), ("inbox", "a-1"), ("sandbox", "clock")),
        *(("db", "status"), ("db", "down"), ("sandbox", "down")),
    ],
)
def test_a_folder_without_an_installation_stays_as_it_is(bare: Remit, words: tuple[str, ...]) -> None:
    """In the wrong folder nothing is started, and nobody takes an empty ledger for the true one."""
    said = bare(*words)
    assert said.code == 1
    assert f"There is no installation in {bare.home}." in said.errors
    assert not bare.home.exists()


def test_an_address_that_is_none_names_its_variable(bare: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value, which may hold a password, is not repeated."""
    monkeypatch.setenv("REMIT_DATABASE_URL", "zz-secret")
    said = bare("runs")
    assert said.code == 1
    assert said.errors.startswith("REMIT_DATABASE_URL has a value that cannot be used.")
    assert "zz-secret" not in said.errors


def test_somebody_else_s_database_is_not_stopped(remit: Remit) -> None:
    """`down` is about the embedded one."""
    assert "no embedded Postgres to stop" in remit.done("db", "down")


@pytest.mark.slow
def test_the_embedded_database_starts_on_demand_and_stops(bare: Remit) -> None:
    """Real processes on a fresh home: up, another command after a stop, down; the data stays."""

    def remit(*words: str) -> tuple[int, str, str]:
        process = bare.process(*words)
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors

    try:
        code, _, errors = remit("db", "up")
        assert (code, errors) == (0, "")
        assert "is stopped" in remit("db", "down")[1]
        code, out, _ = remit("db", "status")
        assert code == 1
        assert DATABASE_AWAY in out
        code, out, _ = remit("token", "list")
        assert code == 0
        assert "administrator" in out
    finally:
        remit("sandbox", "reset", "--ledger", "--yes")
    assert not (bare.home / "postgres.json").exists()
