"""Nothing is announced that is not completed: a message against every state that its credit can be in (I12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.ports import Lease
from remit.tools.states import Closed, State
from tests.fixtures import HOUR, NO_OBLIGATIONS, Bench, Tokens, eventually

SENDING, ACCEPTED, SETTLED = "state = 'SENDING'", "state = 'ACCEPTED'", "state = 'SETTLED'"
UNKNOWN, AGAIN = "state = 'UNKNOWN', doubt = true", "state = 'SENDING', resend = false"
CASE = "a case"


def closed(why: Closed) -> str:
    return f"state = 'CLOSED', closed = '{why}', doubt = false"


BEFORE = (Closed.DENIED, Closed.REJECTED, Closed.EXPIRED, Closed.STALE, Closed.CANCELLED, Closed.SUPERSEDED)
PATHS: dict[str, tuple[tuple[str, ...], str]] = {
    "waiting": ((), "requirement"),
    "being sent": ((SENDING,), "requirement"),
    "accepted": ((SENDING, ACCEPTED), "requirement"),
    "not known": ((SENDING, UNKNOWN), "requirement"),
    "not known, to be resent": ((SENDING, UNKNOWN, "resend = true"), "requirement"),
    "not known, wanted back": ((SENDING, UNKNOWN, "keep_back = true"), "requirement"),
    "being resent while the first is not known": ((SENDING, UNKNOWN, AGAIN), "requirement"),
    "proved absent": ((SENDING, UNKNOWN, "state = 'PENDING', doubt = false"), "requirement"),
    "accepted, then gone": ((SENDING, ACCEPTED, UNKNOWN), "requirement"),
    "not known and a case": ((SENDING, UNKNOWN, CASE), "case"),
    "waiting and a case": ((CASE,), "case"),
    "accepted and a case": ((SENDING, ACCEPTED, CASE), "case"),
    "settled and a case": ((SENDING, SETTLED, CASE), "case"),
    **{f"closed before it was sent: {why}": ((closed(why),), "requirement_lost") for why in BEFORE},
    "refused": ((SENDING, closed(Closed.REFUSED)), "requirement_lost"),
    "changed by somebody else": ((SENDING, closed(Closed.STALE)), "requirement_lost"),
    "refused after it was accepted": ((SENDING, ACCEPTED, closed(Closed.REFUSED)), "requirement_lost"),
    "withdrawn while queued": ((SENDING, ACCEPTED, closed(Closed.WITHDRAWN)), "requirement_lost"),
    **{
        f"not known, then closed: {why}": ((SENDING, UNKNOWN, closed(why)), "requirement_lost")
        for why in (Closed.REFUSED, Closed.WITHDRAWN, Closed.BY_PERSON)
    },
    "settled": ((SENDING, SETTLED), ""),
    "settled after it was not known": ((SENDING, UNKNOWN, "state = 'SETTLED', doubt = false"), ""),
}
"""How a credit came to where it is, and what a claim of its message is refused for; nothing where it may leave."""


async def walked(owner: psycopg.AsyncConnection, id_: int, steps: tuple[str, ...], run_id: str) -> None:
    for step in steps:
        if step == CASE:
            await owner.execute(
                "INSERT INTO remit.cases (operation_id, run_id, code, detail) VALUES (%s, %s, 'different', '')",
                [id_, run_id],
            )
        else:
            change = f"UPDATE remit.operations SET {step}, version = version + 1 WHERE id = %s"  # noqa: S608
            await owner.execute(change.encode(), [id_])


def test_the_table_has_every_state_and_every_reason_for_closing() -> None:
    """Each of the six states and each of the nine reasons is reached by one of the paths at least."""
    ends = ["".join(step for step in steps if step != CASE) for steps, _ in PATHS.values()]
    for state in set(State) - {State.PENDING, State.CLOSED}:
        assert any(f"state = '{state}'" in end for end in ends), state
    for why in Closed:
        assert any(f"closed = '{why}'" in end for end in ends), why


async def test_a_message_leaves_only_where_its_credit_is_settled_and_undisputed(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """In whatever other state, however closed: refused at the claim, and no window behind it begins."""
    subjects = [f"customer:c-{number}" for number in range(101, 101 + len(PATHS))]
    lease = await bench.run_over(tokens, subjects)
    credits_ = await bench.propose(lease, "credit", subjects)
    mails = await bench.propose(lease, "notify", subjects, requires=None)
    held = {**NO_OBLIGATIONS, "hold_seconds": HOUR}
    notes = await bench.propose(lease, "annotate", subjects, requires=None, obligations=held)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        for id_, (steps, _) in zip(credits_, PATHS.values(), strict=True):
            await walked(owner, id_, steps, lease.run_id)
    claims = await bench.ledger.claim(lease, mails, await bench.ledger.now(), 8.0, bench.runner._terms)
    refused = {claim.operation_id: claim.refused or "" for claim in claims}
    found = dict(zip(PATHS, (refused[id_] for id_ in mails), strict=True))
    assert found == {name: expected for name, (_, expected) in PATHS.items()}
    free = sum(not expected for _, expected in PATHS.values())
    assert await bench.database.value("start_holds", run=lease.run_id) == free
    begun = [bool((await bench.operation(id_))["hold_until"]) for id_ in notes]
    assert begun == [not expected for _, expected in PATHS.values()]


async def test_a_new_revision_of_the_credit_counts_and_the_closed_one_does_not(
    bench: Bench, tokens: Tokens
) -> None:
    """A credit that was refused, and is given by another revision afterwards, is announced once that one is settled."""
    lease = await bench.run_over(tokens, ["customer:c-104"])
    wrong = {"amount_minor": 1000, "currency": "XXX"}
    (refused,) = await bench.propose(lease, "credit", ["customer:c-104"], said=wrong)
    (mail,) = await bench.propose(lease, "notify", ["customer:c-104"], requires=None)
    await bench.send(lease)
    assert (await bench.operation(refused))["closed"] == "refused"
    assert await bench.obstacles([mail]) == ["requirement_lost"]
    (again,) = await bench.propose(lease, "credit", ["customer:c-104"])
    assert await bench.obstacles([mail]) == ["requirement"]
    await bench.settled(lease, [again, mail])
    assert len(dump(bench.home)["messages"]) == 1


async def _unknown(bench: Bench, world: World, lease: Lease) -> None:
    await world.control.add_fault("payments", "lying_ok", "POST /credits")


async def _refused(bench: Bench, world: World, lease: Lease) -> None:
    """The wrong currency, which the receiver refuses, is in the proposal itself."""


async def _withdrawn(bench: Bench, world: World, lease: Lease) -> None:
    await world.control.add_fault("payments", "never_settle", "POST /credits")
    await bench.send(lease)
    (credit,) = dump(bench.home)["credits"]
    await world.ask("payments", "POST", f"/credits/{credit['id']}/withdraw")


Arranged = Callable[[Bench, World, Lease], Awaitable[None]]
ENDS: dict[str, tuple[Arranged, str, str, str]] = {
    "UNKNOWN": (_unknown, "UNKNOWN", "UNKNOWN", "case"),
    "refused": (_refused, "CLOSED", "NOT_SENT", "requirement_lost"),
    "withdrawn": (_withdrawn, "CLOSED", "NOT_SENT", "requirement_lost"),
}


@pytest.mark.parametrize("end", list(ENDS))
async def test_the_mail_service_has_no_message_about_a_credit_that_is_not_there(
    bench: Bench, tokens: Tokens, world: World, end: str
) -> None:
    """A real credit that ends UNKNOWN, refused or withdrawn: whatever goes on, the customer is told nothing (I12)."""
    arrange, state, fact, obstacle = ENDS[end]
    lease = await bench.run_over(tokens, ["customer:c-104"])
    said: dict[str, Any] = {"said": {"amount_minor": 1000, "currency": "XXX"}} if end == "refused" else {}
    (credit,) = await bench.propose(lease, "credit", ["customer:c-104"], **said)
    (mail,) = await bench.propose(lease, "notify", ["customer:c-104"], requires=None)
    await arrange(bench, world, lease)

    async def ended() -> bool:
        row = await bench.operation(credit)
        return (row["state"], row["shown_fact"]) == (state, fact) and await bench.obstacles([mail]) == [
            obstacle
        ]

    await bench.carry_on(lease, ended)
    for _ in range(3):
        await bench.database.rows("advance_clock", seconds=60)
        await bench.send(lease)
        await bench.sweep()
    assert dump(bench.home)["messages"] == []
    assert "POST /messages" not in bench.transport.called
    await eventually(ended)
