"""Every run has an owner: to know an id is not enough to read it, to carry it on or to decide about it (F18)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls

from .conftest import MANDATE, Picture, Remit, cloned, on

UNKNOWN = "run-aaaaaa"


@dataclass(frozen=True)
class Owned:
    """A run of the support manager that waits for the finance lead, beside a stranger who has a token as well."""

    remit: Remit
    urls: Urls
    run: str
    approval: dict[str, Any]

    def sql(self, query: bytes) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls.owner_url, autocommit=True) as owner:
            cursor = owner.execute(query)
            return cursor.fetchall() if cursor.description else []

    def marked(self, environment: str, patch: pytest.MonkeyPatch) -> None:
        """The same database as one of another environment."""
        with psycopg.connect(self.urls.owner_url, autocommit=True) as owner:
            owner.execute("UPDATE remit.installation SET environment = %s", [environment])
        patch.setenv("REMIT_ENVIRONMENT", environment)

    def kept(self) -> list[tuple[Any, ...]]:
        """The tries that were kept, and journaled as well."""
        rows = self.sql(b"SELECT kind, name, run_id, person FROM remit.refused_looks ORDER BY id")
        journaled = self.sql(
            b"SELECT data ->> 'kind', data ->> 'name', run_id, data ->> 'person' FROM remit.journal"
            b" WHERE kind = 'refused_looks.added' ORDER BY id"
        )
        assert journaled == rows
        return rows


@pytest.fixture
def owned(
    bare: Remit, postgres_home: Path, asked_once: Picture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Owned]:
    """As `asked`, without a company: nothing in here may ask one for anything."""
    with cloned(postgres_home, asked_once.database) as urls:
        for folder in ("sandbox", "tokens"):
            shutil.copytree(asked_once.home / folder, bare.home / folder)
        remit = on(bare, urls, monkeypatch)
        remit.done("token", "new", "stranger", "--role", "support_manager", "--token", "administrator")
        yield Owned(remit, urls, remit.last_run(), remit.open_approval())


def readings(run: str) -> list[Sequence[str]]:
    """Every command that reads or carries on a run that is named."""
    return [("show", run), ("status", run), ("resume", run), ("resume", run, "--wait", "--timeout", "1")]


def test_a_stranger_hears_of_a_run_what_is_said_of_one_that_does_not_exist(owned: Owned) -> None:
    """(F18) Exit and sentence are the same but for the id, nothing runs, and each try is kept with who it was."""
    before = owned.sql(b"SELECT status, token FROM remit.runs JOIN remit.leases ON run_id = id")
    for words, unknown in zip(readings(owned.run), readings(UNKNOWN), strict=True):
        said = owned.remit(*words, "--token", "stranger")
        nothing = owned.remit(*unknown, "--token", "stranger")
        assert (said.code, said.out) == (1, "") == (nothing.code, nothing.out), words
        assert said.errors.replace(owned.run, UNKNOWN) == nothing.errors, words
        assert "There is no run" in said.errors
    assert owned.sql(b"SELECT status, token FROM remit.runs JOIN remit.leases ON run_id = id") == before
    tries = [("run", owned.run, owned.run, "stranger"), ("run", UNKNOWN, None, "stranger")]
    assert owned.kept() == tries * len(readings(owned.run))


def test_operations_approvals_mandates_and_purposes_are_no_way_around_the_run(owned: Owned) -> None:
    """(F18) To a stranger each is, by id, key or customer, what it would be if there were none, and nothing is done."""
    ((id_, key, mandate),) = owned.sql(
        b"SELECT id::text, key, mandate_hash FROM remit.operations ORDER BY id LIMIT 1"
    )
    approval = owned.approval["id"]
    ways = (
        (("show", id_), "There is no run, operation or key"),
        (("show", key), "There is no run, operation or key"),
        (("policy", "explain", id_), "There is no operation"),
        (("edit", id_, "note=x"), "There is no operation"),
        (("inbox", approval), "There is no approval"),
        (("approve", approval), "There is no approval"),
        (("reject", approval), "There is no approval"),
        (("unapprove", approval), "There is no approval"),
        (("mandate", "show", mandate), "No mandate"),
        (("mandate", "show", mandate[3:12]), "No mandate"),
        (("mandate", "show", "outage-0611"), "No mandate"),
        (("mandate", "show", MANDATE), "No mandate"),
        (("mandate", "revoke", mandate, "--yes"), "No mandate"),
        (("run", "outage-0611"), "No mandate"),
        (("status", "outage-0611"), "No run, purpose or subject"),
        (("status", "104"), "No run, purpose or subject"),
        (("status", "104", "--tell"), "No run, purpose or subject"),
    )
    for tries, (words, answer) in enumerate(ways, start=1):
        said = owned.remit(*words, "--token", "stranger")
        assert (said.code, said.out) == (1, ""), (words, said)
        assert said.errors.startswith(answer), (words, said)
        assert [person for *_, person in owned.kept()] == ["stranger"] * tries, words
    assert owned.sql(b"SELECT count(*) FROM remit.runs") == [(1,)]
    assert owned.sql(b"SELECT DISTINCT decision FROM remit.approval_items") == [(None,)]


LISTINGS = {
    "runs": ("runs",),
    "approvals": ("inbox",),
    "mandates": ("mandate", "list"),
    "notices": ("notices", "--all"),
    "reports": ("status",),
}


def test_listings_show_with_a_token_only_what_it_may_see(owned: Owned) -> None:
    """(F18) To the stranger all are empty; whoever delegates or leads sees in them what there is."""
    for noun, words in LISTINGS.items():
        everything = owned.remit.json(*words)[noun]
        assert owned.remit.json(*words, "--token", "stranger")[noun] == [], noun
        for person in ("support-manager", "finance-lead", "administrator"):
            assert len(owned.remit.json(*words, "--token", person)[noun]) == len(everything), (noun, person)
    assert len(owned.remit.json("runs", "--token", "support-manager")["runs"]) == 1
    # Policy lets every support manager send these at once, so this one has to find them.
    assert len(owned.remit.json("holds", "--token", "stranger")["holds"]) == 24
    assert owned.remit("resume", "--token", "stranger").out.startswith("No run can carry on")
    assert owned.kept() == []


def test_owner_and_leads_read_the_run_and_its_operations(owned: Owned) -> None:
    """Grantor and owner, the lead and the administrator see it by name, and no try is kept."""
    for person in ("support-manager", "finance-lead", "administrator"):
        for words in (
            ("show", owned.run),
            ("inbox", owned.approval["id"]),
            ("mandate", "show", "outage-0611"),
        ):
            owned.remit.done(*words, "--token", person)
    assert owned.kept() == []


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_outside_a_sandbox_nobody_looks_without_saying_who_they_are(
    owned: Owned, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(F18) Where the database itself says it is no sandbox, every look takes a token; with one it is as before."""
    owned.marked(environment, monkeypatch)
    named = (*readings(owned.run), ("inbox", owned.approval["id"]), ("mandate", "show", "outage-0611"))
    # Whoever would send is refused in production before that: nothing has proved yet that receivers enforce keys.
    for words in (*LISTINGS.values(), ("holds",), ("resume",), ("limits",), *named):
        said = owned.remit(*words)
        assert (said.code, said.out) == (1, ""), words
        if environment == "production" and words[0] == "resume":
            assert "catalogue --probe" in said.errors
            continue
        assert f"This database is {environment}" in said.errors
        assert "Pass --token FILE, or set REMIT_TOKEN_FILE." in said.errors
    owned.remit.done("show", owned.run, "--token", "support-manager")
    monkeypatch.setenv("REMIT_TOKEN_FILE", str(owned.remit.home / "tokens" / "stranger"))
    assert "There is no run" in owned.remit("show", owned.run).errors


def test_a_token_that_speaks_for_nobody_sees_nothing(owned: Owned) -> None:
    """A revoked one is refused as such before anything is looked at, in a sandbox too: none would be better."""
    stranger = next(row for row in owned.remit.json("token", "list")["tokens"] if row["person"] == "stranger")
    owned.remit.done("token", "revoke", stranger["id"], "--token", "administrator")
    for words in (*LISTINGS.values(), ("holds",), *readings(owned.run)):
        said = owned.remit(*words, "--token", "stranger")
        assert (said.code, said.out) == (1, ""), words
        assert "was revoked" in said.errors
