"""Every end of a run in the database: its status, its reason's code, and no further call of the model."""

from __future__ import annotations

import pytest

from remit.policies import read_mandate
from tests.graph.agents import (
    BY_AN_EMPLOYEE,
    CAMPAIGN,
    DONE,
    FEW,
    LIST,
    MANDATES,
    Agent,
    annotate,
    call,
    campaign,
    credit,
    finish,
    notify,
    turn,
)

SUBJECT = "customer:c-104"
DENIED = credit(5_000, subject=SUBJECT)
READING = call("read_account", subject=SUBJECT)


def code(reason: str) -> str:
    return reason.partition(":")[0]


ENDS = {
    "repeated_plan": ([LIST], "BLOCKED", 2),
    "repeated_denial": (
        [turn(DENIED), turn(DENIED, READING)],
        "BLOCKED",
        2,
    ),
    "finished_early": ([finish()], "INCOMPLETE", 1),
    "unproven_finish": ([LIST, finish(("credit", 24))], "INCOMPLETE", 2),
}


@pytest.mark.parametrize("named", ENDS)
async def test_a_run_that_gets_nowhere_ends_by_name_and_asks_no_more(agent: Agent, named: str) -> None:
    """The same plan, the same denial, a finish before anything was done, and one with a false count (F55)."""
    agent.model.turns, status, asked = ENDS[named]  # type: ignore[assignment]
    run, end = await agent.started()
    assert (end.status, code(end.reason)) == (status, named)
    row = await agent.row(run)
    assert (row["status"], row["reason"], row["ended_at"] is not None) == (status, end.reason, True)
    await agent.bench.sweep()
    assert await agent.bench.database.rows("ready_runs") == []
    await agent.drive(run, by_person=True)
    assert len(agent.model.asked) == asked
    assert agent.records()["credits"] == []


@campaign
async def test_a_statement_of_24_with_23_completed_is_unproven(agent: Agent) -> None:
    """One customer got the credit from an employee before; what the agent says of 24 is set beside 23."""
    await agent.world.ask("payments", "POST", "/legacy/credits", BY_AN_EMPLOYEE)
    run, _ = await agent.approved()
    end = await agent.finished(run)
    assert (end.status, code(end.reason)) == ("INCOMPLETE", "unproven_finish")
    assert "credit 23 of 24" in end.reason
    assert {s.borne_out for s in (await agent.status()).statements} == {False}


@pytest.mark.parametrize(
    ("limits", "named"), [({"plans": 2}, "step_budget"), ({"tokens": 150}, "token_budget")]
)
async def test_a_used_up_budget_ends_the_run_after_what_was_planned_within_it(
    agent: Agent, limits: dict[str, int], named: str
) -> None:
    """The last plan is still carried out; then nobody is asked any more."""
    agent.budget(**limits)
    agent.model.turns = [LIST, turn(credit(subject=SUBJECT)), turn(notify(subject=SUBJECT)), DONE]
    run, _ = await agent.started()
    end = await agent.finished(run)
    assert (end.status, code(end.reason), len(agent.model.asked)) == ("BLOCKED", named, 2)
    assert [o["state"] for o in await agent.operations()] == ["SETTLED"]


async def test_a_stopped_run_ends_stopped_and_follows_what_was_sent(agent: Agent) -> None:
    """Waiting operations are cancelled, nothing new is claimed, and the credit on its way is still settled."""
    await agent.world.control.settings(settle_seconds=60.0)
    agent.model.turns = [turn(credit(subject=SUBJECT), annotate(subject=SUBJECT)), DONE]
    run, end = await agent.started()
    assert end.waits == {"requirement": 1, "settlement": 1}
    order = await agent.bench.people.stop(agent.tokens.support_manager, "all", "", "a test")
    end = await agent.drive(run)
    assert (end.status, code(end.reason)) == ("STOPPED", "stopped")
    assert f"order {order['id']}" in end.reason
    assert [o["state"] for o in await agent.operations("credit")] == ["ACCEPTED"]
    assert [o["closed"] for o in await agent.operations("annotate")] == ["cancelled"]
    await agent.skip(60.0)
    await agent.swept_to("credit", "SETTLED")
    assert len(agent.model.asked) == 1


async def test_a_stop_over_one_tool_ends_its_work_and_not_the_run(agent: Agent) -> None:
    """What waits is closed, what is proposed again is denied as stopped, and the other steps are told the truth."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), turn(credit(subject=SUBJECT), READING)]
    run = await agent.start()
    await agent.bench.people.stop(agent.tokens.support_manager, "tool", "issue_credit", "a test")
    end = await agent.drive(run)
    assert (end.status, code(end.reason)) == ("BLOCKED", "repeated_denial")
    (reasons,) = {tuple(r["code"] for r in o["reasons"]) for o in await agent.operations()}
    assert reasons == ("stopped",)
    assert agent.records()["credits"] == []


async def test_what_waits_under_a_narrow_stop_is_closed_and_the_model_is_told(agent: Agent) -> None:
    """Approved work under a stop of its effect is cancelled by the run itself, without any sweep."""
    run, _ = await agent.approved()
    await agent.bench.people.stop(agent.tokens.support_manager, "effect", "credit.issue", "a test")
    with agent.nothing_changes():
        await agent.drive(run)
    assert {o["closed"] for o in await agent.operations("credit")} <= {"cancelled", "denied"}
    assert "cancelled" in {o["closed"] for o in await agent.operations("credit")}


async def test_a_freeze_denies_what_is_new_and_comes_from_the_database_alone(agent: Agent) -> None:
    """F68: the freeze is a fact of the server; neither the mandate nor the model can say that there is none."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), turn(credit(subject=SUBJECT), READING)]
    run = await agent.start()
    await agent.bench.people.freeze(agent.tokens.finance_lead, "all", "", "a test")
    end = await agent.drive(run)
    assert (end.status, code(end.reason)) == ("BLOCKED", "repeated_denial")
    assert {r["code"] for o in await agent.operations() for r in o["reasons"]} == {"frozen"}
    assert agent.records()["credits"] == []


async def test_a_run_that_is_stopped_before_its_first_plan_reads_and_plans_nothing(agent: Agent) -> None:
    """No model call, no call of a company system."""
    run = await agent.start()
    await agent.bench.people.stop(agent.tokens.finance_lead, "run", run, "a test")
    end = await agent.drive(run)
    assert (end.status, agent.model.asked, agent.bench.transport.calls) == ("STOPPED", [], 0)


async def test_what_a_stop_cancelled_is_proposed_anew_after_the_lift(agent: Agent) -> None:
    """The stopped run has ended; another one proposes the same as new revisions, and a person decides again."""
    run, _ = await agent.approved()
    order = await agent.bench.people.stop(agent.tokens.support_manager, "all", "", "a test")
    assert (await agent.drive(run)).status == "STOPPED"
    await agent.bench.people.lift(agent.tokens.finance_lead, order["id"])
    agent.model.asked.clear()
    again, end = await agent.started()
    assert end.status == "PAUSED_AWAITING_APPROVAL"
    assert {o["revision"] for o in await agent.operations("credit") if o["run_id"] == again} == {2}
    assert agent.records()["credits"] == []


@pytest.mark.parametrize("named", ["mandate_revoked", "mandate_superseded", "mandate_over"])
async def test_a_mandate_that_is_gone_ends_its_approved_run_before_anything_is_sent(
    agent: Agent, named: str
) -> None:
    """Authority is read afresh at each step, also after approval (F21)."""
    people, mandate = agent.bench.people, agent.mandate
    if named == "mandate_over":
        until = int((await agent.bench.ledger.company_now()).timestamp()) + 3_600
        await agent.grant(mandate.model_copy(update={"valid_until": until}))
    run, _ = await agent.approved()
    if named == "mandate_revoked":
        await people.revoke_mandate(agent.tokens.support_manager, mandate.hash)
    elif named == "mandate_superseded":
        await agent.grant(read_mandate(MANDATES / "outage-0611-corrected.yaml"))
    else:
        await agent.skip(3_601)
    with agent.nothing_changes():
        end = await agent.drive(run)
    assert (end.status, code(end.reason), len(agent.model.asked)) == ("BLOCKED", named, 2)
    assert {o["state"] for o in await agent.operations()} == {"CLOSED"}


async def test_a_finish_with_an_open_case_leaves_the_case_to_a_person(agent: Agent) -> None:
    """The receiver said accepted and its records do not show it: the run ends with that case, not as completed."""
    await agent.world.control.add_fault("payments", "lying_ok", match={"customer": "c-104"})
    run, _ = await agent.approved()
    end = await agent.finished(run)
    assert (end.status, code(end.reason)) == ("INCOMPLETE", "unproven_finish")
    agent.model.turns, agent.model.asked = [LIST, CAMPAIGN, finish(("credit", FEW - 1))], []
    _, end = await agent.started()
    assert (end.status, code(end.reason)) == ("INCOMPLETE", "open_cases")
    assert await agent.bench.cases() == ["accepted_then_absent"]
