"""One contract for every implementation of the runner's port: the ledger in Postgres, and the one in memory.

What the runner relies on, by the words of `remit.tools.ports` and DESIGN section 6 (I1, I4, I10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remit.sandbox import dump
from remit.tools.actions import Json
from remit.tools.doors import Met
from remit.tools.errors import LeaseLost
from remit.tools.ports import Due, Lease, Ledger, Receipt, Settlement
from remit.tools.recovery import AFTER_ATTEMPT
from remit.tools.runner import Runner
from remit.tools.states import Seen, State
from tests.checkpoints.memory_ledger import MemoryLedger, Order
from tests.fixtures import PURPOSE, Bench, Tokens, eventually

OWN = "customer:c-104"
OTHER = "customer:c-205"
SECONDS = 30.0

Operations = Callable[[str, int, int], Awaitable[list[Any]]]


@dataclass
class Port:
    """One implementation with a run over two customers, and the hands that a test needs beside the port."""

    ledger: Ledger
    lease: Lease
    propose: Callable[[list[str]], Awaitable[list[int]]]
    take_over: Callable[[], Awaitable[Lease]]
    stop: Callable[[], Awaitable[object]]
    sendable: Operations
    terms: dict[str, Json]

    async def one(self) -> int:
        """One credit that nothing stands in the way of."""
        (id_,) = await self.propose([OWN])
        return id_

    async def claim(self, *ids: int, lease: Lease | None = None, age: float = 0.0) -> list[Any]:
        read_at = await self.ledger.now() - timedelta(seconds=age)
        return await self.ledger.claim(lease or self.lease, ids, read_at, SECONDS, self.terms)

    async def begun(self) -> tuple[int, Any]:
        """A credit that is in flight, and its claim."""
        id_ = await self.one()
        (claim,) = await self.claim(id_)
        assert claim.refused is None
        return id_, claim

    async def told(self, claim: Any, seen: Seen) -> None:
        then = AFTER_ATTEMPT[seen]
        await self.ledger.record(
            [Receipt(claim.attempt_id, seen.value, None, then.to, then.no_effect, then.closed, then.detail)]
        )

    async def due(self) -> list[Due]:
        return await self.ledger.due(self.lease.run_id, 100)

    async def settle(self, due: Due, to: State | None, *, resend: bool = False, version: int = 0) -> int:
        sight = "effective" if to is State.SETTLED else "absent"
        settlement = Settlement(
            operation_id=due.operation_id,
            version=due.version + version,
            attempt=due.attempt,
            sight=sight,
            source="test",
            as_of="",
            complete=True,
            read_began_at=due.now,
            records=[],
            to=to,
            next_seconds=0.0,
            resend=resend,
        )
        return await self.ledger.settle([settlement])


def terms_of(bench: Bench) -> dict[str, Json]:
    return bench.runner._terms


async def in_postgres(bench: Bench, tokens: Tokens) -> Port:
    lease = await bench.run_over(tokens, [OWN, OTHER])

    async def take_over() -> Lease:
        await bench.sql("SELECT remit.heartbeat(%s, %s, -1)", lease.run_id, lease.token)
        return await bench.leased(lease.run_id)

    return Port(
        ledger=bench.ledger,
        lease=lease,
        propose=lambda subjects: bench.propose(lease, "credit", subjects),
        take_over=take_over,
        stop=lambda: bench.people.stop(tokens.support_manager, "mandate", PURPOSE, "for the test"),
        sendable=bench.ledger.sendable,
        terms=terms_of(bench),
    )


async def in_memory(bench: Bench) -> Port:
    """The bench lends its catalogue only; nothing here touches its database."""
    ledger = MemoryLedger(bench.ledger.installation, PURPOSE)
    lease = ledger.lease("run-000001", "w-1")

    async def propose(subjects: list[str]) -> list[int]:
        return sorted(ledger.propose(lease, [bench.row("credit", s, requires=()) for s in subjects]).values())

    async def take_over() -> Lease:
        return ledger.lease("run-000001", "w-2")

    async def stop() -> None:
        ledger.order(Order("stop", "mandate", PURPOSE))

    return Port(ledger, lease, propose, take_over, stop, ledger.sendable, terms_of(bench))


@pytest.fixture(params=["postgres", "memory"])
async def port(request: pytest.FixtureRequest, bench: Bench, tokens: Tokens) -> Port:
    return await in_postgres(bench, tokens) if request.param == "postgres" else await in_memory(bench)


async def test_a_claim_is_an_attempt_with_a_wire_key_and_a_window(port: Port) -> None:
    """The key names installation, purpose, step and subject; the send may begin within the seconds asked for."""
    id_, claim = await port.begun()
    key = f"{port.ledger.installation}:{PURPOSE}/credit/{OWN}/1#1"
    assert (claim.operation_id, claim.wire_key, claim.number) == (id_, key, 1)
    assert 0 < claim.send_within <= SECONDS
    assert await port.sendable(port.lease.run_id, 0, 10) == []


async def test_a_batch_is_answered_one_by_one(port: Port) -> None:
    """What is in flight already is refused by name, and keeps nothing else from being claimed."""
    own, other = await port.propose([OWN, OTHER])
    await port.claim(own)
    answers = {claim.operation_id: claim.refused for claim in await port.claim(own, other)}
    assert answers == {own: "sending", other: None}


async def test_whoever_was_taken_over_claims_and_sends_nothing(port: Port) -> None:
    """F05, F41: the token decides, whatever the earlier holder believes; its attempt may not begin any more."""
    _, claim = await port.begun()
    assert await port.ledger.may_send(port.lease, [claim.attempt_id]) == {claim.attempt_id}
    fresh = await port.take_over()
    assert await port.ledger.may_send(port.lease, [claim.attempt_id]) == set()
    assert await port.ledger.may_send(fresh, [claim.attempt_id]) == set()
    (waiting,) = await port.propose([OTHER]) if fresh == port.lease else [claim.operation_id]
    with pytest.raises(LeaseLost):
        await port.claim(waiting)


async def test_a_receipt_after_a_takeover_moves_nothing(port: Port) -> None:
    """It is kept as late: the operation is not settled by it, and not claimed a second time either."""
    id_, claim = await port.begun()
    fresh = await port.take_over()
    await port.told(claim, Seen.REFUSED)
    (answer,) = await port.claim(id_, lease=fresh)
    assert answer.refused == "sending"


async def test_nothing_is_claimed_or_begun_under_a_stop(port: Port) -> None:
    """I4: neither what waits nor what was claimed a moment before."""
    own, other = await port.propose([OWN, OTHER])
    (claim,) = await port.claim(own)
    await port.stop()
    assert await port.ledger.may_send(port.lease, [claim.attempt_id]) == set()
    (answer,) = await port.claim(other)
    assert (answer.refused, answer.attempt_id) == ("stop", None)


async def test_a_premise_that_is_old_is_no_basis(port: Port) -> None:
    """A snapshot of half a minute ago claims nothing and leaves no attempt."""
    id_ = await port.one()
    (stale,) = await port.claim(id_, age=30.0)
    (fresh,) = await port.claim(id_)
    assert (stale.refused, fresh.number) == ("snapshot_old", 1)


async def test_a_tool_without_a_contract_is_a_case(port: Port) -> None:
    """Refused by name once, and a person's matter afterwards."""
    id_ = await port.one()
    port.terms = {}
    assert [(await port.claim(id_))[0].refused for _ in range(2)] == ["no_contract", "case"]


async def test_what_was_not_begun_goes_back_and_keeps_its_key(port: Port) -> None:
    """F43: the next attempt is a second one under the same wire key."""
    id_, claim = await port.begun()
    await port.ledger.unsend([claim.attempt_id])
    assert [operation.id for operation in await port.sendable(port.lease.run_id, 0, 10)] == [id_]
    (again,) = await port.claim(id_)
    assert (again.number, again.wire_key) == (2, claim.wire_key)


async def test_a_receipt_counts_once(port: Port) -> None:
    """What came first stays, whatever is told about the same attempt afterwards."""
    id_, claim = await port.begun()
    await port.told(claim, Seen.ACCEPTED)
    await port.told(claim, Seen.REFUSED)
    (due,) = await port.due()
    assert (due.operation_id, due.state, due.receipt_accepted) == (id_, State.ACCEPTED, True)


async def test_evidence_settles_and_nothing_is_looked_at_afterwards(port: Port) -> None:
    """A settled operation is not due, not sendable and not claimed."""
    id_, claim = await port.begun()
    await port.told(claim, Seen.ACCEPTED)
    (due,) = await port.due()
    assert await port.settle(due, State.SETTLED) == 1
    assert await port.due() == []
    assert (await port.claim(id_))[0].refused == "settled"


async def test_one_look_at_a_time(port: Port) -> None:
    """What was handed out is pushed on, so that two sweeps share the work."""
    _, claim = await port.begun()
    await port.told(claim, Seen.UNKNOWN)
    assert [len(await port.due()) for _ in range(2)] == [1, 0]


async def test_what_was_judged_on_an_older_version_moves_nothing(port: Port) -> None:
    """Evidence moves only the version that it was about."""
    _, claim = await port.begun()
    await port.told(claim, Seen.UNKNOWN)
    (due,) = await port.due()
    assert await port.settle(due, State.PENDING, version=-1) == 0
    assert await port.settle(due, State.SETTLED) == 1


async def test_a_resend_keeps_the_key_and_a_refusal_of_it_proves_nothing(port: Port) -> None:
    """A later attempt's "not sent" never hides the first one's unknown outcome: it is looked at again, not sent."""
    id_, claim = await port.begun()
    await port.told(claim, Seen.UNKNOWN)
    (due,) = await port.due()
    assert await port.settle(due, State.UNKNOWN, resend=True) == 1
    (again,) = await port.claim(id_)
    assert (again.number, again.wire_key) == (2, claim.wire_key)
    await port.told(again, Seen.RATE_LIMITED)
    (due,) = await port.due()
    assert (due.state, due.resend, due.attempt) == (State.UNKNOWN, False, 2)
    assert (await port.claim(id_))[0].refused == "verification"


async def test_proved_absence_frees_the_operation_and_its_attempts(port: Port) -> None:
    """What was proved to have had no effect does not keep later looks waiting for it."""
    id_, claim = await port.begun()
    await port.told(claim, Seen.UNKNOWN)
    (due,) = await port.due()
    assert due.last_send is not None
    await port.settle(due, State.PENDING)
    (again,) = await port.claim(id_)
    await port.told(again, Seen.UNKNOWN)
    (due,) = await port.due()
    assert due.first_sent is not None
    assert due.first_sent > datetime.now(UTC) - timedelta(seconds=SECONDS)
    assert (due.attempt, due.senders_ended, due.receipt_accepted) == (2, True, False)


async def test_a_door_closes_after_five_silences_and_opens_with_an_answer(port: Port) -> None:
    """One lost answer closes nothing; any answer sets the count back."""
    silences = [await port.ledger.note("payments", Met.SILENT, "no answer") for _ in range(4)]
    assert [(door.closed, door.failures) for door in silences] == [(None, n) for n in range(1, 5)]
    closed = await port.ledger.note("payments", Met.SILENT, "no answer")
    assert (closed.closed, closed.detail) == (Met.SILENT, "no answer")
    assert [door.name for door in await port.ledger.doors() if door.closed is not None] == ["payments"]
    opened = await port.ledger.note("payments", Met.ANSWERED, "")
    assert (opened.closed, opened.failures, opened.detail) == (None, 0, "")


@pytest.mark.parametrize("met", [Met.GONE, Met.CREDENTIAL])
async def test_behind_a_closed_door_nothing_is_claimed_begun_or_looked_up(port: Port, met: Met) -> None:
    """What tells of every other call closes at once, for everybody; nobody is let through before a probe is due."""
    own, other = await port.propose([OWN, OTHER])
    (claim,) = await port.claim(own)
    await port.ledger.note("payments", met, "for the test")
    assert not await port.ledger.knock("payments")
    assert await port.ledger.may_send(port.lease, [claim.attempt_id]) == set()
    assert (await port.claim(other))[0].refused == "receiver"
    await port.told(claim, Seen.UNKNOWN)
    assert await port.due() == []
    await port.ledger.note("payments", Met.ANSWERED, "")
    assert [due.operation_id for due in await port.due()] == [own]


async def test_the_runner_settles_credits_over_either(port: Port, bench: Bench) -> None:
    """The same runner, the same company: one credit each, settled with evidence, and nothing left to do."""
    ids = await port.propose([OWN, OTHER])
    runner = Runner(port.ledger, bench.catalogue, bench.transport)
    sent = await runner.send(port.lease, await port.sendable(port.lease.run_id, 0, 10))
    assert sorted(sent.attempted) == ids

    async def settled() -> bool:
        await runner.look(port.lease.run_id)
        return {claim.refused for claim in await port.claim(*ids)} == {"settled"}

    await eventually(settled)
    assert sorted(credit["customer"] for credit in dump(bench.home)["credits"]) == ["c-104", "c-205"]
