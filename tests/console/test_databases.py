"""The database: brought up in one place, only looked at everywhere else."""

import os
from pathlib import Path

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.console.edge import DATABASE_AWAY
from remit.sandbox import dump

from .conftest import Remit


def change(database: Urls, *statements: str) -> None:
    """Statements of the owner."""
    with psycopg.connect(database.owner_url, autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


@pytest.fixture
def database_of_asked(asked: Remit) -> Urls:
    """How the owner reaches the database of `asked`."""
    return Urls(os.environ["REMIT_OWNER_URL"], os.environ["REMIT_DATABASE_URL"])


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


@pytest.mark.parametrize("words", [("runs",), ("db", "up"), ("work", "--once")])
def test_a_database_of_another_build_is_a_clear_error(
    remit: Remit, database: Urls, words: tuple[str, ...]
) -> None:
    """What it is and what to do, before any statement meets tables that it does not fit."""
    change(database, "UPDATE remit.builds SET digest = 'of other files'")
    said = remit(*words)
    assert said.code == 1
    assert "another build of Remit" in said.errors
    assert "`remit sandbox reset --ledger`" in said.errors
    assert remit.json("db", "status")["usable"] is False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make one")
def test_a_home_in_which_nothing_can_be_made_is_a_clear_error(
    bare: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the kernel's own: the variable is named, and nothing of the system's error is."""
    monkeypatch.setenv("REMIT_HOME", "/proc/x")
    for words in (("db", "up"), ("sandbox", "up")):
        said = bare(*words)
        assert (said.code, said.out) == (1, "")
        assert said.errors == (
            "Nothing can be kept in /proc/x: no folder can be made or written there. "
            "Set REMIT_HOME to a folder of your own.\n"
        )


def test_what_recovery_lost_is_shown_wherever_somebody_looks(asked: Remit, database_of_asked: Urls) -> None:
    """F45: sent, not final, nobody's case, and not looked at for too long: a number in JSON, a sentence elsewhere."""
    assert asked.json("db", "status")["stuck"] == {"count": 0, "seconds": None}
    change(
        database_of_asked,
        "UPDATE remit.operations SET state = 'SENDING', version = version + 1"
        " WHERE id = (SELECT min(id) FROM remit.operations WHERE state = 'PENDING')",
        "UPDATE remit.operations SET state = 'UNKNOWN', doubt = true, version = version + 1 WHERE state = 'SENDING'",
        "UPDATE remit.operations SET due_at = now() - interval '10 minutes' WHERE state = 'UNKNOWN'",
    )
    found = asked.json("db", "status")["stuck"]
    assert (found["count"], found["seconds"] > 590) == (1, True)
    assert asked.json("status")["stuck"]["count"] == 1
    sentence = "1 sent action stuck for more than 5 minutes, the oldest for 10 minutes"
    assert sentence in asked("status").out


def test_a_restored_database_says_so_everywhere_until_it_is_verified_and_lifted(
    granted: Remit, database: Urls
) -> None:
    """By a person's word: the order stands over every listing, a run is stopped, and `db verify` opens the way."""
    said = granted.done("db", "restored", "--because", "last night's copy", "--token", "support-manager")
    assert "RESTORE in force over all" in said
    assert "`remit db verify`" in said
    assert granted.json("runs")["orders"][0]["kind"] == "restore"
    run = granted("run", "outage-0611", "--token", "support-manager")
    assert run.code == 4
    assert "RESTORE in force" in run.errors
    refused = granted("lift", "1", "--token", "finance-lead")
    assert refused.code == 1
    assert "Run `remit db verify`, then lift it." in refused.errors
    change(database, "UPDATE remit.restores SET noticed_at = noticed_at - interval '1 minute'")
    assert granted("db", "verify", "no-such", "--token", "support-manager").code == 1
    found = granted.json("db", "verify", "--token", "support-manager")
    assert found == {
        "verified": ["outage-0611"],
        "found": {},
        "lost": [],
        "unlisted": ["credit.reverse"],
        "left": [],
    }
    assert "Every purpose is verified" in granted.done(
        "db", "verify", "outage-0611", "--token", "support-manager"
    )
    granted.done("lift", "1", "--token", "finance-lead")
    assert granted("db", "verify", "--token", "support-manager").code == 1
    assert granted("run", "outage-0611", "--token", "support-manager").code == 3
    assert dump(granted.home)["credits"] == []


def test_tidying_takes_an_administrator_and_says_what_went(remit: Remit) -> None:
    """On an empty ledger nothing does."""
    remit.done("db", "up")
    assert remit.json("db", "tidy", "--older-than", "30", "--token", "administrator") == {
        "removed": {"checkpoints": 0, "workers": 0, "events": 0}
    }
    assert "nothing needs: 0 checkpoints" in remit.done(
        "db", "tidy", "--older-than", "1", "--token", "administrator"
    )
    assert remit("db", "tidy", "--older-than", "0", "--token", "administrator").code == 2
