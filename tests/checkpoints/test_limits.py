"""Limits and automatic budgets: shares in calendar windows, taken by the claim and kept by UNKNOWN."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from remit.checkpoints.embedded_access import Urls
from remit.graph.actions import totals_by
from remit.tools.actions import Json
from remit.tools.ports import Lease
from tests.fixtures import (
    ASK_FINANCE,
    HOUR,
    NO_OBLIGATIONS,
    Bench,
    Obligations,
    Tokens,
    eventually,
    limit,
    limited,
    mandate_over,
)

MANY = [f"customer:c-{number}" for number in range(101, 131)]
DAY = 24 * HOUR
DAILY: dict[str, Any] = {"scope": "effect", "window": "day"}
NINE = {"amount_minor": 900, "currency": "USD"}


@pytest.fixture
async def owner(ledger_database: Urls) -> AsyncIterator[psycopg.AsyncConnection]:
    """The owner's connection: it may set the zone and ask functions that no agent's process calls."""
    async with await psycopg.AsyncConnection.connect(
        ledger_database.owner_url, autocommit=True
    ) as connection:
        yield connection


async def window(owner: psycopg.AsyncConnection, name: str, zone: str, at: str) -> tuple[datetime, datetime]:
    """The window of this name that holds a moment, in a zone; both ends in UTC."""
    await owner.execute("UPDATE remit.installation SET zone = %s", [zone])
    cursor = await owner.execute("SELECT * FROM remit.window_of(%s, %s)", [name, at])
    row = await cursor.fetchone()
    assert row is not None
    return row[0].astimezone(UTC), row[1].astimezone(UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "zone", "at", "held"),
    [
        ("day", "UTC", "2026-06-11T10:00Z", ("2026-06-11T00:00", "2026-06-12T00:00")),
        ("day", "Europe/Berlin", "2026-06-11T22:30Z", ("2026-06-11T22:00", "2026-06-12T22:00")),
        ("day", "Europe/Berlin", "2026-03-29T12:00Z", ("2026-03-28T23:00", "2026-03-29T22:00")),
        ("day", "Europe/Berlin", "2026-10-25T12:00Z", ("2026-10-24T22:00", "2026-10-25T23:00")),
        ("month", "Europe/Berlin", "2026-03-01T00:00Z", ("2026-02-28T23:00", "2026-03-31T22:00")),
        ("month", "America/New_York", "2026-01-01T03:00Z", ("2025-12-01T05:00", "2026-01-01T05:00")),
        ("hour", "Europe/Berlin", "2026-10-25T00:30Z", ("2026-10-25T00:00", "2026-10-25T01:00")),
        ("hour", "Europe/Berlin", "2026-10-25T01:30Z", ("2026-10-25T01:00", "2026-10-25T02:00")),
        ("hour", "Asia/Kathmandu", "2026-06-11T00:30Z", ("2026-06-11T00:15", "2026-06-11T01:15")),
        ("day", "Africa/Cairo", "2026-04-24T12:00Z", ("2026-04-23T22:00", "2026-04-24T21:00")),
    ],
)  # fmt: skip
async def test_windows_are_the_calendars_in_the_installations_zone(
    owner: psycopg.AsyncConnection, name: str, zone: str, at: str, held: tuple[str, str]
) -> None:
    """Days in which the clocks change have 23 or 25 hours, and an hour that they repeat is two windows."""
    assert await window(owner, name, zone, at) == (utc(held[0]), utc(held[1]))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Cairo", "America/Havana", "Australia/Lord_Howe"])
@pytest.mark.parametrize("name", ["day", "month"])
async def test_windows_follow_each_other_without_gap_or_overlap(
    owner: psycopg.AsyncConnection, name: str, zone: str
) -> None:
    """Over two years, hour by hour: the same window as the hour before, or the one that begins where that one ends."""
    await owner.execute("UPDATE remit.installation SET zone = %s", [zone])
    cursor = await owner.execute(
        "WITH w AS (SELECT at, (remit.window_of(%s, at)).* FROM generate_series("
        "  timestamptz '2026-01-01T00:00Z', '2027-12-31T00:00Z', '1 hour') at),"
        " n AS (SELECT starts, ends, lag(starts) OVER o AS s, lag(ends) OVER o AS e FROM w WINDOW o AS (ORDER BY at))"
        " SELECT count(*) FILTER (WHERE starts <> s AND starts <> e), count(DISTINCT starts) FROM n",
        [name],
    )
    broken, windows = (await cursor.fetchone()) or (None, 0)
    assert broken == 0
    assert windows >= {"day": 730, "month": 24}[name]


async def at_start_of_day(bench: Bench) -> datetime:
    """Moves the company's clock to just after its next midnight, so that no day ends while a test runs."""
    now = await bench.ledger.company_now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    await bench.database.rows("advance_clock", seconds=(midnight - now).total_seconds() + 60)
    return midnight


async def refusals(bench: Bench, lease: Lease, ids: Sequence[int]) -> list[str | None]:
    """One claim call with fresh snapshots, without sending anything; why each was refused, in order."""
    claims = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, bench.runner._terms)
    return [claimed.refused for claimed in sorted(claims, key=lambda claimed: claimed.operation_id)]


async def run_of(
    bench: Bench, tokens: Tokens, purpose: str, subjects: Sequence[str], terms: Obligations, **changes: Any
) -> tuple[Lease, list[int]]:
    """A run for a purpose of its own, with one credit proposed for each subject."""
    mandate = mandate_over(purpose)
    lease = await bench.run_over(tokens, subjects, mandate)
    return lease, await bench.propose(
        lease, "credit", subjects, mandate=mandate, obligations=terms, **changes
    )


async def used(bench: Bench) -> dict[str, tuple[int, int]]:
    """Count and amount of every bucket."""
    rows = await bench.sql("SELECT bucket, count, amount_minor FROM remit.limit_usage")
    return {row["bucket"]: (row["count"], row["amount_minor"]) for row in rows}


async def test_of_five_claimers_at_once_one_gets_the_last_share_of_the_day(
    bench: Bench, tokens: Tokens
) -> None:
    """(F54) Of 1,000.00 a day over all purposes with 990.00 used, exactly one of five runs' 9.00 passes."""
    await at_start_of_day(bench)
    terms = limited(amount_minor=100_000, **DAILY)
    said = {"amount_minor": 99_000, "currency": "USD"}
    first, ids = await run_of(bench, tokens, "spent", MANY[:1], terms, said=said)
    assert await refusals(bench, first, ids) == [None]
    runs = [await run_of(bench, tokens, f"outage-{n}", MANY[:1], terms, said=NINE) for n in range(5)]
    answers = await asyncio.gather(*(refusals(bench, lease, ids) for lease, ids in runs))
    assert sorted(str(refused) for (refused,) in answers) == ["None", *["limit"] * 4]
    ((count, amount),) = (await used(bench)).values()
    assert (count, amount) == (2, 99_900)


CONTRACTS = (
    '{"issue_credit": {"attempts": 9, "budget_ms": 9000000, "timeout_ms": 1000, "retention_ms": null}}'
)


async def claimed_alone(urls: Urls, lease: Lease, ids: list[int]) -> int:
    """A claim on a connection of its own, where nobody tries again after a deadlock; how many were claimed."""
    async with await psycopg.AsyncConnection.connect(urls.app_url, autocommit=True) as own:
        asked = "SELECT count(attempt_id) FROM remit.claim(%s, %s, %s, %s, clock_timestamp(), 8, %s)"
        cursor = await own.execute(asked.encode(), [lease.run_id, lease.token, lease.worker, ids, CONTRACTS])
        row = await cursor.fetchone()
        return int(row[0]) if row else 0


async def test_batches_that_name_limits_in_opposite_order_never_wait_in_a_circle(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """(F54) While a third one holds the limit in the middle, neither claim may hold what the other needs next."""
    runs = []
    for purpose, names in (("first", "amz"), ("second", "zma")):
        volume: list[Json] = [limit(9, name=name, scope="effect") for name in names]
        runs.append(await run_of(bench, tokens, purpose, MANY[:4], {**NO_OBLIGATIONS, "volume": volume}))
    for lease, ids in runs:
        assert await claimed_alone(ledger_database, lease, ids[:1]) == 1

    async def both_wait() -> bool:
        rows = await bench.sql("SELECT pid FROM pg_locks WHERE NOT granted GROUP BY 1")
        return len(rows) == 2

    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url) as holding:
        await holding.execute("SELECT FROM remit.limit_usage WHERE bucket = 'm' FOR UPDATE")
        claims = [asyncio.create_task(claimed_alone(ledger_database, lease, ids[1:])) for lease, ids in runs]
        await eventually(both_wait)
        await holding.commit()
    assert await asyncio.gather(*claims) == [3, 3]
    assert await used(bench) == dict.fromkeys("amz", (8, 8000))


async def test_what_does_not_fit_a_day_waits_for_the_next_and_leaves_the_old_one_alone(
    bench: Bench, tokens: Tokens
) -> None:
    """A new window has a bucket of its own: the old one's usage stays, and what had waited goes by itself."""
    midnight = await at_start_of_day(bench)
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], limited(1, **DAILY))
    assert await refusals(bench, lease, ids) == [None, "limit"]
    assert await bench.obstacles(ids) == ["sending", "limit_window"]
    (gate,) = await bench.database.rows("gates", id=ids[1])
    assert (gate["detail"], gate["turns"]) == ("credits is used up", midnight + timedelta(days=1))
    await bench.database.rows("advance_clock", seconds=DAY - 2 * 60)
    assert await bench.obstacles(ids[1:]) == ["limit_window"]
    await bench.database.rows("advance_clock", seconds=2 * 60)
    assert await bench.obstacles(ids[1:]) == ["ready"]
    assert await refusals(bench, lease, ids[1:]) == [None]
    days = [midnight, midnight + timedelta(days=1)]
    assert await used(bench) == {f"credits {day:%Y-%m-%dT%H:%MZ}": (1, 1000) for day in days}


async def reported(bench: Bench, id_: int, to: str, seen: str = "unknown") -> None:
    """The sender of the last attempt reports what it saw."""
    attempt = (await bench.database.rows("attempts", id=id_))[-1]["id"]
    receipt = {
        "attempt_id": attempt,
        "seen": seen,
        "to": to,
        "closed": "refused",
        "no_effect": to != "UNKNOWN",
    }
    await bench.database.rows("record", receipts=Jsonb([receipt]))


async def absent(bench: Bench, id_: int) -> None:
    """The system of record shows that there was no effect."""
    version = (await bench.operation(id_))["version"]
    began = (await bench.ledger.now()).isoformat()
    seen = {
        "sight": "absent",
        "source": "test",
        "as_of": "",
        "complete": True,
        "read_began_at": began,
        "records": [],
    }
    result = {
        "operation_id": id_,
        "version": version,
        "attempt": 1,
        "to": "PENDING",
        "next_seconds": 0,
        **seen,
    }
    assert await bench.database.value("settle", results=Jsonb([result])) == 1


async def test_an_unknown_outcome_of_yesterday_keeps_its_share_of_yesterday(
    bench: Bench, tokens: Tokens
) -> None:
    """(F54) Proved absent a day later, it gives back what it held, and nothing of today's."""
    await at_start_of_day(bench)
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], limited(1, **DAILY))
    assert await refusals(bench, lease, ids[:1]) == [None]
    await reported(bench, ids[0], "UNKNOWN")
    await bench.database.rows("advance_clock", seconds=DAY)
    assert await refusals(bench, lease, ids[1:]) == [None]
    yesterday, today = sorted(await used(bench))
    assert await used(bench) == {yesterday: (1, 1000), today: (1, 1000)}
    await absent(bench, ids[0])
    assert await bench.states(ids) == ["PENDING", "SENDING"]
    assert await used(bench) == {yesterday: (0, 0), today: (1, 1000)}


async def test_a_share_that_comes_back_wakes_the_runs_of_other_purposes_smallest_first(
    bench: Bench, tokens: Tokens
) -> None:
    """(F54) A limit over all purposes: a refusal in one run lets another run's waiting action go."""
    await at_start_of_day(bench)
    terms = limited(amount_minor=1_000, **DAILY)
    first, (spent,) = await run_of(bench, tokens, "first", MANY[:1], terms)
    assert await refusals(bench, first, [spent]) == [None]
    large = {"amount_minor": 2_000, "currency": "USD"}
    second, never = await run_of(bench, tokens, "second", MANY[:1], terms, said=large)
    third, waits = await run_of(bench, tokens, "third", MANY[:1], terms, said=NINE)
    assert [await refusals(bench, second, never), await refusals(bench, third, waits)] == [
        ["limit"],
        ["limit"],
    ]
    assert await bench.database.value("run_ready", run=third.run_id) is False
    await reported(bench, spent, "CLOSED", "refused")
    assert await bench.database.value("run_ready", run=third.run_id) is True
    assert await refusals(bench, third, waits) == [None]
    assert await refusals(bench, second, never) == ["limit"]


async def test_every_release_and_every_claim_wakes_no_more_than_it_made_room_for(
    bench: Bench, tokens: Tokens
) -> None:
    """I11: what waits is woken in small numbers, and still all that fits is tried in the end."""
    subjects = [f"customer:c-{number}" for number in range(1_000, 1_130)]
    big = {"amount_minor": 130_000, "currency": "USD"}
    first, (spent,) = await run_of(
        bench, tokens, "first", MANY[:1], limited(200, 130_000, scope="effect"), said=big
    )
    assert await refusals(bench, first, [spent]) == [None]
    lease, ids = await run_of(bench, tokens, "second", subjects, limited(200, 130_000, scope="effect"))
    assert set(await refusals(bench, lease, ids)) == {"limit"}
    await reported(bench, spent, "CLOSED", "refused")
    woken = [id_ for id_, why in zip(ids, await bench.obstacles(ids), strict=True) if why == "ready"]
    assert len(woken) == 100
    assert await refusals(bench, lease, woken) == [None] * 100
    assert set(await bench.obstacles([id_ for id_ in ids if id_ not in woken])) == {"ready"}


async def test_who_is_closed_stands_in_nobodys_way_to_a_share(bench: Bench, tokens: Tokens) -> None:
    """A waiting action that somebody keeps back waits for nothing any more."""
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], limited(1))
    assert await refusals(bench, lease, ids) == [None, "limit"]
    await bench.people.cancel_holds(tokens.support_manager, ids[1:])
    assert await bench.sql("SELECT * FROM remit.limit_waits") == []
    assert await bench.database.rows("gates", id=ids[1]) == []


BUDGET: Obligations = {
    **NO_OBLIGATIONS,
    "volume": [limit(3)],
    "auto_budget": [limit(1, name="alone", **DAILY)],
}


async def approved(bench: Bench, tokens: Tokens, lease: Lease) -> None:
    """The finance lead grants everything that needs a person."""
    given = {"run": lease.run_id, "token": lease.token, "new_id": "ap-abcdef"}
    (row,) = await bench.database.rows("ask_approvals", **given)
    (asked,) = await bench.database.rows("approvals", which=row["id"])
    await bench.people.decide(tokens.finance_lead, row["id"], asked["set_hash"], grant=True, rationale="seen")


async def test_what_an_automatic_budget_does_not_hold_is_asked_about_again(
    bench: Bench, tokens: Tokens
) -> None:
    """The claim takes the verdict back, so nothing goes out until policy has judged it with what is used by now."""
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], BUDGET)
    assert await refusals(bench, lease, ids) == [None, "auto_budget"]
    second = await bench.operation(ids[1])
    assert (second["verdict"], second["obstacle"]) == (None, "policy")
    assert [
        row["id"]
        for row in await bench.database.rows("unjudged", run=lease.run_id, after=0, revision="test", limit=9)
    ] == ids[1:]
    assert await refusals(bench, lease, ids[1:]) == ["policy"]
    assert {count for count, _ in (await used(bench)).values()} == {1}


async def test_what_a_person_approved_takes_of_the_limit_and_not_of_the_automatic_budget(
    bench: Bench, tokens: Tokens
) -> None:
    """Two approved actions leave the budget for one without a person whole, and the limit of three with one share."""
    lease, ids = await run_of(
        bench,
        tokens,
        "outage",
        MANY[:2],
        {**BUDGET, **{k: v for k, v in ASK_FINANCE.items() if "budget" not in k and k != "volume"}},
        verdict="needs_approval",
    )
    await approved(bench, tokens, lease)
    assert await refusals(bench, lease, ids) == [None, None]
    assert await used(bench) == {"credits outage": (2, 2000)}
    more = await bench.propose(lease, "credit", MANY[2:4], obligations=BUDGET, mandate=mandate_over("outage"))
    assert await refusals(bench, lease, more) == [None, "limit"]


async def test_one_subject_beyond_its_limit_is_asked_about_again_and_others_are_not(
    bench: Bench, tokens: Tokens
) -> None:
    """(F53) A limit per subject counts what is in flight for that subject, and for no other."""
    terms = limited(1, name="each", scope="subject")
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], terms)
    assert await refusals(bench, lease, ids) == [None, None]
    (again,) = await bench.propose(
        lease, "notify", MANY[:1], obligations=terms, mandate=mandate_over("outage")
    )
    assert await refusals(bench, lease, [again]) == ["subject_limit"]
    assert (await bench.operation(again))["verdict"] is None
    assert set(await used(bench)) == {f"each outage {subject}" for subject in MANY[:2]}


@pytest.mark.parametrize("slip", [{"scope": "everything"}, {"window": "week-end"}, {"window": None}])
async def test_a_limit_that_nobody_can_count_sends_nothing(
    bench: Bench, tokens: Tokens, slip: dict[str, str | None]
) -> None:
    """I10: an unknown scope or window is no limit that is left out; the claim as a whole is refused."""
    lease, ids = await run_of(
        bench, tokens, "outage", MANY[:1], {**NO_OBLIGATIONS, "volume": [{**limit(5), **slip}]}
    )
    with pytest.raises(psycopg.DatabaseError):
        await refusals(bench, lease, ids)
    assert await bench.states(ids) == ["PENDING"]


async def test_a_new_verdict_with_a_wider_limit_ends_the_wait(bench: Bench, tokens: Tokens) -> None:
    """Which limits hold is part of the verdict: what waited for the old one is claimed under the new one."""
    lease, ids = await run_of(bench, tokens, "outage", MANY[:2], limited(1))
    assert await refusals(bench, lease, ids) == [None, "limit"]
    verdict = {
        "id": ids[1],
        "verdict": "allow",
        "reasons": [{"code": "matrix_allow"}],
        "obligations": limited(2),
        "policy_engine": "test",
        "policy_revision": "next",
        "decision_id": "d",
    }
    await bench.database.rows("judge", run=lease.run_id, token=lease.token, rows=Jsonb([verdict]))
    assert await refusals(bench, lease, ids[1:]) == [None]


async def test_an_amount_beyond_a_million_million_is_no_row(bench: Bench, tokens: Tokens) -> None:
    """(F27) The ledger's own border: amounts are whole minor units up to 10^12, whoever proposes."""
    lease, _ = await run_of(bench, tokens, "outage", MANY[:1], NO_OBLIGATIONS)
    row = bench.row("credit", MANY[1], mandate=mandate_over("outage"), requires=())
    for amount in (10**12 + 1, -1):
        with pytest.raises(psycopg.DatabaseError):
            await bench.database.rows(
                "propose", run=lease.run_id, token=lease.token, rows=Jsonb([row | {"amount_minor": amount}])
            )


async def test_the_sum_of_a_large_proposal_stops_where_numbers_are_still_exact(
    bench: Bench, tokens: Tokens
) -> None:
    """(F27) 1,100 times 10^12 is shown to policy as 10^15: beyond every limit, and whole in every engine."""
    lease, _ = await run_of(bench, tokens, "outage", MANY[:1], NO_OBLIGATIONS)
    money = {"amount_minor": 10**12, "currency": "USD"}
    place = {"plan": 1, "tool": "issue_credit", "step": "credit", "intent": {}, **money}
    rows = [{"call": n, "subject": f"customer:c-{n}", **place} for n in range(1_100)]
    await bench.database.rows("store_proposals", run=lease.run_id, token=lease.token, rows=Jsonb(rows))
    sums = totals_by(await bench.database.rows("proposal_totals", run=lease.run_id), "step")
    assert sums["credit"].amounts["USD"] == 10**15


async def test_neither_question_nor_claim_reads_windows_that_are_over(
    bench: Bench, tokens: Tokens, owner: psycopg.AsyncConnection
) -> None:
    """I11: beside 20,000 old windows both find their buckets by index, and read a handful of rows."""
    await owner.execute(
        "INSERT INTO remit.limit_usage (bucket, name, effect, purpose, subject, window_name, starts, ends, automatic)"
        " SELECT 'old ' || n, 'old', 'credit.issue', '', '', 'hour', to_timestamp(n), to_timestamp(n + 1), false"
        " FROM generate_series(1, 20000) n"
    )
    await owner.execute("ANALYZE remit.limit_usage")
    lease, ids = await run_of(bench, tokens, "outage", MANY[:1], limited(5, **DAILY))
    at = [lease.run_id, lease.token, lease.worker, ids, CONTRACTS]
    for statement, values in (
        ("SELECT remit.claim(%s, %s, %s, %s, clock_timestamp(), 8, %s)", at),
        ("SELECT remit.limits_in_use('outage', '{credit.issue}')", []),
        ("SELECT remit.unsend(ARRAY(SELECT id FROM remit.attempts))", []),
    ):
        async with owner.transaction():
            assert len(await (await owner.execute(statement.encode(), values)).fetchall()) == 1
            cursor = await owner.execute(
                "SELECT seq_tup_read, idx_tup_fetch < 20 FROM pg_stat_xact_user_tables WHERE relname = 'limit_usage'"
            )
            assert await cursor.fetchone() == (0, True), statement
