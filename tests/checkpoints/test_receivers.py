"""The door of a receiver: one for all workers and runs, closed by what calls meet, opened by one probe (issue 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.doors import CLOSED, Door, Doors, Met
from remit.tools.errors import NotSent
from remit.tools.ports import Lease
from tests.fixtures import Bench, Tokens, opened_bench

CREDIT, SEARCH = "POST /credits", "POST /credits/search"


@pytest.fixture
async def other(ledger_database: Urls, world: World, tmp_path: Path) -> AsyncIterator[Bench]:
    """A second worker with its own pool and its own transport, on the same database and company."""
    async with opened_bench(ledger_database.app_url, tmp_path, world.urls, world.credentials) as made:
        yield made


async def door(bench: Bench, name: str = "payments") -> dict[str, Any]:
    (row,) = await bench.sql(
        "SELECT *, extract(epoch FROM pause) AS seconds, probe_at <= clock_timestamp() AS due"
        " FROM remit.receivers WHERE name = %s",
        name,
    )
    return row


async def probe_due(urls: Urls) -> None:
    """The pause is over: what time alone would bring."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(
            "UPDATE remit.receivers SET probe_at = clock_timestamp() WHERE closed IS NOT NULL"
        )


async def said_by_a_person(bench: Bench, lease: Lease) -> None:
    """`remit resume`: what only time would end is ended, and the next call at a closed door is its probe."""
    await bench.database.rows("clear_gates", run=lease.run_id, token=lease.token)


async def met(bench: Bench, *answers: Met) -> Door:
    for answer in answers[:-1]:
        await bench.ledger.note("payments", answer, "a test")
    return await bench.ledger.note("payments", answers[-1], "a test")


async def credits_proposed(bench: Bench, tokens: Tokens, affected: list[str]) -> tuple[Lease, list[int]]:
    lease = await bench.run_over(tokens, affected)
    return lease, await bench.propose(lease, "credit", affected)


async def test_five_silent_calls_in_a_row_close_the_door_and_an_answer_in_between_does_not(
    bench: Bench,
) -> None:
    """Only what nobody answers five times running is closed; whoever gets any answer starts the count again."""
    assert (await met(bench, *[Met.SILENT] * 4)).closed is None
    assert (await met(bench, Met.ANSWERED)).failures == 0
    assert (await met(bench, *[Met.SILENT] * 4)).closed is None
    assert (await met(bench, Met.SILENT)).closed is Met.SILENT


@pytest.mark.parametrize(("answer", "seconds"), [(Met.GONE, 2), (Met.CREDENTIAL, 20)])
async def test_what_tells_of_every_other_call_closes_at_once(bench: Bench, answer: Met, seconds: int) -> None:
    """A refused connection and a refused credential need no second try; a credential waits longer for its person."""
    assert (await met(bench, answer)).closed is answer
    assert (await door(bench))["seconds"] == seconds


async def test_of_all_who_knock_exactly_one_is_the_probe(
    bench: Bench, other: Bench, ledger_database: Urls
) -> None:
    """Half-open is one call: twenty knocks of two workers at once let one through, and later ones none."""
    await met(bench, Met.GONE)
    assert not await bench.ledger.knock("payments"), "the pause is not over"
    await probe_due(ledger_database)
    knocks = [worker.ledger.knock("payments") for worker in (bench, other) for _ in range(10)]
    assert sorted(await asyncio.gather(*knocks)) == [False] * 19 + [True]
    assert not await other.ledger.knock("payments"), "one probe at a time"
    assert (await door(bench))["probing"]


async def test_a_prober_that_died_is_followed_by_the_next(bench: Bench, ledger_database: Urls) -> None:
    """Whoever was let through and is never heard of keeps the door for half a minute and no longer."""
    await met(bench, Met.GONE)
    await probe_due(ledger_database)
    assert await bench.ledger.knock("payments")
    (left,) = await bench.sql(
        "SELECT extract(epoch FROM probe_at - clock_timestamp()) AS left FROM remit.receivers"
    )
    assert 25 < left["left"] <= 30
    await probe_due(ledger_database)
    assert await bench.ledger.knock("payments")


async def test_each_failed_probe_doubles_the_pause_up_to_five_minutes(
    bench: Bench, ledger_database: Urls
) -> None:
    """2, 4, 8 ... 300 seconds, each with up to half of it more, and no further."""
    await met(bench, Met.GONE)
    pauses = [float((await door(bench))["seconds"])]
    for _ in range(9):
        await probe_due(ledger_database)
        assert await bench.ledger.knock("payments")
        await met(bench, Met.SILENT)
        row = await door(bench)
        pauses.append(float(row["seconds"]))
        (left,) = await bench.sql(
            "SELECT extract(epoch FROM probe_at - clock_timestamp()) AS left FROM remit.receivers"
        )
        assert 0.95 * pauses[-1] < left["left"] <= 1.5 * pauses[-1]
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_what_was_under_way_when_the_door_closed_lengthens_nothing(bench: Bench) -> None:
    """Seven calls of the same group that fail after the closing are no probes."""
    await met(bench, *[Met.SILENT] * 12)
    row = await door(bench)
    assert (row["failures"], row["seconds"]) == (12, 2)


async def test_a_door_that_closes_again_soon_goes_on_with_its_pause(
    bench: Bench, ledger_database: Urls
) -> None:
    """Reads that answer between writes that do not would otherwise open it for a volley every two seconds."""
    await met(bench, Met.GONE)
    await met(bench, Met.ANSWERED, Met.GONE)
    assert (await door(bench))["seconds"] == 4
    await met(bench, Met.ANSWERED)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.receivers SET since = since - interval '6 minutes'")
    await met(bench, Met.GONE)
    assert (await door(bench))["seconds"] == 2


async def test_closing_and_opening_are_in_the_journal_once_each(bench: Bench) -> None:
    """Who asks later why nothing was sent for a while finds it there, without a row for every failed call."""
    await met(bench, *[Met.SILENT] * 8, Met.ANSWERED, Met.ANSWERED)
    rows = await bench.sql("SELECT kind, data FROM remit.journal WHERE kind LIKE 'receiver.%%' ORDER BY id")
    assert [row["kind"] for row in rows] == ["receiver.closed", "receiver.opened"]
    assert (rows[0]["data"]["reason"], rows[0]["data"]["detail"]) == ("silent", "a test")


class Keeper:
    """A keeper in memory that counts what it is asked."""

    def __init__(self, *closed: str) -> None:
        self.closed = set(closed)
        self.asked: list[str] = []

    async def doors(self) -> list[Door]:
        self.asked.append("doors")
        return [Door(name, Met.GONE, 1, "a test") for name in self.closed]

    async def knock(self, receiver: str) -> bool:
        self.asked.append("knock")
        return False

    async def note(self, receiver: str, met: Met, detail: str) -> Door:
        self.asked.append(met.value)
        return Door(receiver, None, int(met is not Met.ANSWERED), detail)


async def test_calls_at_an_open_door_cost_one_look_a_second() -> None:
    """A hundred calls that are answered are one statement; after a failure the first answer is told, once."""
    clock, keeper = [0.0], Keeper()
    doors = Doors(keeper, lambda: clock[0])
    for _ in range(100):
        await doors.before("payments")
        await doors.after("payments", Met.ANSWERED, "")
    assert keeper.asked == ["doors"]
    await doors.after("payments", Met.SILENT, "payments answered 500")
    for _ in range(3):
        await doors.after("payments", Met.ANSWERED, "")
    assert keeper.asked == ["doors", "silent", "answered"]
    clock[0] += 1.1
    await doors.before("payments")
    assert keeper.asked[3:] == ["doors"]


@pytest.mark.parametrize("closed", [Met.GONE, Met.CREDENTIAL])
async def test_a_closed_door_says_so_and_what_to_do(bench: Bench, closed: Met) -> None:
    """The caller learns that nothing was written, which receiver it is, and what a person does about it."""
    await met(bench, closed)
    with pytest.raises(NotSent, match=r"payments is closed to all workers .*remit resume") as caught:
        await Doors(bench.ledger).before("payments")
    assert (caught.value.code, caught.value.details) == (CLOSED, {"receiver": "payments"})


async def test_what_one_worker_meets_keeps_every_other_worker_from_calling(
    bench: Bench, other: Bench, tokens: Tokens, world: World, affected: list[str]
) -> None:
    """The second worker never met the fault: it claims nothing and calls nobody until a probe opens."""
    lease, ids = await credits_proposed(bench, tokens, affected[:12])
    await world.control.add_fault("payments", "refuse")
    assert set((await bench.send(lease)).receiver_down) == set(ids)
    assert await bench.obstacles(ids) == ["receiver"] * 12
    assert (await other.send(lease)).attempted == []
    claims = await other.ledger.claim(lease, ids, await other.ledger.now(), 8.0, other.runner._terms)
    assert {claimed.refused for claimed in claims} == {"receiver"}
    assert [call for call in other.transport.called if "credits" in call] == []
    await world.control.clear_faults()
    await said_by_a_person(bench, lease)
    await bench.settled(lease, ids)
    assert (await door(bench))["closed"] is None
    assert len(dump(bench.home)["credits"]) == 12


async def test_a_claim_at_a_door_whose_probe_is_due_lets_one_operation_through(
    bench: Bench, tokens: Tokens, affected: list[str], ledger_database: Urls
) -> None:
    """Where no read probes before, one send of the batch does, and takes no share of a limit for the others."""
    lease, ids = await credits_proposed(bench, tokens, affected[:5])
    await met(bench, Met.GONE)
    await probe_due(ledger_database)
    claims = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, bench.runner._terms)
    assert sorted(claimed.refused or "" for claimed in claims) == ["", *["receiver"] * 4]


async def test_a_door_that_closes_between_two_groups_keeps_the_rest_back(
    bench: Bench, tokens: Tokens, world: World, affected: list[str]
) -> None:
    """Eight that nobody answers are enough: the other sixteen are not begun, and their budgets are whole."""
    lease, ids = await credits_proposed(bench, tokens, affected)
    await world.control.add_fault("payments", "error_before", CREDIT, times=None)
    await bench.send(lease)
    group = bench.catalogue.write("issue_credit").contract.concurrency
    assert bench.transport.called.count(CREDIT) == group
    seen = await bench.sql("SELECT seen, count(*) AS count FROM remit.attempts GROUP BY 1 ORDER BY 1")
    assert seen == [{"seen": "not_begun", "count": 24 - group}, {"seen": "unknown", "count": group}]
    assert sorted(await bench.obstacles(ids)) == ["receiver"] * (24 - group) + ["verification"] * group


async def test_looks_wait_at_a_closed_door_and_go_on_with_one_probe(
    bench: Bench, other: Bench, tokens: Tokens, world: World, affected: list[str]
) -> None:
    """Nobody is asked while it is closed and no look is counted; once it is due, two sweeps at once ask once."""
    lease, ids = await credits_proposed(bench, tokens, affected[:3])
    await world.control.add_fault("payments", "reply_lost", CREDIT, times=3)
    await bench.send(lease)
    assert bench.transport._doors is not None
    # As a call of this worker would tell it: a look at the doors counts for a second.
    await bench.transport._doors.after("payments", Met.GONE, "a test")
    for _ in range(5):
        await bench.sweep()
    assert SEARCH not in bench.transport.called[-3:]
    assert {(await bench.operation(id_))["checks"] for id_ in ids} == {0}
    asked = sum(worker.transport.called.count(SEARCH) for worker in (bench, other))
    await world.control.add_fault("payments", "error_before", SEARCH)
    await said_by_a_person(bench, lease)
    await asyncio.gather(bench.sweep(), other.sweep())
    assert sum(worker.transport.called.count(SEARCH) for worker in (bench, other)) == asked + 1
    assert (await door(bench))["seconds"] == 4
    await said_by_a_person(bench, lease)
    await bench.settled(lease, ids)
    assert len(dump(bench.home)["credits"]) == 3


async def test_asking_for_fewer_requests_is_an_answer(bench: Bench, tokens: Tokens, world: World) -> None:
    """429 keeps its operation back for as long as the receiver asked, and closes no door."""
    lease, ids = await credits_proposed(bench, tokens, ["customer:c-104"])
    await world.control.add_fault("payments", "rate_limit", CREDIT, seconds=90, times=None)
    await bench.send(lease)
    assert await bench.obstacles(ids) == ["backoff"]
    assert await bench.sql("SELECT name FROM remit.receivers WHERE closed IS NOT NULL OR failures > 0") == []
