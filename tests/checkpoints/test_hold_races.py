"""Keep back, send now and move against the sender: one atomic step decides, and each side hears it (F37, F50).

Each answer is compared with the company's own records and with the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.ports import FaultPoint, Lease
from remit.tools.runner import Runner, Sent
from tests.fixtures import HOUR, NO_OBLIGATIONS, Bench, Obligations, Tokens, eventually
from tests.schedules import passing, waits_for

WINDOW: Obligations = {**NO_OBLIGATIONS, "hold_seconds": HOUR, "release_by": ["finance_lead"]}
MAIL = "POST /messages"
CLAIM = "SELECT * FROM remit.claim(%s, %s, %s, %s, clock_timestamp(), 8, %s)"
TERMS = '{"send_email": {"attempts": 5, "budget_ms": 90000, "timeout_ms": 1000, "retention_ms": null}}'


def messages(bench: Bench) -> list[str]:
    """To whom the mail service's own records say that something was sent."""
    return sorted(f"customer:{message['customer']}" for message in dump(bench.home)["messages"])


async def over(bench: Bench, tokens: Tokens, subjects: list[str]) -> tuple[Lease, list[int]]:
    """Messages whose window is just over: they can still be kept back, and can be sent."""
    lease = await bench.run_over(tokens, subjects)
    ids = await bench.propose(lease, "notify", subjects, obligations=WINDOW)
    await bench.database.rows("start_holds", run=lease.run_id)
    await bench.database.rows("advance_clock", seconds=HOUR)
    assert await bench.obstacles(ids) == ["ready"] * len(ids)
    return lease, ids


@dataclass(frozen=True)
class Verbs:
    """The four things that can be wanted of one waiting message, each as one statement on any connection."""

    tokens: Tokens
    lease: Lease

    def statement(self, verb: str, id_: int) -> tuple[str, list[Any]]:
        match verb:
            case "cancel":
                return "SELECT * FROM remit.cancel_holds(%s, %s)", [self.tokens.support_manager, [id_]]
            case "release":
                return "SELECT * FROM remit.release_holds(%s, %s)", [self.tokens.finance_lead, [id_]]
            case "later":
                return "SELECT * FROM remit.reschedule_holds(%s, %s, NULL, %s)", [
                    self.tokens.support_manager,
                    [id_],
                    float(HOUR),
                ]
        lease = self.lease
        return CLAIM, [lease.run_id, lease.token, lease.worker, [id_], TERMS]


def answer(verb: str, rows: list[dict[str, Any]]) -> str:
    """What a verb was told: its outcome, or of a claim whether it got the message."""
    if verb != "claim":
        return str(rows[0]["outcome"])
    return "passed by" if not rows else rows[0]["refused"] or "claimed"


FIRST = {"cancel": "kept_back", "release": "released", "later": "rescheduled", "claim": "claimed"}
SECOND = {
    "cancel": {"cancel": "closed", "release": "closed", "later": "closed", "claim": "passed by"},
    "release": {"cancel": "kept_back", "release": "released", "later": "rescheduled", "claim": "passed by"},
    "later": {"cancel": "kept_back", "release": "released", "later": "rescheduled", "claim": "passed by"},
    "claim": {"cancel": "being_sent", "release": "being_sent", "later": "being_sent", "claim": "passed by"},
}
"""What the second is told, by who was first: never that it was kept back when somebody sends it."""
SENT = {("release", "release"), ("release", "claim"), ("claim", "release"), ("claim", "later")}
SENT |= {("later", "release"), ("claim", "claim")}
"""The pairs after which the message goes out within the hour."""


async def raced(
    bench: Bench, urls: Urls, verbs: Verbs, pair: tuple[str, str], id_: int
) -> tuple[str, str, list[int]]:
    """Both answers when `first` has done its part but not committed when `second` comes; and attempts of a claim."""
    first, second = pair
    async with await psycopg.AsyncConnection.connect(
        urls.owner_url, row_factory=psycopg.rows.dict_row
    ) as one:
        begun = await (await one.execute(*verbs.statement(first, id_))).fetchall()
        coming = asyncio.create_task(bench.sql(*_flat(verbs.statement(second, id_))))

        async def there() -> bool:
            return coming.done() or await waits_for(bench, one)

        await eventually(there)
        assert coming.done() == (second == "claim"), (
            "a claim passes by what somebody decides; all others wait"
        )
        await one.commit()
    ended = await coming
    claims = [row["attempt_id"] for row in begun if first == "claim"]
    return answer(first, begun), answer(second, ended), claims


def _flat(statement: tuple[str, list[Any]]) -> tuple[Any, ...]:
    return statement[0], *statement[1]


@pytest.mark.parametrize("first", list(FIRST))
async def test_of_two_at_once_the_first_decides_and_the_second_hears_it(
    bench: Bench, tokens: Tokens, ledger_database: Urls, first: str
) -> None:
    """Cancel, release, reschedule and claim in every pair, on two connections: the answers come true (F50)."""
    subjects = [f"customer:c-{number}" for number in range(101, 105)]
    lease, ids = await over(bench, tokens, subjects)
    verbs = Verbs(tokens, lease)
    unsent: list[int] = []
    for id_, second in zip(ids, FIRST, strict=True):
        one, other, claimed = await raced(bench, ledger_database, verbs, (first, second), id_)
        assert (one, other) == (FIRST[first], SECOND[first][second]), second
        unsent += claimed
    await bench.ledger.unsend(unsent)
    for _ in range(3):
        await bench.send(lease)
        await bench.sweep()
    expected = {s: subject for s, subject in zip(FIRST, subjects, strict=True) if (first, s) in SENT}
    assert messages(bench) == sorted(expected.values())
    for id_, second in zip(ids, FIRST, strict=True):
        row = await bench.operation(id_)
        cancelled = "cancel" in (first, second)
        assert (row["closed"] == "cancelled") == cancelled, second
        assert row["attempts"] == 2 if first == "claim" and second in expected else True, second


@dataclass
class Sending:
    """A real sender that keeps a message back at one of its recovery points, so many seconds after it."""

    bench: Bench
    secret: str
    id: int
    point: FaultPoint
    waits: bool
    seconds: float
    asked: asyncio.Task[list[dict[str, Any]]] | None = None

    async def reach(self, point: FaultPoint) -> None:
        if point is not self.point or self.asked is not None:
            return
        self.asked = asyncio.create_task(self._ask())
        if self.waits:
            await self.asked
            await passing(0.005)

    async def _ask(self) -> list[dict[str, Any]]:
        await passing(self.seconds)
        return await self.bench.people.cancel_holds(self.secret, [self.id])

    async def run(self, lease: Lease) -> tuple[Sent, str]:
        """What the sender did, and what whoever kept it back was told."""
        runner = Runner(self.bench.ledger, self.bench.catalogue, self.bench.transport, self.reach)
        # Commits are told of by the database, calls by the runner.
        self.bench.database.reach = self.reach
        sent = await runner.send(lease, await self.bench.ledger.sendable(lease.run_id, 0, 100))
        assert self.asked is not None
        ((row),) = await self.asked
        return sent, row["outcome"]


MOMENTS: dict[str, tuple[FaultPoint, bool, float, str, int]] = {
    "5 ms before the claim": (FaultPoint.BEFORE_CLAIM, True, 0.0, "kept_back", 0),
    "5 ms after the claim, before the send": (FaultPoint.AFTER_CLAIM, True, 0.005, "being_sent", 0),
    "while the call is in flight": (FaultPoint.BEFORE_SEND, False, 0.1, "being_sent", 1),
    "5 ms after the answer": (FaultPoint.AFTER_RECORD, True, 0.005, "sent", 1),
}
"""Where the cancel comes, whether the sender waits for it, after how long, what it is told, how many messages."""


@pytest.mark.parametrize("moment", list(MOMENTS))
async def test_a_cancel_around_the_claim_is_told_the_truth_by_milliseconds(
    bench: Bench, tokens: Tokens, world: World, moment: str
) -> None:
    """Before it nothing is sent; after it nobody hears "cancelled" of what may go out; the rest is closed (F50)."""
    point, waits, seconds, told, count = MOMENTS[moment]
    lease, (id_,) = await over(bench, tokens, ["customer:c-104"])
    await world.control.add_fault("mail", "delay_after", MAIL, seconds=0.4)
    _, said = await Sending(bench, tokens.support_manager, id_, point, waits, seconds).run(lease)
    assert said == told

    async def ended() -> bool:
        return (await bench.operation(id_))["state"] in ("SETTLED", "CLOSED")

    await bench.carry_on(lease, ended)
    row = await bench.operation(id_)
    assert (row["state"], row["closed"]) == (("SETTLED", None) if count else ("CLOSED", "cancelled"))
    assert len(messages(bench)) == count == bench.transport.called.count(MAIL)


async def test_cancels_that_race_with_a_whole_batch_agree_with_the_companys_records(
    bench: Bench, tokens: Tokens
) -> None:
    """Nobody waits for anybody: whoever hears "kept back" finds no message, and every other is sent once (F50)."""
    subjects = [f"customer:c-{number}" for number in range(101, 113)]
    lease, ids = await over(bench, tokens, subjects)
    sending = asyncio.create_task(bench.send(lease))
    told: dict[int, str] = {}
    for id_ in reversed(ids):
        (row,) = await bench.people.cancel_holds(tokens.support_manager, [id_])
        told[id_] = row["outcome"]
        await passing(0.005)
    await sending

    async def ended() -> bool:
        return set(await bench.states(ids)) <= {"SETTLED", "CLOSED"}

    await bench.carry_on(lease, ended)
    found = {id_: await bench.operation(id_) for id_ in ids}
    for id_, row in found.items():
        if told[id_] == "kept_back":
            assert (row["closed"], row["attempts"]) == ("cancelled", 0)
        elif told[id_] in ("sent", "not_known"):
            assert row["state"] == "SETTLED"
    settled = sorted(row["subject"] for row in found.values() if row["state"] == "SETTLED")
    assert messages(bench) == settled
    assert bench.transport.called.count(MAIL) == len(settled)


async def sent_and_lost(bench: Bench, world: World, lease: Lease, fault: str) -> None:
    """One send whose outcome is not known afterwards."""
    await world.control.add_fault("mail", fault, MAIL)
    await bench.send(lease)
    (row,) = await bench.sql("SELECT fact FROM remit.operations")
    assert row["fact"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("fault", "count"),
    [("reply_lost", 1), ("error_before", 0)],
)
async def test_a_cancel_of_what_nobody_knows_is_followed_to_its_outcome_and_not_sent_again(
    bench: Bench, tokens: Tokens, world: World, fault: str, count: int
) -> None:
    """Wanted back while its outcome is unknown: verified, never called not sent before, never repeated (F37)."""
    lease, (id_,) = await over(bench, tokens, ["customer:c-104"])
    await sent_and_lost(bench, world, lease, fault)
    (told,) = await bench.people.cancel_holds(tokens.support_manager, [id_])
    assert told["outcome"] == "not_known"
    assert (await bench.operation(id_))["fact"] == "UNKNOWN"

    async def ended() -> bool:
        return (await bench.operation(id_))["state"] in ("SETTLED", "CLOSED")

    await bench.carry_on(lease, ended)
    row = await bench.operation(id_)
    assert (row["state"], row["closed"]) == (("SETTLED", None) if count else ("CLOSED", "cancelled"))
    assert len(messages(bench)) == count
    assert bench.transport.called.count(MAIL) == 1
    (again,) = await bench.people.cancel_holds(tokens.support_manager, [id_])
    assert again["outcome"] == ("sent" if count else "closed")


async def test_what_is_wanted_back_is_not_resent_even_where_the_key_would_protect(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """A credit may be resent under its key before absence is proved; what is wanted back is only looked for (F37)."""
    lease = await bench.run_over(tokens, ["customer:c-104"])
    (id_,) = await bench.propose(lease, "credit", ["customer:c-104"])
    await world.control.add_fault("payments", "error_before", "POST /credits")
    await bench.send(lease)
    await bench.people.cancel_holds(tokens.support_manager, [id_])
    await bench.sweep()
    row = await bench.operation(id_)
    assert (row["resend"], row["obstacle"]) == (True, "verification")

    async def ended() -> bool:
        return str((await bench.operation(id_))["closed"]) == "cancelled"

    await bench.carry_on(lease, ended)
    assert bench.transport.called.count("POST /credits") == 1
    assert dump(bench.home)["credits"] == []


Cancels = Callable[[Bench, Tokens, Lease, "asyncio.Task[Sent]"], Awaitable[None]]


async def _stop(bench: Bench, tokens: Tokens, lease: Lease, sending: asyncio.Task[Sent]) -> None:
    await bench.people.stop(tokens.support_manager, "run", lease.run_id, "cancelled")


async def _end_the_task(bench: Bench, tokens: Tokens, lease: Lease, sending: asyncio.Task[Sent]) -> None:
    sending.cancel()


@pytest.mark.parametrize("cancel", [_stop, _end_the_task])
async def test_a_run_that_is_cancelled_in_the_middle_of_a_call_knows_what_became_of_it(
    bench: Bench, tokens: Tokens, world: World, cancel: Cancels
) -> None:
    """A stop, or the end of the sender, while the call is in flight: verified, and at no time "not sent" (F37)."""
    lease, (id_,) = await over(bench, tokens, ["customer:c-104"])
    await world.control.add_fault("mail", "delay_after", MAIL, seconds=0.6)
    runner = Runner(bench.ledger, bench.catalogue, bench.transport, send_seconds=0.5)
    operations = await bench.ledger.sendable(lease.run_id, 0, 100)
    sending = asyncio.create_task(runner.send(lease, operations))

    async def arrived() -> bool:
        return bool(messages(bench))

    await eventually(arrived)
    await cancel(bench, tokens, lease, sending)
    with suppress(asyncio.CancelledError):
        await sending
    facts: set[str] = set()

    async def ended() -> bool:
        row = await bench.operation(id_)
        facts.add(row["shown_fact"])
        return bool(row["state"] == "SETTLED")

    await bench.carry_on(lease, ended)
    assert "NOT_SENT" not in facts
    assert len(messages(bench)) == 1 == bench.transport.called.count(MAIL)
