"""What happens without any agent: expiries, cancellations, lost senders, and which runs are woken. DESIGN section 5."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.sandbox.worlds import World
from remit.tools.errors import Refused
from remit.tools.ports import Lease
from tests.fixtures import (
    ASK_FINANCE,
    HOUR,
    NO_OBLIGATIONS,
    Bench,
    Obligations,
    Tokens,
    eventually,
    limited,
    mandate_over,
)

OWN = "customer:c-104"


async def paused(bench: Bench, lease: Lease, waits: dict[str, int] | None = None) -> None:
    """Lets a run go, as a runner does that has nothing to do any more."""
    await bench.database.rows(
        "release_run",
        run=lease.run_id,
        token=lease.token,
        status="PAUSED",
        reason="",
        waits=json(waits or {}),
    )


async def ready(bench: Bench) -> list[str]:
    return [row["id"] for row in await bench.database.rows("ready_runs")]


async def test_a_stopped_run_is_cancelled_by_the_sweep_and_stays_so_after_lift(
    bench: Bench, tokens: Tokens
) -> None:
    """What an order kept back is closed, not sent when the order goes, and can be proposed again."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    order = await bench.people.stop(tokens.support_manager, "run", lease.run_id, "a doubt")
    await bench.sweep()
    row = await bench.operation(id_)
    assert (row["state"], row["closed"], row["closed_detail"]) == (
        "CLOSED",
        "cancelled",
        f"stopped by order {order['id']}",
    )
    await bench.people.lift(tokens.support_manager, order["id"])
    assert (await bench.send(lease)).attempted == []
    (again,) = await bench.propose(lease, "credit", [OWN])
    await bench.settled(lease, [again])


async def test_lift_cancels_first_and_waits_for_whoever_has_a_row(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """A waiting operation that somebody has locked at that moment is not passed over: it would start by itself."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    order = await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url) as other:
        await other.execute("SELECT FROM remit.operations WHERE id = %s FOR UPDATE", [id_])
        lifting = asyncio.create_task(bench.people.lift(tokens.support_manager, order["id"]))
        done, _ = await asyncio.wait([lifting], timeout=0.3)
        assert not done
        await other.rollback()
    assert (await lifting)["cancelled"] == 1
    assert await bench.states([id_]) == ["CLOSED"]


async def test_only_the_issuer_a_lead_or_an_administrator_lifts(bench: Bench, tokens: Tokens) -> None:
    """Everybody may stop; taking a stop away is for its issuer or somebody with that role, and happens once."""
    order = await bench.people.stop(tokens.finance_lead, "all", "", "a doubt")
    with pytest.raises(Refused, match="lifts this order"):
        await bench.people.lift(tokens.support_manager, order["id"])
    await bench.people.lift(tokens.finance_lead, order["id"])
    with pytest.raises(Refused, match="lifted by finance-lead already"):
        await bench.people.lift(tokens.finance_lead, order["id"])


async def test_what_was_sent_is_followed_under_a_stop(bench: Bench, tokens: Tokens, world: World) -> None:
    """A stop keeps nobody from verifying: the credit that was in flight is settled by the sweep, without the graph."""
    await world.control.settings(settle_seconds=0.3)
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.send(lease)
    await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    await bench.settled(lease, [id_])


async def test_under_a_stop_an_unknown_outcome_is_only_verified(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """I4: a resend is a forward attempt too: under a stop it waits for verification and is never claimed."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await world.control.add_fault("payments", "reply_lost", "POST /credits")
    await world.control.add_fault("payments", "late_search", "POST /credits", seconds=0.3)
    await bench.send(lease)
    await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    await bench.sweep()
    row = await bench.operation(id_)
    assert (row["state"], row["resend"], row["obstacle"]) == ("UNKNOWN", True, "verification")
    assert (await bench.send(lease)).attempted == []
    await bench.settled(lease, [id_])
    assert bench.transport.called.count("POST /credits") == 1


async def test_what_comes_back_after_the_end_of_its_run_is_closed(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """A send in flight when its run ended, and proved to be without effect later, leaves nothing waiting for ever."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN], tool="issue_credit_legacy")
    await world.control.add_fault("payments", "error_before", "POST /legacy/credits")
    await bench.send(lease)
    await bench.sql("SELECT remit.release_run(%s, %s, 'STOPPED', '', '{}')", lease.run_id, lease.token)

    async def closed() -> bool:
        await bench.sweep()
        return await bench.states([id_]) == ["CLOSED"]

    await eventually(closed)
    assert (await bench.operation(id_))["closed_detail"] == "the run ended: stopped"


@pytest.mark.parametrize(
    ("obligations", "verdict", "woken_by"),
    [
        ({**NO_OBLIGATIONS, "hold_seconds": HOUR}, "allow", "time"),
        (ASK_FINANCE, "needs_approval", "a grant"),
        (ASK_FINANCE, "needs_approval", "a rejection"),
        (ASK_FINANCE, "needs_approval", "silence"),
    ],
)
async def test_a_paused_run_is_woken_when_its_waits_are_satisfied(
    bench: Bench, tokens: Tokens, obligations: Obligations, verdict: str, woken_by: str
) -> None:
    """Level-triggered: not before, and on every look afterwards, whatever was paused or decided first."""
    lease = await bench.run_over(tokens, [OWN])
    await bench.propose(lease, "credit", [OWN], verdict=verdict, obligations=obligations)
    await bench.database.rows("start_holds", run=lease.run_id)
    asked = await bench.database.rows(
        "ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef"
    )
    await paused(bench, lease)
    await bench.sweep()
    assert await ready(bench) == []
    if woken_by in ("time", "silence"):
        await bench.database.rows("advance_clock", seconds=HOUR + 1)
    else:
        (approval,) = await bench.database.rows("approvals", which=asked[0]["id"])
        await bench.people.decide(
            tokens.finance_lead,
            approval["id"],
            approval["set_hash"],
            grant=woken_by == "a grant",
            rationale="",
        )
    await bench.sweep()
    assert await ready(bench) == [lease.run_id]
    assert await ready(bench) == [lease.run_id]


async def test_a_run_whose_worker_let_go_in_the_middle_is_taken_up(bench: Bench, tokens: Tokens) -> None:
    """F51: a run that is RUNNING and held by nobody is work for every worker; one that was only started is not."""
    run_id = await bench.started(tokens, await bench.granted(tokens, [OWN]))
    assert await ready(bench) == []
    lease = await bench.leased(run_id)
    assert await ready(bench) == []
    await bench.database.rows(
        "release_run",
        run=run_id,
        token=lease.token,
        status="RUNNING",
        reason="its worker was asked to end",
        waits=json({}),
    )
    assert await ready(bench) == [run_id]


async def test_a_run_that_waits_for_another_runs_operation_is_woken_by_it(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """What a run found proposed by another one under the same key concerns it as well."""
    await world.control.settings(settle_seconds=0.3)
    mandate = await bench.granted(tokens, [OWN])
    first, second = [await bench.leased(await bench.started(tokens, mandate)) for _ in range(2)]
    (id_,) = await bench.propose(first, "credit", [OWN])
    row = {"plan": 1, "call": 1, "subject": OWN, "tool": "issue_credit", "step": "credit", "intent": {}}
    place = {"run": second.run_id, "token": second.token}
    await bench.database.rows("store_proposals", **place, rows=json([row]))
    outcome = {**row, "outcome": "same", "code": "proposed_already", "operation_id": id_}
    await bench.database.rows("resolve_proposals", **place, rows=json([outcome]))
    await paused(bench, second)
    await bench.send(first)
    assert await ready(bench) == []
    await bench.settled(first, [id_])
    assert await ready(bench) == [second.run_id]


async def test_no_two_sweeps_look_at_one_operation_at_once(
    bench: Bench, tokens: Tokens, affected: list[str]
) -> None:
    """Work is shared: of four concurrent takers each operation goes to one."""
    lease = await bench.run_over(tokens, affected)
    ids = await bench.propose(lease, "credit", affected)
    await bench.send(lease)
    taken = await asyncio.gather(*(bench.ledger.due(None, 10) for _ in range(4)))
    assert sorted(due.operation_id for batch in taken for due in batch) == ids


async def test_evidence_of_an_older_version_moves_nothing(bench: Bench, tokens: Tokens, world: World) -> None:
    """A look that began before the operation moved on is kept as evidence and decides nothing."""
    await world.control.settings(settle_seconds=60.0)
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.send(lease)
    (old,) = await bench.ledger.due(None, 10)
    old_look = {
        "operation_id": id_,
        "version": old.version - 1,
        "attempt": 1,
        "sight": "absent",
        "source": "test",
        "as_of": "",
        "complete": True,
        "read_began_at": old.now.isoformat(),
        "records": [],
        "to": "PENDING",
        "next_seconds": 0,
    }
    assert await bench.database.value("settle", results=json([old_look])) == 0
    assert await bench.states([id_]) == ["ACCEPTED"]
    assert [e["sight"] for e in await bench.database.rows("evidence", id=id_)] == ["absent"]


async def test_an_effect_that_shows_after_it_was_proved_absent_is_a_case(
    bench: Bench, tokens: Tokens
) -> None:
    """A slow look that found the effect comes after one that proved its absence: nothing is sent, a person is told."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    seen = {
        "operation_id": id_,
        "version": 0,
        "attempt": 1,
        "sight": "effective",
        "source": "test",
        "as_of": "",
        "complete": True,
        "read_began_at": (await bench.ledger.now()).isoformat(),
        "records": [{"id": "cr-1"}],
        "to": "SETTLED",
        "next_seconds": 0,
    }
    await bench.database.value("settle", results=json([seen]))
    assert await bench.cases() == ["seen_after_absent"]
    assert (await bench.operation(id_))["obstacle"] == "case"
    assert (await bench.send(lease)).attempted == []


async def test_looking_again_keeps_one_row_of_evidence_for_one_thing_seen(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """Evidence and version grow with what is seen, not with how often it is looked at."""
    await world.control.add_fault("payments", "never_settle", "POST /credits")
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.send(lease)
    movement = await bench.database.value("movement", run=lease.run_id)

    async def looked_often() -> bool:
        await bench.sweep()
        return int((await bench.operation(id_))["checks"]) >= 3

    await bench.carry_on(lease, looked_often)
    assert len(await bench.database.rows("evidence", id=id_)) == 1
    assert await bench.database.value("movement", run=lease.run_id) == movement


async def test_two_calls_that_would_wait_for_each_other_both_end(
    bench: Bench, tokens: Tokens, affected: list[str]
) -> None:
    """Receipts of many operations under two limits, written at once in opposite orders, all get through."""
    lease = await bench.run_over(tokens, affected)
    money = await bench.propose(lease, "credit", affected[:8], obligations=limited(count=50))
    notes = await bench.propose(lease, "annotate", affected[:8], obligations=limited(count=50, name="notes"))
    claims = await bench.ledger.claim(
        lease, [*money, *notes], await bench.ledger.now(), 8.0, bench.runner._terms
    )
    attempts = [claimed.attempt_id for claimed in claims if claimed.attempt_id is not None]
    assert len(attempts) == 16
    halves = (attempts[::2], list(reversed(attempts[1::2])))
    await asyncio.wait_for(asyncio.gather(*(bench.ledger.unsend(half) for half in halves)), 10)
    assert await bench.sql("SELECT count FROM remit.limit_usage") == [{"count": 0}, {"count": 0}]


async def test_a_clock_that_moves_is_a_sandboxes_alone_and_goes_forward(
    bench: Bench, ledger_database: Urls
) -> None:
    """Company time is real time everywhere but in a sandbox, and never goes back."""
    with pytest.raises(Refused, match="does not go back"):
        await bench.database.rows("advance_clock", seconds=-1)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.installation SET environment = 'staging'")
    with pytest.raises(Refused, match="Only a sandbox"):
        await bench.database.rows("advance_clock", seconds=1)


async def test_a_mandate_that_begins_later_keeps_what_waits_for_it(bench: Bench, tokens: Tokens) -> None:
    """Only a mandate that can never be in force again closes what waits under it."""
    lease = await bench.run_over(tokens, [OWN])
    ids = await bench.propose(lease, "credit", [OWN])
    now = int((await bench.ledger.company_now()).timestamp())
    later = mandate_over("outage-0619", valid_from=now + HOUR)
    await bench.granted(tokens, [OWN], later)
    await bench.sweep()
    assert await bench.states(ids) == ["PENDING"]
