"""I11: bytes per checkpoint and work per action do not grow with the subjects; batches are used throughout."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from remit.checkpoints import embedded
from remit.policies import EmbeddedEngine
from remit.sandbox import world as worlds
from remit.sandbox.worlds import served_world
from remit.tools.questions import BATCH
from tests.fixtures import mint_tokens, opened_bench
from tests.graph.agents import Agent, campaign

SOME, MANY = 10, 5_000


@dataclass
class Used:
    """What one stretch of a run took."""

    statements: int
    questions: int
    http: int


@dataclass
class Meter:
    """Counts from the moment that it was made."""

    agent: Agent

    def __post_init__(self) -> None:
        self._before = self._now()

    def _now(self) -> tuple[int, int, int]:
        bench = self.agent.bench
        return bench.database.statements, self.agent.policy.questions, bench.transport.calls

    def used(self) -> Used:
        return Used(*(now - before for now, before in zip(self._now(), self._before, strict=True)))


Sized = Callable[[int], Awaitable[Agent]]


@pytest.fixture
async def sized(
    postgres_home: Path,
    migrated_template: str,
    tmp_path: Path,
    engine: EmbeddedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Sized]:
    """Agents, each with a ledger and a company of its own in which so many customers are affected."""
    async with AsyncExitStack() as stack:

        async def make(number: int) -> Agent:
            customers = tuple(f"c-{n}" for n in range(104, 104 + number))
            monkeypatch.setattr(worlds, "CUSTOMERS", customers)
            monkeypatch.setattr(worlds, "_sample", lambda *_: sorted(customers))
            home, name = tmp_path / str(number), f"sized_{secrets.token_hex(6)}"
            world = await stack.enter_async_context(served_world(home))
            urls = await embedded.create_database(postgres_home, name, template=migrated_template)
            stack.push_async_callback(embedded.drop_database, postgres_home, name)
            # A setting of the database, which a clone does not inherit.
            async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
                search = sql.SQL("ALTER DATABASE {} SET search_path = remit, public").format(
                    sql.Identifier(name)
                )
                await owner.execute(search)
            opened = opened_bench(urls.app_url, home, world.urls, world.credentials)
            bench = await stack.enter_async_context(opened)
            return await Agent.made(bench, world, await mint_tokens(bench.people), engine, number)

        yield make


async def bytes_by_step(agent: Agent, run: str) -> list[int]:
    """What LangGraph keeps for each checkpoint of a run's thread, in order: row, blobs and writes."""
    rows = await agent.bench.sql(
        """
        SELECT octet_length(c.checkpoint::text) + octet_length(c.metadata::text)
             + coalesce((SELECT sum(octet_length(b.blob)) FROM checkpoint_blobs b WHERE b.thread_id = c.thread_id
                         AND b.version = c.checkpoint -> 'channel_versions' ->> b.channel), 0)
             + coalesce((SELECT sum(octet_length(w.blob)) FROM checkpoint_writes w WHERE w.thread_id = c.thread_id
                         AND w.checkpoint_id = c.checkpoint_id), 0) AS bytes
        FROM checkpoints c WHERE c.thread_id = %s ORDER BY c.checkpoint_id""",
        f"{run}/1",
    )
    return [int(row["bytes"]) for row in rows]


@pytest.mark.slow
async def test_checkpoints_and_work_are_as_large_for_5000_subjects_as_for_10(sized: Sized) -> None:
    """F36: step by step within a few bytes; and what grows with the cohort grows by the batch, not by the subject."""
    sizes, used = {}, {}
    for number in (SOME, MANY):
        agent = await sized(number)
        meter = Meter(agent)
        run, end = await agent.started()
        # Ten credits need no person; of the many, all credits and messages wait for one.
        assert end.paused
        assert await agent.bench.sql(
            "SELECT count(*) AS count, bool_or(state = 'CLOSED') AS closed FROM remit.operations"
        ) == [{"count": 3 * number, "closed": False}]
        sizes[number], used[number] = await bytes_by_step(agent, run), meter.used()
    assert len(sizes[SOME]) == len(sizes[MANY]) >= 8
    # Longer numbers, and one more kind of wait; a single byte for each subject would be eighty times as much.
    assert max(abs(few - many) for few, many in zip(sizes[SOME], sizes[MANY], strict=True)) <= 64
    assert max(sizes[MANY]) < 4_000
    batches = 3 * MANY // BATCH
    assert used[MANY].questions <= batches + 1
    assert used[MANY].statements - used[SOME].statements <= 12 * batches
    assert used[MANY].http - used[SOME].http <= 6 * batches


@campaign
async def test_a_campaign_of_24_takes_few_statements_questions_and_calls_per_action(agent: Agent) -> None:
    """72 actions: one call each, and everything around them in batches. The bounds are the measures, rounded up."""
    meter = Meter(agent)
    run, _ = await agent.approved()
    assert (await agent.finished(run)).status == "COMPLETED"
    used, actions = meter.used(), len(await agent.operations())
    assert actions == 72
    assert used.questions <= 2
    assert used.http <= 72 * 1.5
    assert used.statements <= 72 * 5
