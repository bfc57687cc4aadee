"""The nodes of the state machine. Each reads the ledger afresh, and may be executed again at any time without harm.

plan has neither transport nor credential; execute is the only node behind which something is sent; pause does nothing
but interrupt (F01), and what it is resumed with is never looked at.
"""

from typing import Any, Literal, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt

from remit.checkpoints import Database
from remit.checkpoints.database import json as jsonb
from remit.graph.asking import count_silence
from remit.graph.deps import Deps, RunContext, load_run, step_facts
from remit.graph.endings import Progress, authority_end, confirmed, ending, repeats
from remit.graph.intake import take_in
from remit.graph.judging import ask_people, judge_again, judge_open
from remit.graph.model import Model, Reply, bounded
from remit.graph.prompts import messages
from remit.graph.report import status_of
from remit.graph.sending import send_ready
from remit.graph.state import State, brief, clipped, lease_of
from remit.tools.actions import canonical_hash
from remit.tools.errors import NoAnswer, NotSent, OutcomeUnknown
from remit.tools.ports import FaultPoint
from remit.tools.states import RunStatus


class Node(Protocol):
    """A node: the state and the config of the step in, a partial update out."""

    async def __call__(self, state: State, config: RunnableConfig) -> State: ...


_ROUNDS = 50
"""Rounds of one execute step: each sends what the last one made ready. What is left is waited for as usual."""

WAITS_FOR = (
    "approval",
    "hold",
    "limit_window",
    "requirement",
    "settlement",
    "verification",
    "backoff",
    "receiver",
    "policy",
    "freeze",
    "sending",
    "ready",
)
"""Obstacles that a pause may outlast. `limit`, `case`, `requirement_lost`, `stop` and `mandate` are for assess."""


def plan_node(database: Database, model: Model, tools: list[dict[str, Any]]) -> Node:
    """Ask the model once for plan n+1. A plan that is stored already is taken as it is, so a re-executed node never
    asks twice, and a late answer changes nothing (F10, F62)."""

    async def plan(state: State, config: RunnableConfig) -> State:
        lease, number = lease_of(config), state["plan"] + 1
        run = await load_run(database, lease)
        if authority_end(run) is None and await database.row("plan", run=run.run_id, number=number) is None:
            asked = await _conversation(database, run)
            await database.reach(FaultPoint.BEFORE_MODEL)
            reply = await model.plan(asked, tools)
            await database.reach(FaultPoint.AFTER_MODEL)
            await _store_plan(database, run, number, bounded(reply))
        return State(plan=number)

    return plan


def intake_node(deps: Deps) -> Node:
    """Validate the plan's calls, expand them, read what was asked for. What cannot be read now is waited for."""

    async def intake(state: State, config: RunnableConfig) -> State:
        run = await load_run(deps.database, lease_of(config))
        stored = await deps.database.row("plan", run=run.run_id, number=state["plan"])
        if stored is None or stored["results"] is not None or authority_end(run) is not None:
            return State(waits={}, reason="")
        try:
            await take_in(deps, run, state["plan"], stored["calls"])
        except NoAnswer as error:
            await count_silence(deps, run, error, 0)
            return State(waits={"policy": 1}, reason=brief(error))
        except (NotSent, OutcomeUnknown) as error:
            return State(waits={"receiver": 1}, reason=brief(error))
        return State(waits={}, reason="")

    return intake


def authorize_node(deps: Deps) -> Node:
    """Judge what is open, ask again what must be, and ask people once about everything that needs one."""

    async def authorize(state: State, config: RunnableConfig) -> State:
        run = await load_run(deps.database, lease_of(config))
        if authority_end(run) is not None:
            return State()
        opened = await judge_open(deps, run)
        again = await judge_again(deps, run)
        await ask_people(deps, run)
        return State(reason=clipped(opened.silence or again.silence or state["reason"]))

    return authorize


def execute_node(deps: Deps) -> Node:
    """Send what nothing stands in the way of, in batches, and look at what is due, until neither moves any more."""

    async def execute(state: State, config: RunnableConfig) -> State:
        run = await load_run(deps.database, lease_of(config))
        reason = state["reason"]
        if authority_end(run) is None:
            for _ in range(_ROUNDS):
                await deps.database.rows("start_holds", run=run.run_id)
                sent = await send_ready(deps, run)
                reason = clipped(sent.silence or reason)
                looked = await deps.runner.look(run.run_id)
                if sent.moved == 0 and looked == 0:
                    break
        waits = await waits_of(deps.database, run)
        if "stop" in waits and authority_end(run) is None:
            # A stop over a tool, an effect or a subject ends this work and not the run: the model is told at assess.
            await deps.database.rows("cancel_stopped")
            waits = await waits_of(deps.database, run)
        for kind, count in state["waits"].items():
            # What intake could not read: no operation stands for it yet.
            waits[kind] = waits.get(kind, 0) + count
        return State(waits=waits, reason=reason)

    return execute


async def pause(state: State) -> State:
    """Alone in its node. What it is resumed with carries no authority and is dropped."""
    interrupt({"waits": state["waits"]})
    return State()


def assess_node(deps: Deps) -> Node:
    """Go on planning, or end by name. A run is COMPLETED only by what the systems of record show at its end."""

    async def assess(state: State, config: RunnableConfig) -> State:
        run = await load_run(deps.database, lease_of(config))
        end = ending(run, await _progress(deps.database, run, state["plan"]), deps.budget)
        if end is not None and end.status is RunStatus.COMPLETED:
            end = confirmed(end, (await status_of(deps, run.purpose)).counts())
        return (
            State(status="", reason="") if end is None else State(status=end.status.value, reason=end.reason)
        )

    return assess


def report_node(deps: Deps) -> Node:
    """Ask the systems of record one last time, and keep the counts by fact; `remit status` tells the whole."""

    async def report(state: State, config: RunnableConfig) -> State:
        run = await load_run(deps.database, lease_of(config))
        await deps.runner.look(run.run_id)
        facts: dict[str, int] = {}
        for by_fact in (await step_facts(deps.database, run.mandate, run.mandate_hash)).values():
            for fact, count in by_fact.items():
                facts[fact] = facts.get(fact, 0) + count
        return State(report=facts)

    return report


def after_execute(state: State) -> Literal["pause", "assess"]:
    """Wait for what time, receivers or people bring; everything else is for assess."""
    waits = state["waits"]
    if "stop" in waits or "mandate" in waits:
        return "assess"
    return "pause" if any(waits.get(kind) for kind in WAITS_FOR) else "assess"


def after_assess(state: State) -> Literal["plan", "report"]:
    """An end has a name."""
    return "report" if state["status"] else "plan"


async def waits_of(database: Database, run: RunContext) -> dict[str, int]:
    """What the run's operations wait for, counted by obstacle, and what stands over the whole run."""
    waits: dict[str, int] = {}
    for row in await database.rows("obstacles", run=run.run_id):
        # An order over another run whose operation this one waits for is no order over this one.
        lifted = not row["own"] and row["obstacle"] in {"stop", "mandate"}
        obstacle = "requirement" if lifted else row["obstacle"]
        waits[obstacle] = waits.get(obstacle, 0) + row["count"]
    fresh = await load_run(database, run.lease)
    if fresh.order_id is not None:
        waits["stop"] = max(waits.get("stop", 0), 1)
    elif not fresh.mandate_live:
        waits["mandate"] = max(waits.get("mandate", 0), 1)
    silent: int = await database.value("open_proposal_count", run=run.run_id)
    if silent:
        waits["receiver"] = waits.get("receiver", 0) + silent
    return waits


async def _progress(database: Database, run: RunContext, number: int) -> Progress:
    plans = {row["number"]: row for row in await database.rows("plans", run=run.run_id)}
    last = plans.get(number)
    movement: int = await database.value("movement", run=run.run_id)
    finished = last is not None and any((r or {}).get("ok") for r in (last["results"] or {}).values())
    repeated = last is not None and repeats(last, list(plans.values()), movement)
    statements = await database.rows("statements", runs=[run.run_id])
    denial = await database.row("denials", run=run.run_id)
    cases = await database.rows("cases", run=run.run_id)
    return Progress(
        plan=number,
        finished=finished,
        steps=await step_facts(database, run.mandate, run.mandate_hash),
        statements=[s for s in statements if s["plan"] == number],
        repeated_plan=repeated,
        repeated_denial=denial,
        # What a checkpoint that cannot be read left behind says nothing about the work itself.
        cases=sum(case["operation_id"] is not None for case in cases),
    )


async def _conversation(database: Database, run: RunContext) -> list[dict[str, Any]]:
    plans = await database.rows("plans", run=run.run_id)
    outcomes = {
        p["number"]: await database.rows("proposal_outcomes", run=run.run_id, plan=p["number"]) for p in plans
    }
    digest = {
        "subjects_by_step_and_fact": await step_facts(database, run.mandate, run.mandate_hash),
        "waiting": await waits_of(database, run),
        "plan": max((plan["number"] for plan in plans), default=0) + 1,
    }
    return messages(run.mandate, plans, outcomes, digest)


async def _store_plan(database: Database, run: RunContext, number: int, reply: Reply) -> None:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
    await database.rows(
        "store_plan",
        run=run.run_id,
        token=run.lease.token,
        number=number,
        hash=canonical_hash([[call.name, call.arguments] for call in reply.calls]),
        calls=jsonb(calls),
        content="(cut short)" if reply.truncated else reply.content,
        tokens=reply.tokens,
        agent_version=run.agent.version,
    )
