"""One runner per run: F05. Who does not hold the lease sends nothing, writes nothing and is told who does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from langgraph.types import Command

from remit.checkpoints import Worker
from remit.checkpoints.database import translated
from remit.graph import Driver, RunEnd
from remit.graph.model import Reply
from remit.graph.state import initial
from remit.tools.errors import LeaseLost, Refused
from remit.tools.states import RunStatus
from tests.fixtures import eventually
from tests.graph.agents import LIST, Agent, Script, campaign


@pytest.fixture
async def others(agent: Agent) -> AsyncIterator[list[Driver]]:
    """Five drivers, each of a worker of its own."""
    database, home = agent.bench.database, agent.bench.home
    workers = [await Worker.begin(database, home) for _ in range(5)]
    yield [Driver(agent.deps, worker) for worker in workers]
    for worker in workers:
        await worker.end(database)


@campaign
async def test_five_drivers_of_one_approved_run_are_one_runner_and_24_credits(
    agent: Agent, others: list[Driver]
) -> None:
    """One of them obtains the lease; the others are told who has it, and nothing happens twice."""
    run, _ = await agent.approved()
    ends = await asyncio.gather(*(driver.drive(run) for driver in others), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["LeaseLost"] * 4 + ["RunEnd"]
    assert {end.code for end in ends if isinstance(end, LeaseLost)} == {"held"}
    assert (await agent.finished(run)).status == "COMPLETED"
    assert len(agent.records()["credits"]) == 24
    assert agent.breaches(final=True) == []


async def test_an_ended_run_is_not_carried_on_but_its_end_is_told(agent: Agent) -> None:
    """Its status and reason, without a lease, a model call or a statement that changes anything."""
    run, _ = await agent.approved()
    end = await agent.finished(run)
    asked = len(agent.model.asked)
    token = (await agent.row(run))["token"]
    assert await agent.drive(run, by_person=True) == RunEnd(run, end.status, end.reason, {})
    assert (len(agent.model.asked), (await agent.row(run))["token"]) == (asked, token)


async def test_an_unknown_run_is_refused_with_what_to_do(agent: Agent) -> None:
    """Not an error of the program."""
    with pytest.raises(Refused, match="remit runs"):
        await agent.drive("run-000000")


async def test_a_worker_that_was_taken_over_cannot_write_the_thread(
    agent: Agent, others: list[Driver]
) -> None:
    """Neither a checkpoint nor what a node returned: the token that it writes with is not the lease's any more."""
    run, _ = await agent.approved()
    stale = agent.driver._config(await agent.bench.leased(run, seconds=0.001), 1)
    assert (await others[0].drive(run)).paused
    before = await thread_rows(agent)
    givens: list[Any] = [Command(resume={"wake": True}), initial(run, 0)]
    for given in givens:
        with pytest.raises((psycopg.Error, LeaseLost)) as refused:
            await agent.driver.graph.ainvoke(given, stale, durability="sync")
        error = refused.value
        assert isinstance(translated(error) if isinstance(error, psycopg.Error) else error, LeaseLost)
    assert await thread_rows(agent) == before
    await agent.finished(run)
    assert agent.breaches(final=True) == []


async def test_a_worker_whose_lease_ran_out_is_told_and_writes_no_end(
    agent: Agent, others: list[Driver]
) -> None:
    """It slept in the middle of its model's answer; another finished the run meanwhile; it changes nothing."""
    asleep, awake = asyncio.Event(), asyncio.Event()

    class Slow(Script):
        async def plan(self, messages: Any, tools: Any) -> Reply:
            asleep.set()
            await awake.wait()
            return LIST

    run = await agent.start()
    slow = Driver(agent.driver_with(model=Slow())._deps, agent.bench.worker, lease_seconds=0.05)
    slow._held = _believing  # type: ignore[method-assign, assignment]
    sleeping = asyncio.create_task(slow.drive(run))
    await asleep.wait()
    await _taken(others[0], run)
    await agent.approve()
    assert (await agent.finished(run, driver=others[0])).status == "COMPLETED"
    threads, effects = await thread_rows(agent), agent.effects()
    awake.set()
    with pytest.raises(LeaseLost):
        await sleeping
    assert (await thread_rows(agent), agent.effects()) == (threads, effects)
    assert (await agent.row(run))["status"] == "COMPLETED"


async def test_a_worker_that_loses_its_lease_is_stopped_by_its_own_heartbeat(agent: Agent) -> None:
    """It does not work on to the next write: the block that it works in is ended."""

    class Never(Script):
        async def plan(self, messages: Any, tools: Any) -> Reply:
            await agent.bench.sql("SELECT remit.heartbeat(%s, %s, -1)", run, (await agent.row(run))["token"])
            await asyncio.Event().wait()
            return LIST

    run = await agent.start()
    driver = Driver(agent.driver_with(model=Never())._deps, agent.bench.worker, lease_seconds=0.3)
    with pytest.raises(LeaseLost, match="took"):
        await asyncio.wait_for(driver.drive(run), 5)


async def test_a_worker_that_is_asked_to_end_lets_its_run_go_at_once(
    agent: Agent, others: list[Driver]
) -> None:
    """A cancelled drive leaves the run RUNNING with a free lease, and any worker takes it up."""
    asked = asyncio.Event()

    class Endless(Script):
        async def plan(self, messages: Any, tools: Any) -> Reply:
            asked.set()
            await asyncio.Event().wait()
            return LIST

    run = await agent.start()
    driving = asyncio.create_task(agent.driver_with(model=Endless()).drive(run))
    await asked.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    row = await agent.row(run)
    assert (row["status"], row["held"], row["reason"].partition(":")[0]) == ("RUNNING", False, "interrupted")
    assert await agent.bench.database.value("run_ready", run=run)
    assert await agent.bench.database.rows("ready_runs") == [{"id": run}]
    assert (await others[0].drive(run)).status == "PAUSED_AWAITING_APPROVAL"


@pytest.mark.parametrize(
    ("status", "waits", "only_people"),
    [
        ("PAUSED_AWAITING_APPROVAL", {"approval": 24, "requirement": 24}, True),
        ("PAUSED", {"case": 1}, True),
        ("PAUSED", {"approval": 1, "settlement": 1}, False),
        ("PAUSED", {"requirement": 24}, False),
        ("PAUSED", {"model": 1}, False),
        ("PAUSED", {}, False),
        ("RUNNING", {"approval": 24}, False),
        ("COMPLETED", {}, False),
    ],
)
def test_only_a_person_can_go_on_where_nothing_else_is_waited_for(
    status: str, waits: dict[str, int], only_people: bool
) -> None:
    """What follows something else, what a receiver or a model brings, and what another worker does is no person's."""
    assert RunEnd("run-1", RunStatus(status), "", waits).only_people is only_people


async def thread_rows(agent: Agent) -> list[dict[str, Any]]:
    """Everything that LangGraph keeps of all threads."""
    checkpoints = await agent.bench.sql("SELECT * FROM checkpoints ORDER BY thread_id, checkpoint_id")
    return checkpoints + await agent.bench.sql(
        "SELECT thread_id, checkpoint_id, task_id, idx, channel, blob FROM checkpoint_writes ORDER BY 1, 2, 3, 4"
    )


async def _believing(_: object) -> bool:
    """A heartbeat that tells nothing, as in a process that is suspended."""
    return True


async def _taken(driver: Driver, run: str) -> RunEnd:
    """Drives as soon as the lease of whoever sleeps has run out."""
    ends: list[RunEnd] = []

    async def taken() -> bool:
        with suppress(LeaseLost):
            ends.append(await driver.drive(run))
        return bool(ends)

    await eventually(taken)
    return ends[0]
