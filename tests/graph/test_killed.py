"""SIGKILL at ten random moments, each time carried on by a new process: the same end state as without any."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.checkpoints.embedded_access import Urls
from tests.graph.agents import Agent, campaign

KILLS = 10
SEED = 611
MOMENTS = range(10, 100)
"""Statements, calls and checkpoints, each twice: an uninterrupted run passes some 700 of them."""


class Processes:
    """A process that forks drivers of one run; see `driver_process.py`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ended(self, moment: int = 0, durability: str = "sync") -> dict[str, Any]:
        """How a driver ended that kills itself at this moment; 0 is never."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{moment} {durability}\n".encode())
        line = await self._process.stdout.readline()
        assert line, "the driver process broke off"
        told: dict[str, Any] = json.loads(line)
        return told


@asynccontextmanager
async def processes(agent: Agent, app_url: str, run: str) -> AsyncIterator[Processes]:
    place = {
        "app_url": app_url,
        "home": str(agent.world.home),
        "urls": agent.world.urls,
        "credentials": agent.world.credentials,
        "mandate": agent.mandate.model_dump_json(),
        "run": run,
    }
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.graph.driver_process", stdin=PIPE, stdout=PIPE, cwd=root
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(place).encode() + b"\n")
    try:
        yield Processes(process)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)


@pytest.mark.slow
@campaign
async def test_a_run_that_is_killed_ten_times_ends_as_one_that_never_was(
    agent: Agent, ledger_database: Urls
) -> None:
    """24 credits, notes and messages, once each and in order, by the company's own checker."""
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    run, killed = await agent.start(), 0
    async with processes(agent, ledger_database.app_url, run) as drivers:
        while killed < KILLS:
            end = await drivers.ended(chance.choice(MOMENTS))
            if "signal" in end:
                assert end == {"signal": signal.SIGKILL}
                killed += 1
            else:
                assert end["status"] == "PAUSED_AWAITING_APPROVAL", end
                await agent.approve()
        end = await drivers.ended()
        if end["status"] == "PAUSED_AWAITING_APPROVAL":
            await agent.approve()
            end = await drivers.ended()
    assert (end["status"], end["reason"].partition(":")[0]) == ("COMPLETED", "completed")
    assert agent.breaches(final=True) == []
    report = await agent.status()
    assert report.counts() == {step: {"COMPLETED": 24} for step in ("credit", "annotate", "notify")}
    assert await agent.bench.cases() == []


@pytest.mark.slow
@campaign
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_killed_after_the_receiver_accepted_each_customer_is_credited_once_in_every_mode(
    agent: Agent, ledger_database: Urls, durability: str
) -> None:
    """F29: whatever LangGraph kept of the step, the ledger knows the attempt, asks the record, asks nobody twice."""
    run, _ = await agent.approved()
    async with processes(agent, ledger_database.app_url, run) as drivers:
        for _ in range(2):
            assert await drivers.ended(-1, durability) == {"signal": signal.SIGKILL}
        end = await drivers.ended(0, durability)
    assert end["status"] == "COMPLETED", end
    assert sorted(one["customer"] for one in agent.records()["credits"]) == sorted(agent.customers)
    assert agent.breaches(final=True) == []
    assert len(await agent.bench.sql("SELECT id FROM remit.approvals")) == 1
