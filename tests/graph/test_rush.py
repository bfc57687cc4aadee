"""Five processes at once about one approval: one decision, one runner, one execution (F05, I1, I3)."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import pytest

from remit.checkpoints.embedded_access import Urls
from tests.graph.agents import FEW, Agent


@pytest.mark.slow
async def test_five_processes_that_approve_and_resume_at_once_execute_once(
    agent: Agent, ledger_database: Urls
) -> None:
    """F05: all five begin within 50 ms. One vote counts, no process repeats what another sends, the rest is told who
    was first, and the run comes to its end with one effect each."""
    run, _ = await agent.started()
    (asked,) = await agent.approvals()
    place = {
        "app_url": ledger_database.app_url,
        "home": str(agent.world.home),
        "urls": agent.world.urls,
        "credentials": agent.world.credentials,
        "mandate": agent.mandate.model_dump_json(),
        "run": run,
        "secret": agent.tokens.finance_lead,
        "approval": asked["id"],
        "set_hash": asked["set_hash"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.graph.rush_process",
        stdin=PIPE,
        stdout=PIPE,
        cwd=Path(__file__).parents[2],
    )
    said, _ = await asyncio.wait_for(process.communicate(json.dumps(place).encode() + b"\n"), 90)
    told = json.loads(said)
    moments = [one["at"] for one in told]
    assert max(moments) - min(moments) < 0.05
    assert Counter(one["decided"] for one in told) == {"granted": 1, "already_decided": 4}
    assert "held" in {one["drove"] for one in told}
    votes = await agent.bench.sql("SELECT DISTINCT person FROM remit.votes")
    assert votes == [{"person": "finance-lead"}]
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []
    assert len(agent.records()["credits"]) == FEW
