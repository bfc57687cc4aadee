"""Pauses and wake-ups: F01, F02, F03, F06, F08, F09. A wake-up carries no authority, whatever comes with it."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

import remit.graph
from remit.graph import nodes
from remit.graph.state import initial
from remit.tools.transport import Response
from tests.graph.agents import DONE, FEW, Agent, credit, turn

PAYLOADS: list[object] = [{"approve": True}, True, False, "granted", {"decision": "APPROVE"}, [1], {}, None]


async def resumed(agent: Agent, run: str, payload: object) -> dict[str, Any]:
    """Resumes the run's thread directly with any payload, past the driver and under a lease of its own."""
    lease = await agent.bench.leased(run, seconds=5.0)
    config = agent.driver._config(lease, 1)
    given: Any = None if payload is None else Command(resume=payload)
    result: dict[str, Any] = await agent.driver.graph.ainvoke(given, config, durability="sync")
    await agent.bench.database.rows(
        "release_run", run=run, token=lease.token, status="PAUSED", reason="", waits="{}"
    )
    return result


async def test_no_resume_payload_of_any_shape_approves_anything(agent: Agent) -> None:
    """Truth, falsehood, decisions, empty and no answers: the thread pauses again and nothing was sent (F02, F08)."""
    run, _ = await agent.started()
    (asked,) = await agent.approvals()
    with agent.nothing_changes():
        for payload in [*PAYLOADS, {asked["id"]: True}, {"0" * 32: True}]:
            result = await resumed(agent, run, payload)
            assert "__interrupt__" in result, payload
            assert result["waits"] == {"approval": FEW, "requirement": 2 * FEW}
    assert [one["undecided"] for one in await agent.approvals()] == [FEW]
    assert {o["attempts"] for o in await agent.operations()} == {0}


async def test_the_ids_of_the_pause_itself_approve_nothing_either(agent: Agent) -> None:
    """Not even an answer that LangGraph would deliver as this very interrupt's (F02)."""
    run, _ = await agent.started()
    lease = await agent.bench.leased(run)
    config = agent.driver._config(lease, 1)
    (pause,) = (await agent.driver.graph.aget_state(config)).interrupts
    with agent.nothing_changes():
        result = await agent.driver.graph.ainvoke(Command(resume={pause.id: {"approve": True}}), config)
    assert "__interrupt__" in result


async def test_what_was_sent_before_a_pause_is_not_sent_again_by_the_wake_up(agent: Agent) -> None:
    """One action runs at once and another waits for a person: after approval, one attempt of each (F01)."""
    first, second, third = agent.cohort
    agent.model.turns = [
        turn(credit(subject=first)),
        turn(credit(subject=second), credit(subject=third)),
        DONE,
    ]
    run, _ = await agent.started()
    end = await agent.finished(run)
    assert end.waits == {"approval": 2}
    assert [c["customer"] for c in agent.records()["credits"]] == [first.partition(":")[2]]
    await agent.approve()
    await agent.finished(run)
    assert [o["attempts"] for o in await agent.operations("credit")] == [1, 1, 1]
    assert Counter(c["customer"] for c in agent.records()["credits"]) == Counter(agent.customers)


async def test_of_two_actions_only_the_approved_one_runs_and_the_other_stays_pending(agent: Agent) -> None:
    """Each action is decided by itself, and what waits for neither runs once (F03)."""
    await _strict(agent)
    first, second = agent.cohort[:2]
    agent.model.turns = [turn(credit(subject=first), credit(subject=second)), DONE]
    run, end = await agent.started()
    assert end.waits == {"approval": 2}
    approved = next(o["id"] for o in await agent.operations() if o["subject"] == first)
    await agent.approve(only=[approved])
    end = await agent.finished(run)
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": 1})
    assert {o["subject"]: (o["state"], o["attempts"]) for o in await agent.operations()} == {
        first: ("SETTLED", 1),
        second: ("PENDING", 0),
    }
    assert [c["customer"] for c in agent.records()["credits"]] == [first.partition(":")[2]]


async def test_what_a_person_rejected_is_not_sent_and_the_model_is_told(agent: Agent) -> None:
    """A rejection closes the operation and what depended on it; the run ends short by name (F09)."""
    run, _ = await agent.started()
    await agent.approve(grant=False)
    with agent.nothing_changes():
        end = await agent.finished(run)
    assert end.status == "INCOMPLETE"
    assert {o["closed"] for o in await agent.operations("credit")} == {"rejected"}
    assert {o["closed"] for o in await agent.operations("notify")} == {"cancelled"}
    told = [message["content"] for message in agent.model.asked[-1] if message["role"] == "tool"]
    assert '"closed": "rejected"' in told[1]


async def test_what_a_person_rejected_is_closed_to_the_agent_in_this_run(agent: Agent) -> None:
    """It may not ask a second time, at the same amount or at another; nobody is bothered again (F20)."""
    await _strict(agent)
    subject = agent.cohort[0]
    agent.model.turns = [turn(credit(subject=subject)), turn(credit(subject=subject)), DONE]
    run, _ = await agent.started()
    await agent.approve(grant=False)
    with agent.nothing_changes():
        end = await agent.finished(run)
    assert end.status != "PAUSED_AWAITING_APPROVAL"
    assert [(o["revision"], o["closed"]) for o in await agent.operations()] == [
        (1, "rejected"),
        (2, "denied"),
    ]
    assert await agent.approvals() == []


async def test_a_run_that_a_person_starts_may_ask_again_about_what_was_rejected(agent: Agent) -> None:
    """Also where policy would allow it by itself: after a no, only a person says yes."""
    await _strict(agent)
    subject = agent.cohort[0]
    agent.model.turns = [turn(credit(subject=subject)), DONE]
    run, _ = await agent.started()
    await agent.approve(grant=False)
    await agent.finished(run)
    agent.model.asked.clear()
    _, end = await agent.started()
    assert end.status == "PAUSED_AWAITING_APPROVAL"
    (row,) = [o for o in await agent.operations() if o["state"] == "PENDING"]
    assert "rejected_before" in {reason["code"] for reason in row["reasons"]}


def test_the_pause_is_alone_in_its_node_and_no_handler_in_the_graph_could_swallow_it() -> None:
    """`interrupt` is called in one place, first in its node, and nothing here catches Exception (F01, F06)."""
    (paused,) = ast.parse(inspect.getsource(nodes.pause)).body
    assert isinstance(paused, ast.AsyncFunctionDef)
    statements = [
        s for s in paused.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
    ]
    assert ast.unparse(statements[0]).startswith("interrupt(")
    calls, broad = 0, []
    for file in Path(remit.graph.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            calls += isinstance(node, ast.Call) and ast.unparse(node.func) == "interrupt"
            if isinstance(node, ast.ExceptHandler):
                caught = "everything" if node.type is None else ast.unparse(node.type)
                broad += [
                    caught for name in ("everything", "Exception", "BaseException") if name in caught.split()
                ]
    assert (calls, broad) == (1, [])


@pytest.mark.parametrize("signal", [GraphInterrupt(), GraphBubbleUp()])
async def test_a_control_signal_that_crosses_the_tools_is_not_taken_for_a_silent_receiver(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, signal: Exception
) -> None:
    """LangGraph's signals pass through tools, intake and judging: no answer, gate or retry is made of them (F06)."""

    async def call(*_: object, **__: object) -> Response:
        raise signal

    monkeypatch.setattr(agent.bench.transport, "call", call)
    run = await agent.start()
    lease = await agent.bench.leased(run)
    config = agent.driver._config(lease, 1)
    with suppress(GraphBubbleUp):
        await agent.driver.graph.ainvoke(initial(run, 0), config, durability="sync")
    assert (await agent.driver.graph.aget_state(config)).next == ("intake",)
    assert (await agent.plans(run))[0]["results"] is None


async def _strict(agent: Agent) -> None:
    """From now on every credit needs a person."""
    ask = agent.mandate.ask_above.model_copy(update={"count": 0})
    await agent.grant(agent.mandate.model_copy(update={"ask_above": ask}))
