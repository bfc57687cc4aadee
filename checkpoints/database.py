"""One bounded pool per process, named queries, and the translation of the database's own errors. DESIGN section 11.

Connections are checked before use, so that a restart of the server or a killed backend costs one reconnect (F35), and
nothing is prepared on the server, so that transaction poolers work (F34).
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from remit.tools.errors import LeaseLost, Misconfigured, Refused, RemitError
from remit.tools.ports import POINTS, Reach, inert

Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]
Row = dict[str, Any]

_CONNECTIONS = 6
"""Per process. A worker uses two or three at once; sixty of the embedded server hold for ten processes."""

_ACQUIRE_SECONDS = 10.0

_DEADLOCK_TRIES = 3
"""Locks are taken in one order everywhere, so this is for what nobody thought of; the server undid the loser wholly."""


@cache
def queries() -> Mapping[str, str]:
    """The named statements of `queries.sql`: a line `-- name: x` starts each."""
    text = (Path(__file__).parent / "queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


@asynccontextmanager
async def open_pool(url: str, *, seconds: float = _ACQUIRE_SECONDS) -> AsyncIterator[Pool]:
    """A pool on `url` (psycopg connection string), whose connections are waited for at most `seconds`.

    Raises Misconfigured when the database cannot be reached.
    """
    pool: Pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=_CONNECTIONS,
        timeout=seconds,
        open=False,
        check=AsyncConnectionPool.check_connection,
        kwargs={"autocommit": True, "prepare_threshold": None, "row_factory": dict_row},
    )
    try:
        await pool.open(wait=True, timeout=seconds)
    except PoolTimeout as error:
        await pool.close()
        raise Misconfigured(
            "The database does not answer. Start it with `remit db up`, or correct REMIT_DATABASE_URL.",
            code="no_database",
        ) from error
    try:
        yield pool
    finally:
        await pool.close()


class Database:
    """Named queries on a pool. Each call is one statement in autocommit, so one round trip and one commit.

    `reach` is a fault hook for tests, called around each statement that may change something.
    """

    def __init__(self, pool: Pool, reach: Reach = inert) -> None:
        self.pool = pool
        self.reach = reach
        self.statements = 0

    async def rows(self, name: str, **values: object) -> list[Row]:
        """All rows of one named query."""
        if name not in POINTS:
            return await self._tried(name, values)
        before, after = POINTS[name]
        await self.reach(before)
        found = await self._tried(name, values)
        await self.reach(after)
        return found

    async def _tried(self, name: str, values: Mapping[str, object]) -> list[Row]:
        for _ in range(_DEADLOCK_TRIES - 1):
            try:
                return await self._once(name, values)
            except psycopg.errors.DeadlockDetected:
                continue
        return await self._once(name, values)

    async def _once(self, name: str, values: Mapping[str, object]) -> list[Row]:
        self.statements += 1
        try:
            async with self.pool.connection() as connection:
                cursor = await connection.execute(queries()[name], values)
                return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise translated(error) from error

    async def row(self, name: str, **values: object) -> Row | None:
        """The first row, or None."""
        found = await self.rows(name, **values)
        return found[0] if found else None

    async def value(self, name: str, **values: object) -> Any:
        """The first column of the first row, or None."""
        row = await self.row(name, **values)
        return None if row is None else next(iter(row.values()))


def translated(error: psycopg.Error) -> RemitError | psycopg.Error:
    """The database's own refusals (SQLSTATE RMnnn) as errors that people can act on; others as they are."""
    message = (error.diag.message_primary or str(error)).strip()
    match error.sqlstate or "":
        case "RM020":
            return LeaseLost(message, code="lease_lost")
        case "RM010":
            return Refused(message, code="token")
        case "RM011":
            return Refused(message, code="authority")
        case "RM012" | "RM002":
            return Refused(message, code="state")
        case _:
            return error


def json(value: object) -> Jsonb:
    """A value as jsonb."""
    return Jsonb(value)
