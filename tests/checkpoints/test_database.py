"""The pool and the named queries: what survives a lost connection, and that every statement fits the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from pathlib import Path

import psycopg
import pytest

from remit.checkpoints import database, open_pool
from remit.checkpoints.database import Database, Row, queries
from remit.checkpoints.embedded_access import Urls
from remit.tools.doors import Doors
from remit.tools.errors import Misconfigured
from tests.fixtures import Bench, Tokens

_PARAMETER = re.compile(r"%\((\w+)\)s")


async def test_every_named_query_fits_the_schema(bench: Bench) -> None:
    """Each statement runs on the application's role; only the ledger itself may refuse the empty values."""
    unfit = {}
    async with bench.database.pool.connection() as connection:
        for name, query in queries().items():
            try:
                async with connection.transaction(force_rollback=True):
                    await connection.execute(query.encode(), dict.fromkeys(_PARAMETER.findall(query)))
            except psycopg.DatabaseError as error:
                # RMnnn: refused by a function; 23502: a NULL where a value has to be.
                if error.sqlstate != "23502" and not (error.sqlstate or "").startswith("RM"):
                    unfit[name] = str(error)
    assert unfit == {}


def test_every_named_query_has_a_name_of_its_own() -> None:
    """Of two statements under one name the first would never run."""
    text = Path(database.__file__).with_name("queries.sql").read_text()
    names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
    assert names == list(queries())


async def test_a_pool_recovers_from_killed_connections(bench: Bench, ledger_database: Urls) -> None:
    """F35: after every backend was terminated, the next statement runs on a new connection, three times in a row."""
    for _ in range(3):
        async with await psycopg.AsyncConnection.connect(ledger_database.app_url, autocommit=True) as killer:
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
            )
        assert await bench.database.row("installation") is not None


async def test_nothing_is_prepared_on_the_server(bench: Bench) -> None:
    """F34: the same statement a dozen times leaves no prepared statement behind, so transaction poolers work."""
    for _ in range(12):
        await bench.database.rows("orders", all=True)
    assert await bench.sql("SELECT name FROM pg_prepared_statements") == []


async def test_a_database_that_does_not_answer_says_what_to_do(tmp_path: Path) -> None:
    """Nobody sees a traceback because the database is not up."""
    with pytest.raises(Misconfigured, match="remit db up"):
        async with open_pool(f"postgresql:///none?host={tmp_path}&connect_timeout=1", seconds=0.5):
            pass


class Unlucky(Database):
    """A database whose first statements lose a deadlock."""

    def __init__(self, bench: Bench, losses: int) -> None:
        super().__init__(bench.database.pool)
        self.losses = losses

    async def _once(self, name: str, values: Mapping[str, object]) -> list[Row]:
        if self.losses:
            self.losses -= 1
            raise psycopg.errors.DeadlockDetected
        return await super()._once(name, values)


async def test_the_loser_of_a_deadlock_tries_again_and_not_for_ever(bench: Bench) -> None:
    """The server undid the loser's one statement wholly, so it may run again; three times lost is an error."""
    assert await Unlucky(bench, 2).row("installation") is not None
    with pytest.raises(psycopg.errors.DeadlockDetected):
        await Unlucky(bench, 3).row("installation")


async def test_work_per_action_does_not_grow_with_the_batch(
    bench: Bench, tokens: Tokens, affected: list[str]
) -> None:
    """I11: a send costs two statements per group and two per batch; one call per action and two reads per batch. The
    receivers' doors are looked at besides, once a second at most: with a clock that stands still, once."""
    bench.transport.guard(Doors(bench.ledger, clock=lambda: 0.0))
    await bench.transport.call(
        "accounts", "GET", "/incidents/outage-0611", credential="accounts", seconds=5.0
    )
    group = bench.catalogue.write("issue_credit").contract.concurrency
    lease = await bench.run_over(tokens, affected)
    for subjects in (affected[:1], affected[1:8], affected[8:]):
        await bench.propose(lease, "credit", subjects)
        operations = await bench.ledger.sendable(lease.run_id, 0, 100)
        statements, calls = bench.database.statements, bench.transport.calls
        await bench.runner.send(lease, operations)
        assert bench.database.statements - statements == 2 + 2 * ceil(len(subjects) / group)
        assert bench.transport.calls - calls == len(subjects) + 2
