"""A run that is under way is looked at, and nothing waits for anything: only async savers in async code (F38)."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import remit.checkpoints
import remit.console
import remit.graph
from remit.graph.model import Reply
from remit.graph.state import initial
from remit.tools.ports import Lease
from tests.fixtures import eventually
from tests.graph.agents import Agent, Script

WATCHDOG_SECONDS = 5.0


async def looked(agent: Agent, run: str) -> tuple[str, ...]:
    """Everything that a status page reads, under the watchdog; returns the nodes that come next in the thread."""
    async with asyncio.timeout(WATCHDOG_SECONDS):
        row = await agent.row(run)
        config = agent.driver._config(await _lease(agent, run), row["thread"])
        snapshot, report = await asyncio.gather(agent.driver.graph.aget_state(config), agent.status())
    assert [found["id"] for found in report.runs] == [run]
    return tuple(snapshot.next)


async def _lease(agent: Agent, run: str) -> Lease:
    return Lease(run, (await agent.row(run))["token"], agent.bench.worker.id)


async def test_the_status_is_answered_at_every_step_of_a_run_that_streams(agent: Agent) -> None:
    """Between any two chunks of the stream the same thread's state and the facts are read within five seconds (F38)."""
    run = await agent.start()
    lease = await agent.bench.leased(run)
    config = agent.driver._config(lease, 1)
    async with asyncio.timeout(30):
        stream = agent.driver.graph.astream(initial(run, 0), config, durability="sync")
        seen = [await looked(agent, run) async for _ in stream]
    assert {("intake",), ("authorize",), ("execute",)} <= set(seen)


class Thinking(Script):
    """A model that is asked and does not answer until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        reply = await super().plan(messages, tools)
        await self.answers.wait()
        return reply


async def test_the_status_is_answered_while_a_node_is_in_the_middle_of_its_work(agent: Agent) -> None:
    """Five looks at once, while the driver holds the lease and its model thinks; then the run goes on (F38)."""
    model = Thinking()
    driver = agent.driver_with(model=model)
    run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
    driving = asyncio.create_task(driver.drive(run))

    async def thinks() -> bool:
        return bool(model.asked)

    await eventually(thinks)
    async with asyncio.timeout(WATCHDOG_SECONDS):
        await asyncio.gather(*(looked(agent, run) for _ in range(5)))
    assert not driving.done()
    model.answers.set()
    assert (await driving).status == "PAUSED_AWAITING_APPROVAL"


async def test_a_synchronous_read_in_async_code_is_an_error_and_no_deadlock(agent: Agent) -> None:
    """Where somebody forgets it all the same, the saver refuses at once instead of waiting for itself (F38)."""
    run, _ = await agent.started()
    config = agent.driver._config(await _lease(agent, run), 1)
    with pytest.raises(asyncio.InvalidStateError):
        agent.driver.graph.get_state(config)


SYNCHRONOUS = {"invoke", "stream", "batch", "get_state", "get_state_history", "update_state"}
SAVERS = {"PostgresSaver", "MemorySaver", "InMemorySaver", "SqliteSaver", "ConnectionPool"}


def test_no_module_uses_a_synchronous_saver_pool_or_call_of_a_graph() -> None:
    """Only the migration's tables are made by the synchronous saver, in a thread of its own (F38)."""
    found = set()
    for package in (remit.graph, remit.checkpoints, remit.console):
        (folder,) = package.__path__
        for file in Path(folder).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                called = (
                    node.func.attr
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    else ""
                )
                if called in SYNCHRONOUS:
                    found.add((file.name, called))
                if isinstance(node, ast.ImportFrom):
                    found |= {(file.name, name.name) for name in node.names if name.name in SAVERS}
    assert found == {("migrate.py", "PostgresSaver")}
