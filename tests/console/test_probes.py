"""`remit catalogue --probe`: what a receiver does with one key, seen in its own records; and production, which asks."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from remit.checkpoints import Database, migrate, open_pool
from remit.checkpoints.embedded_access import Urls
from remit.console import services
from remit.console.startup import PROBE_DAYS, require_proved
from remit.sandbox import dump
from remit.tools import catalogue as tools
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Probe
from remit.tools.errors import Misconfigured
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit

from .conftest import Remit

SUBJECT = "customer:c-104"
PROBE = ("catalogue", "--probe", SUBJECT, "--token", "finance-lead", "--yes")
USUAL = tools.credit_catalogue


def credits_of(remit: Remit) -> list[tuple[str, int]]:
    return [(one["customer"], one["amount_minor"]) for one in dump(remit.home)["credits"]]


def refusal(database: Urls, catalogue: Catalogue, passed_seconds: float = 0.0) -> str | None:
    """The code by which production would not start with this database after that time, or None."""

    async def ask() -> None:
        async with open_pool(database.app_url) as pool:
            if passed_seconds:
                await Database(pool).rows("advance_clock", seconds=passed_seconds)
            await require_proved(Database(pool), catalogue)

    try:
        asyncio.run(ask())
    except Misconfigured as error:
        return error.code
    return None


def of_version(version: str) -> Catalogue:
    """The usual tools, with the keyed credit at this version of its contract."""
    contract = IssueCredit.contract.model_copy(update={"version": version})
    other = type("Other", (IssueCredit,), {"contract": contract})()
    return Catalogue([other, *USUAL().writes()[1:]], USUAL().reads())


def with_a_liar(patch: pytest.MonkeyPatch) -> None:
    """From now on the older path, which takes no key, says in its contract that it enforces them."""
    said: dict[str, Any] = {
        "receiver_enforces_key": True,
        "key_probe": Probe(shown_by="nobody", date="2026-11-30"),
        "key_retention": 86_400.0,
        "fallback": None,
    }
    contract = IssueCreditLegacy.contract.model_copy(update=said)
    liar = type("Liar", (IssueCreditLegacy,), {"contract": contract})()

    def made() -> Catalogue:
        rest = [
            one for one in USUAL().writes() if one.contract.effect not in {"credit.issue", "credit.reverse"}
        ]
        return Catalogue([liar, ReverseCredit(), *rest], USUAL().reads())

    patch.setattr(tools, "credit_catalogue", made)
    patch.setattr(services, "credit_catalogue", made)


def test_a_receiver_that_enforces_its_keys_is_seen_to_and_kept_for_production(
    company: Remit, database: Urls
) -> None:
    """One effect for one key sent three times, journaled; fresh for 90 days and for this contract version."""
    assert refusal(database, USUAL()) == "key_unproved"
    said = company(*PROBE)
    assert said.code == 0, said
    assert "The receiver enforces its keys." in " ".join(said.out.split())
    assert credits_of(company) == [("c-104", 1)]
    with psycopg.connect(database.owner_url) as owner:
        (row,) = owner.execute("SELECT tool, tool_version, receiver, shown, by, evidence FROM remit.probes")
        (journaled,) = owner.execute("SELECT data ->> 'shown' FROM remit.journal WHERE kind = 'probes.added'")
        states = owner.execute("SELECT state, verdict, attempts FROM remit.operations").fetchall()
        live = owner.execute("SELECT count(*) FROM remit.mandates WHERE revoked_at IS NULL").fetchone()
    assert row[:5] == ("issue_credit", "1", "payments", True, "finance-lead")
    told = {name: row[5][name] for name in ("again", "otherwise", "effects", "complete", "subject")}
    assert told == {
        "again": "accepted",
        "otherwise": "key_reused",
        "effects": 1,
        "complete": True,
        "subject": SUBJECT,
    }
    assert (journaled, states, live) == (("true",), [("SETTLED", "allow", 1)], (0,))
    assert refusal(database, USUAL()) is None
    assert refusal(database, of_version("2")) == "key_unproved"
    assert refusal(database, USUAL(), (PROBE_DAYS + 1) * 86_400.0) == "key_unproved"


def test_a_receiver_that_only_says_so_is_found_out(
    company: Remit, database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three credits for one key: exit 1, stored as not shown, and production does not take it for a probe."""
    with_a_liar(monkeypatch)
    said = company(*PROBE)
    assert said.code == 1
    assert "3 effects for one key sent three times" in " ".join(said.errors.split())
    assert "stays under the reference" in " ".join(said.errors.split())
    assert sorted(credits_of(company)) == [("c-104", 1), ("c-104", 1), ("c-104", 2)]
    assert refusal(database, tools.credit_catalogue()) == "key_unproved"


def test_a_probe_is_an_operation_that_a_freeze_keeps_back(company: Remit) -> None:
    """It passes policy and ledger like any other: under a freeze nothing is sent and nothing is shown."""
    company.done("freeze", "effect", "credit.issue", "--because", "a test", "--token", "finance-lead")
    said = company(*PROBE)
    assert said.code == 1
    assert "frozen" in said.errors
    assert credits_of(company) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--probe", SUBJECT, "--token", "support-manager", "--yes"), "administrator or a finance_lead"),
        (("--probe", SUBJECT, "--token", "administrator", "--yes"), "may not delegate credit.issue"),
        (("--probe", "--token", "finance-lead", "--yes"), "REMIT_PROBE_SUBJECTS"),
        (("--probe", "--check"), "Choose one."),
        ((SUBJECT,), "was given without it. Add it, or give none."),
        (("--probe", SUBJECT, "--token", "finance-lead"), "Say it with --yes."),
    ],
)
def test_what_keeps_a_probe_from_being_sent(reading: Remit, words: tuple[str, ...], told: str) -> None:
    """Who may not, for whom it was not said, and nobody who confirms: nothing is granted and nothing is sent."""
    said = reading("catalogue", *words)
    assert said.code in {1, 2}
    assert told in " ".join(said.errors.split())
    assert reading.json("mandate", "list")["mandates"] == []


def test_a_word_without_a_settled_probe_shows_nothing(staffed: Remit, database: Urls) -> None:
    """The database stores a probe only of an operation that was sent under that person's own probe mandate."""
    secret = (staffed.home / "tokens" / "finance-lead").read_text().strip()
    call = "SELECT * FROM remit.store_probe(%s, 1, true, '{}')"
    with psycopg.connect(database.app_url) as app, pytest.raises(psycopg.Error, match="no settled probe"):
        app.execute(call, [secret])
    with psycopg.connect(database.app_url) as app, pytest.raises(psycopg.Error, match="permission denied"):
        app.execute("INSERT INTO remit.probes (operation_id) VALUES (1)")


@pytest.fixture
def production(bare: Remit, empty_database_urls: Urls, monkeypatch: pytest.MonkeyPatch) -> Remit:
    """An installation in production in which nothing was probed."""
    urls = empty_database_urls
    asyncio.run(migrate(urls.owner_url, tenant="test", environment="production"))
    for name, value in (
        ("ENVIRONMENT", "production"),
        ("TENANT", "test"),
        ("DATABASE_URL", urls.app_url),
        ("OWNER_URL", urls.owner_url),
    ):
        monkeypatch.setenv(f"REMIT_{name}", value)
    return bare


@pytest.mark.parametrize(
    "words", [("run", "outage-0611"), ("resume",), ("work", "--once"), ("serve",)], ids=lambda words: words[0]
)
def test_production_sends_nothing_on_keys_that_no_fresh_probe_showed(
    production: Remit, words: tuple[str, ...]
) -> None:
    """Where a contract's word is not enough: refused with what to do, while looking and stopping go on."""
    said = production(*words)
    assert (said.code, said.out) == (1, "")
    assert "issue_credit version 1 rests on keys" in said.errors
    assert "`remit catalogue --probe SUBJECT`" in " ".join(said.errors.split())
    assert production("receivers").code == 0
