"""However the same business change is asked for again, it is one effect; asked for otherwise, it is a conflict (I1)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from remit.checkpoints import Worker
from remit.graph import Driver
from remit.tools.mandates import AskAbove
from remit.tools.transport import Response
from tests.graph.agents import CAMPAIGN, DONE, FEW, LIST, Agent, Script, call, credit, turn

SUBJECT = "customer:c-104"
LEGACY = call("issue_credit_legacy", cohort="cohort-1-1", amount_minor=1000, currency="USD")


async def campaign_done(agent: Agent) -> None:
    await agent.finished((await agent.approved())[0])
    agent.model.asked = []


def codes(outcomes: list[dict[str, object]]) -> set[object]:
    return {outcome["code"] for outcome in outcomes}


async def test_the_other_tool_path_meets_what_the_first_one_did(agent: Agent) -> None:
    """The older way to give a credit has the same key: it is told that this is completed, and calls nobody."""
    await campaign_done(agent)
    agent.model.turns = [LIST, turn(LEGACY), DONE]
    with agent.nothing_changes():
        run, _ = await agent.started()
    assert codes(await agent.outcomes(run, 2)) == {"completed_already"}
    assert "POST /legacy/credits" not in agent.bench.transport.called


async def test_both_tool_paths_in_one_plan_are_one_effect(agent: Agent) -> None:
    """Whichever is named first carries it out; the other is answered with the same operation."""
    agent.model.turns = [LIST, turn(credit(), LEGACY), DONE]
    run, _ = await agent.approved()
    outcomes = Counter({o["outcome"]: o["count"] for o in await agent.outcomes(run, 2)})
    assert outcomes == {"operation": FEW, "same": FEW}
    await agent.finished(run)
    assert Counter(c["customer"] for c in agent.records()["credits"]) == Counter(agent.customers)


async def test_another_agent_of_the_same_purpose_repeats_nothing(agent: Agent) -> None:
    """A corrected mandate names another agent: its run finds every effect of the first one's, and leaves it."""
    await campaign_done(agent)
    await agent.grant(agent.mandate.model_copy(update={"agent": "second-agent"}))
    with agent.nothing_changes():
        run, end = await agent.started()
    assert (await agent.row(run))["agent"] == "second-agent"
    assert codes(await agent.outcomes(run, 2)) == {"completed_already"}
    assert end.status == "COMPLETED"


@pytest.mark.parametrize("again", [1000, 2000])
async def test_another_agent_that_takes_over_in_the_middle_repeats_nothing(agent: Agent, again: int) -> None:
    """What the first agent has sent and nobody knows yet is live: the same intent waits for it, another conflicts."""
    await agent.world.control.settings(settle_seconds=60.0)
    agent.model.turns = [LIST, turn(credit()), DONE]
    run, _ = await agent.approved()
    await agent.drive(run)
    sent = agent.records()["credits"]
    assert len(sent) == FEW
    await agent.grant(agent.mandate.model_copy(update={"agent": "second-agent"}))
    agent.model.turns, agent.model.asked = [LIST, turn(credit(again)), DONE], []
    second, _ = await agent.started()
    expected = {1000: "proposed_already", 2000: "other_intent_under_a_live_key"}[again]
    assert codes(await agent.outcomes(second, 2)) == {expected}
    assert agent.records()["credits"] == sent
    assert len((await agent.status()).conflicts) == (0 if again == 1000 else FEW)


@pytest.fixture
async def second_worker(agent: Agent) -> AsyncIterator[Driver]:
    worker = await Worker.begin(agent.bench.database, agent.bench.home)
    yield Driver(replace(agent.deps, model=Script([LIST, CAMPAIGN, DONE])), worker)
    await worker.end(agent.bench.database)


async def test_two_runs_at_the_same_moment_by_two_workers_are_one_campaign(
    agent: Agent, second_worker: Driver
) -> None:
    """Both plan, propose and send at once; each key has one operation, each customer one credit."""
    await agent.grant(agent.mandate.model_copy(update={"ask_above": AskAbove(count=100)}))
    drivers = (agent.driver, second_worker)
    runs = [await driver.start(agent.tokens.support_manager, agent.mandate.hash) for driver in drivers]
    await asyncio.gather(*(driver.drive(run) for driver, run in zip(drivers, runs, strict=True)))
    # Each operation belongs to whichever run was first, so either may wait for what the other one sends.
    ends = [agent.finished(run, driver=driver) for driver, run in zip(drivers, runs, strict=True)]
    assert {end.status for end in await asyncio.gather(*ends)} == {"COMPLETED"}
    operations = await agent.operations()
    assert Counter(o["key"] for o in operations if o["state"] == "SETTLED").most_common(1)[0][1] == 1
    assert Counter(c["customer"] for c in agent.records()["credits"]) == Counter(agent.customers)
    assert agent.breaches(final=True) == []


async def test_a_replan_with_other_arguments_changes_nothing_of_what_is_under_way(agent: Agent) -> None:
    """Another amount while the first waits for approval: a conflict that a person sees, and one credit."""
    agent.model.turns = [LIST, turn(credit(), credit(2000)), DONE]
    run, _ = await agent.approved()
    (*_, conflict) = await agent.outcomes(run, 2)
    assert (conflict["outcome"], conflict["count"]) == ("conflict", FEW)
    await agent.finished(run)
    assert {c["amount_minor"] for c in agent.records()["credits"]} == {1000}
    assert len(agent.records()["credits"]) == FEW
    assert {c["run_id"] for c in (await agent.status()).conflicts} == {run}


async def test_what_a_receiver_refused_for_good_is_not_sent_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same intent in the same run is answered with the refusal, and the receiver is asked once."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), turn(credit(subject=SUBJECT)), DONE]
    transport, usual = agent.bench.transport, agent.bench.transport.call
    asked: list[str] = []

    async def refusing(receiver: str, method: str, path: str, **rest: Any) -> Response:
        if (method, path) != ("POST", "/credits"):
            return await usual(receiver, method, path, **rest)
        asked.append(path)
        return Response(422, {"type": "about:blank", "title": "", "status": 422, "code": "invalid"})

    monkeypatch.setattr(transport, "call", refusing)
    run, _ = await agent.started()
    await agent.finished(run)
    assert len(asked) == 1
    assert codes(await agent.outcomes(run, 2)) == {"refused_before"}
    assert [o["closed"] for o in await agent.operations()] == ["refused"]


async def test_what_a_stop_kept_back_is_proposed_again_after_its_lift_and_sent_once(agent: Agent) -> None:
    """Stop, lift, run again: new revisions of what was cancelled, approved anew, and one effect each."""
    run, _ = await agent.approved()
    order = await agent.bench.people.stop(agent.tokens.support_manager, "all", "", "a doubt")
    with agent.nothing_changes():
        assert (await agent.drive(run)).status == "STOPPED"
        await agent.bench.people.lift(agent.tokens.support_manager, order["id"])
        await agent.bench.sweep()
    assert {o["closed"] for o in await agent.operations()} == {"cancelled"}
    agent.model.asked = []
    again, end = await agent.started()
    assert end.status == "PAUSED_AWAITING_APPROVAL", (
        "an approval of before the stop approves nothing after it"
    )
    await agent.approve()
    assert (await agent.finished(again)).status == "COMPLETED"
    credits_ = await agent.operations("credit")
    assert sorted(o["revision"] for o in credits_) == [1] * FEW + [2] * FEW
    assert {(o["revision"], o["state"]) for o in credits_} == {(1, "CLOSED"), (2, "SETTLED")}
    assert agent.breaches(final=True) == []
