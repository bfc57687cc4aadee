"""A small scheduler: two real connections whose steps (begin, call, commit) run in any order that a test wants.

A step that has to wait for the other side's lock stays where it is, as it would in life, and goes on by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.fixtures import Bench, eventually

STEPS = ("begin", "call", "commit")


async def passing(seconds: float) -> None:
    """Lets so much real time pass, and nothing else be decided by it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def waits_for(bench: Bench, holder: psycopg.AsyncConnection[Any]) -> bool:
    """Whether somebody waits for a lock of this very connection; others of the server may wait for theirs."""
    query = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    return bool(await bench.sql(query, holder.info.backend_pid))


def interleavings(names: tuple[str, str]) -> Iterator[tuple[str, ...]]:
    """Every order in which two parties can do their three steps: 20."""
    length = 2 * len(STEPS)
    for first in combinations(range(length), len(STEPS)):
        yield tuple(names[0] if place in first else names[1] for place in range(length))


@dataclass
class Party:
    """One connection with its one call in a transaction of its own; `rows` is what it was answered."""

    name: str
    connection: psycopg.AsyncConnection[dict[str, Any]]
    statement: str
    values: Sequence[object]
    commits: list[str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    _waiting: list[str] = field(default_factory=lambda: list(STEPS))
    _wanted: int = 0
    _task: asyncio.Task[None] | None = None

    def next_step(self) -> None:
        """One more of its steps may be done."""
        self._wanted += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._wanted > 0 and self._waiting:
            self._wanted -= 1
            step = self._waiting.pop(0)
            if step == "begin":
                await self.connection.execute("BEGIN")
            elif step == "commit":
                await self.connection.execute("COMMIT")
                self.commits.append(self.name)
            else:
                await self._call()

    async def _call(self) -> None:
        try:
            cursor = await self.connection.execute(self.statement.encode(), self.values)
            self.rows = await cursor.fetchall()
        except psycopg.DatabaseError as error:
            self.error = error.sqlstate or "?"

    async def rest(self, watching: psycopg.AsyncConnection[dict[str, Any]]) -> None:
        """Until it has done what it may, or waits for a lock of the other party."""
        task = self._task
        if task is None:
            return
        await asyncio.wait({task}, timeout=0.01)

        async def still() -> bool:
            if task.done():
                return True
            pid = self.connection.info.backend_pid
            row = await (
                await watching.execute("SELECT cardinality(pg_blocking_pids(%s)) AS n", [pid])
            ).fetchone()
            return row is not None and row["n"] > 0

        await eventually(still)


async def played(
    url: str, schedule: Sequence[str], calls: dict[str, tuple[str, Sequence[object]]]
) -> tuple[dict[str, Party], list[str]]:
    """Both parties after all of their steps, and the order in which they committed."""
    commits: list[str] = []

    async def connected() -> psycopg.AsyncConnection[dict[str, Any]]:
        return await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row)

    async with await connected() as one, await connected() as two, await connected() as watching:
        parties = {
            name: Party(name, connection, *call, commits)
            for (name, call), connection in zip(calls.items(), (one, two), strict=True)
        }
        for name in schedule:
            parties[name].next_step()
            for party in parties.values():
                await party.rest(watching)
        async with asyncio.timeout(10):
            await asyncio.gather(*(party._task for party in parties.values() if party._task is not None))
    return parties, commits
