"""`remit limits`, and what `remit runs` and `remit show` say about a limit that is waited for."""

import asyncio

import pytest
from psycopg.types.json import Jsonb

from remit.checkpoints.embedded_access import Urls
from tests.fixtures import limited, mandate_over, mint_tokens, opened_bench

from .conftest import Remit

SUBJECTS = ["customer:c-101", "customer:c-102", "customer:c-103"]
DAILY = limited(2, 3000, name="policy:credit.issue/effect/day/USD", scope="effect", window="day")
KEYS = {
    *("name", "effect", "purpose", "subject", "window", "starts", "ends", "automatic", "currency", "waiting"),
    *("count", "amount_minor", "most_count", "most_amount_minor", "unknown_count", "unknown_amount_minor"),
}


@pytest.fixture
def waiting(remit: Remit, database: Urls) -> tuple[str, int]:
    """A run of three credits under a limit of two a day: one unknown, one being sent, one waiting."""

    async def arrange() -> tuple[str, int]:
        remit.home.mkdir()
        async with opened_bench(database.app_url, remit.home, {}, {}) as bench:
            lease = await bench.run_over(await mint_tokens(bench.people), SUBJECTS, mandate_over())
            ids = await bench.propose(lease, "credit", SUBJECTS, obligations=DAILY)
            claims = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, bench.runner._terms)
            lost = {
                "attempt_id": claims[-1].attempt_id,
                "seen": "unknown",
                "to": "UNKNOWN",
                "no_effect": False,
            }
            await bench.database.rows("record", receipts=Jsonb([lost]))
            return lease.run_id, next(c.operation_id for c in claims if c.refused == "limit")

    return asyncio.run(arrange())


def test_the_listing_says_what_is_used_what_of_it_is_unknown_and_what_waits(
    remit: Remit, waiting: tuple[str, int]
) -> None:
    """Whoever looks sees at once why something does not leave, and what may still come back."""
    document = remit.json("limits")
    (row,) = document["limits"]
    assert document["zone"] == "UTC"
    assert set(row) == KEYS
    assert (row["count"], row["most_count"], row["unknown_count"], row["waiting"]) == (2, 2, 1, 1)
    assert (row["amount_minor"], row["most_amount_minor"], row["unknown_amount_minor"]) == (2000, 3000, 1000)
    said = remit.done("limits")
    assert "2 of 2, 20.00 USD of 30.00 USD" in said
    assert "1, 10.00 USD" in said
    assert "Days and months are those of UTC." in said
    assert remit.json("limits", "another-purpose")["limits"] == []


def test_runs_and_show_name_the_limit_and_until_when(remit: Remit, waiting: tuple[str, int]) -> None:
    """A wait has a name and, where the calendar ends it, a time."""
    run_id, operation = waiting
    turns = remit.json("limits")["limits"][0]["ends"]
    shown = f"behind limit: {DAILY['volume'][0]['name']}"
    (run,) = remit.json("runs")["runs"]
    assert run["limits"] == [{"name": DAILY["volume"][0]["name"], "count": 1, "turns": turns}]
    assert shown in remit.done("runs")
    until = f"until {turns[:10]} 00:00:00 UTC"
    for which in (run_id, str(operation)):
        said = remit.done("show", which)
        assert "is used up" in said
        assert until in said


def test_no_claim_yet_is_no_fault(remit: Remit) -> None:
    """An empty listing says what comes next."""
    assert "Next: `remit runs`." in remit.done("limits")


def test_another_zone_than_the_databases_is_refused(remit: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads days by one calendar that were counted by another."""
    monkeypatch.setenv("REMIT_ZONE", "Europe/Berlin")
    said = remit("limits")
    assert said.code == 1
    assert said.errors.rstrip().endswith("Set REMIT_ZONE to UTC, or leave it out.")
