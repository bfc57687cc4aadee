"""The plan node: what it holds, how often it asks, what it shows the model, and what a kill in it costs."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from langgraph.types import Command

from remit.checkpoints import Database
from remit.graph import ModelUnavailable, OpenAIModel, nodes
from remit.graph.model import Reply
from remit.graph.state import initial
from remit.tools.errors import LeaseLost
from remit.tools.runner import Runner
from remit.tools.transport import Transport
from tests.graph.agents import CAMPAIGN, DONE, FEW, LIST, Agent, Script, call, credit, turn

SUBJECT = "customer:c-104"


def test_the_plan_node_closes_over_no_transport_runner_or_credential() -> None:
    """What it can reach is the ledger's queries, the model, and the description of the tools, which is plain data."""
    tools: list[dict[str, Any]] = [{"type": "function"}]
    database = Database(None)  # type: ignore[arg-type]  # never asked here
    held = inspect.getclosurevars(nodes.plan_node(database, Script(), tools))
    assert set(held.nonlocals) == {"database", "model", "tools"}
    assert not {type(value) for value in held.nonlocals.values()} & {Transport, Runner}
    assert not {"Transport", "Runner", "take_in", "send_ready"} & set(held.globals)
    assert json.dumps(held.nonlocals["tools"])


async def test_a_model_that_changes_its_mind_is_not_asked_between_approval_and_sending(agent: Agent) -> None:
    """The stored plan is what runs: other amounts, said on a second asking, never come to pass (F10)."""
    await agent.world.control.settings(settle_seconds=60.0)
    agent.model.turns = [LIST, turn(credit()), turn(credit(50_000))]
    run, _ = await agent.started()
    asked = len(agent.model.asked)
    await agent.approve()
    end = await agent.drive(run)
    assert end.waits == {"settlement": FEW}
    assert len(agent.model.asked) == asked == 2
    assert {c["amount_minor"] for c in agent.records()["credits"]} == {1000}
    await agent.skip(60.0)
    await agent.finished(run)
    assert len(agent.records()["credits"]) == FEW


async def test_a_plan_that_is_stored_already_is_taken_as_it_is(agent: Agent) -> None:
    """A kill between the plan's row and its checkpoint has the node executed again; the model is not asked again."""
    run = await agent.start()
    lease = await agent.bench.leased(run)
    config = agent.driver._config(lease, 1)
    node = nodes.plan_node(agent.bench.database, agent.model, [])
    for _ in range(2):
        assert await node(initial(run, 0), config) == {"plan": 1}
    assert len(agent.model.asked) == 1
    assert [plan["number"] for plan in await agent.plans(run)] == [1]


async def test_a_late_answer_of_a_worker_that_was_taken_over_is_not_kept(agent: Agent) -> None:
    """Its lease is gone by the time that the model answers: nothing is stored for the successor to meet (F62)."""
    run = await agent.start()
    lease = await agent.bench.leased(run, seconds=0.01)

    async def slow(messages: Any, tools: Any) -> Reply:
        while await agent.bench.database.value("heartbeat", run=run, token=lease.token, seconds=0.001):
            pass
        return LIST

    model = Script()
    model.plan = slow  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        await nodes.plan_node(agent.bench.database, model, [])(
            initial(run, 0), agent.driver._config(lease, 1)
        )
    assert await agent.plans(run) == []


async def test_each_call_of_each_earlier_plan_has_exactly_one_answer_in_the_conversation(
    agent: Agent,
) -> None:
    """Also where the plan was interrupted: a provider refuses a conversation with a call that nobody answered (F61)."""
    agent.model.turns = [LIST, turn(*CAMPAIGN.calls, call("nonsense")), DONE]
    run, _ = await agent.approved()
    await agent.finished(run)
    conversation = agent.model.asked[-1]
    called = [c["id"] for message in conversation for c in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in conversation if message["role"] == "tool"]
    assert called == answered
    assert len(set(called)) == 5
    told = json.loads(conversation[-1]["content"].removeprefix("Evidence so far: "))
    assert told["subjects_by_step_and_fact"]["credit"] == {"COMPLETED": FEW}


async def test_the_conversation_is_as_long_for_many_customers_as_for_few(agent: Agent) -> None:
    """Counts and samples, never the actions: what the model is shown does not grow with the cohort."""
    agent.model.turns = [LIST, turn(credit(subject=SUBJECT)), turn(credit()), DONE]
    run, _ = await agent.started()
    await agent.finished(run)
    await agent.approve()
    await agent.finished(run)
    few, many = (len(json.dumps(agent.model.asked[n][-3:])) for n in (2, 3))
    assert many < few + 500


async def test_nothing_personal_and_no_credential_leaves_for_the_provider(agent: Agent) -> None:
    """The requests that the endpoint recorded hold no name, no e-mail address and no secret of anybody."""
    world = agent.world
    await world.control.edit("c-104", {"notes": "Customer 104 asked to be written to at c-104@example.test."})
    script = "turns:\n" + "".join(
        f"  - tool_calls: [{{name: {name}, arguments: {json.dumps(said)}}}]\n"
        for name, said in [
            ("list_affected_accounts", {"incident": "outage-0611"}),
            ("read_account", {"subject": SUBJECT}),
            ("issue_credit", {"subject": SUBJECT, "amount_minor": 1000, "currency": "USD"}),
            ("finish", {"statements": []}),
        ]
    )
    scripts = world.home / "sandbox" / "scripts"
    scripts.mkdir(exist_ok=True)
    (scripts / "reader.yaml").write_text(script)
    model = OpenAIModel(world.urls["model"] + "/v1", world.credentials["model"], "script:reader")
    driver = agent.driver_with(model=model)
    run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
    await agent.finished(run, driver=driver)
    await model.close()
    records = agent.records()
    sent = "".join(request["request"] for request in records["model_calls"])
    assert (len(records["model_calls"]), SUBJECT in sent, "asked to be written to" in sent) == (4, True, True)
    personal = [account[name] for account in records["accounts"] for name in ("name", "email")]
    secrets = [*world.credentials.values(), *vars(agent.tokens).values()]
    assert [text for text in personal + secrets if text in sent] == []


async def test_a_plan_is_asked_for_once_and_never_streamed(agent: Agent) -> None:
    """One whole answer for one request: no pieces that could be put together wrongly, no repetition (F58, F62)."""
    world = agent.world
    model = OpenAIModel(world.urls["model"] + "/v1", world.credentials["model"], "script:outage-credit")
    await model.plan([{"role": "user", "content": "Plan."}], agent.bench.catalogue.openai_tools())
    await model.close()
    (request,) = [json.loads(one["request"]) for one in agent.records()["model_calls"]]
    assert not request.get("stream")
    assert {tool["function"]["name"] for tool in request["tools"]} >= {"issue_credit", "finish"}


async def test_a_model_that_cannot_be_reached_pauses_the_run_and_resuming_goes_on(agent: Agent) -> None:
    """Nothing was planned and nothing is lost: the next turn is asked for again, in whatever place it was."""
    away = ModelUnavailable("The model is away. Run `remit resume`.", code="model")
    agent.model.turns = [LIST, away, CAMPAIGN, DONE]
    run, end = await agent.started()
    assert (end.status, end.waits, end.reason.partition(":")[0]) == ("PAUSED", {"model": 1}, "model")
    assert not await agent.bench.database.value("run_ready", run=run), "asked again at once, in a tight loop"
    assert (await agent.drive(run, by_person=True)).status == "PAUSED_AWAITING_APPROVAL"
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"


async def test_the_tokens_of_every_turn_are_counted_once(agent: Agent) -> None:
    """A pause, a wake-up and a second look at a stored plan cost nothing."""
    run, _ = await agent.started()
    await agent.drive(run)
    assert (await agent.row(run))["tokens_used"] == 200


async def test_whoever_carries_a_run_on_plans_and_proposes_as_the_agent_that_it_is(agent: Agent) -> None:
    """A deploy in mid-run shows in the plans and operations that come after it, and in none before it."""
    run = await agent.start()
    agent.model.turns = [LIST, ModelUnavailable("away", code="model")]
    await agent.drive(run)
    other = agent.driver_with(model=Script([CAMPAIGN, DONE], name="another-model"))
    await other.drive(run, by_person=True)
    first, second = [plan["agent_version"] for plan in await agent.plans(run)]
    assert first != second
    assert {o["agent_version"] for o in await agent.operations()} == {second}


async def test_a_wake_up_of_a_paused_thread_asks_no_model(agent: Agent) -> None:
    """Whatever it is resumed with, the graph reads the ledger and pauses again."""
    run, _ = await agent.started()
    lease = await agent.bench.leased(run)
    await agent.driver.graph.ainvoke(Command(resume={"plan": "again"}), agent.driver._config(lease, 1))
    assert len(agent.model.asked) == 2
