"""The whole job: from a mandate to 24 settled credits, notes and messages, and no second one in any later run."""

from __future__ import annotations

import sqlite3
from collections import Counter

from remit.graph import OpenAIModel
from remit.policies import read_mandate
from tests.graph.agents import (
    CAMPAIGN,
    DONE,
    FEW,
    LIST,
    MANDATES,
    Agent,
    Script,
    call,
    campaign,
    credit,
    turn,
)


@campaign
async def test_one_approval_and_the_real_client_bring_about_the_campaign_as_the_mandate_says(
    agent: Agent,
) -> None:
    """24 credits, notes and messages for exactly the affected customers; the denied renewal date stays as it was."""
    world = agent.world
    model = OpenAIModel(world.urls["model"] + "/v1", world.credentials["model"], "script:outage-credit")
    driver = agent.driver_with(model=model)
    run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
    paused = await driver.drive(run)
    assert (paused.status, paused.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": 24, "requirement": 24})
    assert [one["actions"] for one in await agent.approvals()] == [24]
    await agent.approve()
    end = await agent.finished(run, driver=driver)
    await model.close()
    assert (end.status, end.reason.partition(":")[0]) == ("COMPLETED", "completed")
    assert agent.breaches(final=True) == []
    assert {(c["amount_minor"], c["currency"], c["status"]) for c in agent.records()["credits"]} == {
        (1000, "USD", "settled")
    }
    assert {c["field"] for c in agent.records()["changes"]} == {"notes"}
    (denied,) = [o for o in await agent.outcomes(run, 2) if o["closed"] == "denied"]
    assert {reason["code"] for reason in denied["reasons"]} == {"field_not_delegated", "never_listed"}
    assert (await agent.row(run))["tokens_used"] > 0


@campaign
async def test_the_approved_campaign_ends_completed_with_every_statement_borne_out(agent: Agent) -> None:
    """The report of a finished run counts 24 completed subjects per step, and the agent's statements agree."""
    run, _ = await agent.approved()
    assert (await agent.finished(run)).status == "COMPLETED"
    report = await agent.status()
    assert report.counts() == {step: {"COMPLETED": 24} for step in ("credit", "annotate", "notify")}
    assert [(s.proved, s.borne_out) for s in report.statements] == [(24, True)] * 3
    assert report.money_out == {"USD": 24_000}
    assert (report.foreign, report.silent, report.cases, report.conflicts) == ([], [], [], [])


async def test_run_again_it_sends_nothing_and_says_that_all_was_completed_already(agent: Agent) -> None:
    """A second run of the same mandate proposes, finds everything done, and ends completed without any effect."""
    await agent.finished((await agent.approved())[0])
    agent.model.asked.clear()
    with agent.nothing_changes():
        run, end = await agent.started()
    assert end.status == "COMPLETED"
    outcomes = {(o["outcome"], o["code"], o["count"]) for o in await agent.outcomes(run, 2)}
    assert outcomes == {("done", "completed_already", FEW)}


async def test_what_the_world_lost_is_not_completed_by_running_again(agent: Agent) -> None:
    """A provider that was set back to yesterday: nothing is issued again, and the run does not end as completed."""
    await agent.finished((await agent.approved())[0])
    with sqlite3.connect(agent.world.home / "sandbox" / "company.sqlite") as company:
        company.execute("DELETE FROM credits")
    company.close()
    with agent.nothing_changes():
        _, end = await agent.started()
    assert end.status == "INCOMPLETE"
    assert end.reason.startswith(
        f"not_confirmed: settled once, but the systems of record show only credit 0 of {FEW}"
    )


async def test_another_intent_under_a_finished_key_is_a_conflict_that_the_report_shows(agent: Agent) -> None:
    """Another note for a customer who has one is neither sent nor lost: it is named beside the operation it meets."""
    await agent.finished((await agent.approved())[0])
    other = call("annotate_account", subject="customer:c-104", note="Something else.")
    agent.model.turns, agent.model.asked = [LIST, turn(credit(), other), DONE], []
    with agent.nothing_changes():
        run, end = await agent.started()
    assert end.status == "COMPLETED"
    codes = Counter({o["code"]: o["count"] for o in await agent.outcomes(run, 2)})
    assert codes == {"completed_already": FEW, "other_intent_under_a_live_key": 1}
    (conflict,) = (await agent.status()).conflicts
    assert (conflict["run_id"], conflict["subject"], conflict["step"]) == (run, "customer:c-104", "annotate")


async def test_a_corrected_mandate_of_the_same_purpose_gives_nobody_a_second_credit(agent: Agent) -> None:
    """Keys hold the purpose and not the mandate, so the corrected campaign finds the first one's effects."""
    await agent.finished((await agent.approved())[0])
    await agent.grant(read_mandate(MANDATES / "outage-0611-corrected.yaml"))
    agent.model.asked.clear()
    with agent.nothing_changes():
        run, end = await agent.started()
    assert end.status == "COMPLETED"
    assert {o["code"] for o in await agent.outcomes(run, 2)} == {"completed_already"}
    assert agent.breaches(final=True) == []


async def test_a_run_beside_another_of_the_same_purpose_waits_for_it_and_proposes_nothing_twice(
    agent: Agent,
) -> None:
    """What somebody else has proposed already is `same`: one operation per key, whoever runs."""
    first, _ = await agent.started()
    second = agent.driver_with(model=Script([LIST, CAMPAIGN, DONE]))
    run = await second.start(agent.tokens.support_manager, agent.mandate.hash)
    end = await second.drive(run)
    assert end.status == "PAUSED_AWAITING_APPROVAL"
    assert {(o["outcome"], o["code"]) for o in await agent.outcomes(run, 2)} == {("same", "proposed_already")}
    await agent.approve()
    assert (await agent.finished(first)).status == "COMPLETED"
    assert (await agent.finished(run, driver=second)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_a_stop_of_another_run_is_no_stop_of_the_run_that_waits_for_it(agent: Agent) -> None:
    """It waits until what it waited for is cancelled, asks nobody meanwhile, and then proposes it in its own name."""
    first, _ = await agent.started()
    other = Script([LIST, CAMPAIGN, CAMPAIGN, DONE])
    second = agent.driver_with(model=other)
    run = await second.start(agent.tokens.support_manager, agent.mandate.hash)
    await second.drive(run)
    await agent.bench.people.stop(agent.tokens.finance_lead, "run", first, "a test")
    end = await second.drive(run)
    assert (end.status, end.waits, len(other.asked)) == ("PAUSED", {"requirement": 3 * FEW}, 2)
    assert not end.only_people
    await agent.bench.sweep()
    end = await second.drive(run)
    assert (end.status, len(other.asked)) == ("PAUSED_AWAITING_APPROVAL", 3)
    assert {o["run_id"] for o in await agent.operations() if o["state"] == "PENDING"} == {run}
