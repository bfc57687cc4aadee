"""Keys, revisions and generations: what meets in one row, and what becomes a new one. DESIGN section 3."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.tools.errors import LeaseLost
from remit.tools.states import State
from tests.fixtures import Bench, Tokens, mandate_over

OWN = "customer:c-104"
KEY = "outage-0611/credit/customer:c-104/1"


async def force(urls: Urls, id_: int, *steps: str) -> None:
    """Walks an operation through states by hand, as the owner: what the receivers would bring about."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        for step in steps:
            await owner.execute(
                f"UPDATE remit.operations SET {step}, version = version + 1 WHERE id = %s".encode(),  # noqa: S608 - of this file
                [id_],
            )


async def standing(bench: Bench) -> dict[str, object]:
    row = await bench.database.row("key_standing", keys=[KEY])
    assert row is not None
    return row


async def test_two_runs_that_propose_one_key_at_once_get_one_operation(bench: Bench, tokens: Tokens) -> None:
    """I1: of ten concurrent proposals of one key by two runs, one becomes an operation and nobody is told otherwise."""
    mandate = await bench.granted(tokens, [OWN])
    leases = [await bench.leased(await bench.started(tokens, mandate)) for _ in range(2)]
    added = await asyncio.gather(*(bench.propose(leases[n % 2], "credit", [OWN]) for n in range(10)))
    assert sorted(len(ids) for ids in added) == [0] * 9 + [1]
    assert len(await bench.sql("SELECT id FROM remit.operations WHERE key = %s", KEY)) == 1


async def test_after_a_close_without_an_attempt_a_new_revision_keeps_the_wire_key(
    bench: Bench, tokens: Tokens
) -> None:
    """A row that was never sent makes room for a new revision under the same wire key."""
    lease = await bench.run_over(tokens, [OWN])
    for revision, closed in enumerate(("stale", "cancelled", "expired", "superseded", "rejected"), start=2):
        (first,) = await bench.propose(lease, "credit", [OWN])
        await bench.database.rows(
            "close_pending", run=lease.run_id, token=lease.token, ids=[first], closed=closed, detail=""
        )
        (second,) = await bench.propose(lease, "credit", [OWN])
        row = await bench.operation(second)
        assert (row["revision"], row["generation"]) == (2 * revision - 2, 1)
        assert (await standing(bench))["ever_rejected"] == (closed == "rejected")
        await bench.people.cancel_holds(tokens.support_manager, [second])


async def test_a_denied_proposal_is_kept_and_may_be_proposed_again(bench: Bench, tokens: Tokens) -> None:
    """A denial is a closed revision of its own, with its reasons; the key stays free."""
    lease = await bench.run_over(tokens, [OWN])
    (denied,) = await bench.propose(lease, "credit", [OWN], verdict="deny")
    row = await bench.operation(denied)
    assert (row["state"], row["closed"], row["closed_detail"]) == ("CLOSED", "denied", "denied by the test")
    (again,) = await bench.propose(lease, "credit", [OWN])
    assert (await bench.operation(again))["revision"] == 2


async def test_a_denial_never_hides_a_live_operation(bench: Bench, tokens: Tokens) -> None:
    """Under a key that is live, even a denied proposal adds no row that listings could take for the latest."""
    lease = await bench.run_over(tokens, [OWN])
    (live,) = await bench.propose(lease, "credit", [OWN])
    assert await bench.propose(lease, "credit", [OWN], verdict="deny") == []
    assert (await standing(bench))["id"] == live


async def test_generation_stays_while_a_request_may_still_arrive(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Absence alone never raises the generation: what sits in a queue would land beside its successor."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    for step in (
        "state = 'SENDING'",
        "state = 'UNKNOWN', doubt = true",
        "state = 'PENDING', doubt = false",
        "state = 'SENDING'",
        "state = 'ACCEPTED'",
    ):
        await force(ledger_database, id_, step)
        assert (await bench.operation(id_))["generation"] == 1


async def test_generation_rises_after_a_refusal_and_stays_risen(bench: Bench, tokens: Tokens) -> None:
    """A refusal is final for its key: the corrected one goes under a new key, not into the old answer (F42)."""
    lease = await bench.run_over(tokens, [OWN])
    wrong = {"amount_minor": 1000, "currency": "XXX"}
    (refused,) = await bench.propose(lease, "credit", [OWN], said=wrong)
    await bench.send(lease)
    row = await bench.operation(refused)
    assert (row["state"], row["closed"], row["generation"]) == ("CLOSED", "refused", 2)
    await bench.propose(lease, "credit", [OWN], verdict="deny")
    (third,) = await bench.propose(lease, "credit", [OWN])
    assert (await bench.operation(third))["generation"] == 2
    await bench.settled(lease, [third])
    (attempt,) = await bench.database.rows("attempts", id=third)
    assert attempt["wire_key"] == f"{bench.ledger.installation}:{KEY}#2"


async def test_purpose_mandate_and_agent_are_the_runs_whatever_a_row_says(
    bench: Bench, tokens: Tokens
) -> None:
    """I2: a process cannot propose under another mandate, purpose or agent than those of the run that it holds."""
    lease = await bench.run_over(tokens, [OWN])
    other = mandate_over(why="Another mandate that nobody granted for this run.")
    row = {**bench.row("credit", OWN), "mandate_hash": other.hash, "agent": "other", "run_id": "run-000000"}
    (added,) = await bench.database.rows("propose", run=lease.run_id, token=lease.token, rows=json([row]))
    stored = await bench.operation(added["operation_id"])
    assert (stored["mandate_hash"], stored["agent"], stored["run_id"]) == (
        mandate_over().hash,
        mandate_over().agent,
        lease.run_id,
    )


async def test_a_stale_runner_proposes_nothing(bench: Bench, tokens: Tokens) -> None:
    """A token that is not the lease's adds no operation."""
    lease = await bench.run_over(tokens, [OWN], None)
    await bench.database.rows(
        "release_run", run=lease.run_id, token=lease.token, status="PAUSED", reason="", waits=json({})
    )
    with pytest.raises(LeaseLost):
        await bench.propose(lease, "credit", [OWN])


async def test_another_tool_of_the_effect_only_when_no_request_may_still_arrive(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """The older path is denied while a request of the keyed path could still arrive, absent or not."""
    cases = {"not_written": True, "refused": True, "not_begun": True, "unknown": False, None: False}
    subjects = [f"customer:c-{number}" for number in range(101, 101 + len(cases))]
    lease = await bench.run_over(tokens, subjects)
    for subject, (seen, allowed) in zip(subjects, cases.items(), strict=True):
        (first,) = await bench.propose(lease, "credit", [subject])
        await force_attempt(ledger_database, bench, first, seen)
        await bench.people.cancel_holds(tokens.support_manager, [first])
        (same,) = await bench.propose(lease, "credit", [subject])
        assert (await bench.operation(same))["state"] == State.PENDING
        await bench.people.cancel_holds(tokens.support_manager, [same])
        (other,) = await bench.propose(lease, "credit", [subject], tool="issue_credit_legacy")
        row = await bench.operation(other)
        assert row["state"] == (State.PENDING if allowed else State.CLOSED), seen
        assert row["closed_detail"] == (None if allowed else "other_tool_may_act"), seen


async def force_attempt(urls: Urls, bench: Bench, id_: int, seen: str | None) -> None:
    """An attempt that ended like this and was proved to be without effect later."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(
            "INSERT INTO remit.attempts (operation_id, number, wire_key, worker, run_token, agent_version,"
            " company_time, send_by, timeout, seen, no_effect)"
            " VALUES (%s, 1, 'w', %s, 1, 'test', now(), now(), '1 s', %s, true)",
            [id_, bench.worker.id, seen],
        )
