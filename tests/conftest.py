"""What every test may lean on: one embedded Postgres per test run, a database per test, a company per test.

Migrated databases are clones of one template, which is much cheaper than to migrate each.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from remit.checkpoints import embedded, migrate
from remit.checkpoints import embedded_access as access
from remit.checkpoints.embedded_access import Urls
from remit.sandbox.worlds import World, served_world
from tests.fixtures import Bench, Tokens, mint_tokens, opened_bench

if TYPE_CHECKING:
    from remit.tools.catalogue import Catalogue


async def _without_fsync(home: Path) -> None:
    """Nobody pulls the plug on this server, and making and dropping databases is mostly waiting for the disk."""
    async with await access._superuser(*embedded._live(home)) as superuser:
        await superuser.execute("ALTER SYSTEM SET fsync = off")
        await superuser.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def postgres_home() -> Iterator[Path]:
    """The home of a running server. Not under pytest's own folder, which only its user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        asyncio.run(embedded.up(home))
        asyncio.run(_without_fsync(home))
        yield home
        asyncio.run(embedded.remove(home))


@pytest.fixture
async def empty_database(postgres_home: Path) -> AsyncIterator[Urls]:
    """A new database without tables, for one test."""
    name = f"test_{secrets.token_hex(6)}"
    yield await embedded.create_database(postgres_home, name)
    await embedded.drop_database(postgres_home, name)


@pytest.fixture(scope="session")
def migrated_template(postgres_home: Path) -> str:
    """The name of a migrated database that nobody is connected to."""

    async def make() -> str:
        name = f"template_{secrets.token_hex(4)}"
        urls = await embedded.create_database(postgres_home, name)
        await migrate(urls.owner_url, tenant="test", environment="sandbox")
        return name

    return asyncio.run(make())


class Clones:
    """Clones of the template, the next one always being made while the test before it still runs."""

    def __init__(self, home: Path, template: str) -> None:
        self._home = home
        self._template = template
        self._hand = ThreadPoolExecutor(1)
        self._dropped: list[Future[None]] = []
        self._turn = Lock()
        self._next = self._begin()

    def take(self) -> tuple[str, Urls]:
        """A fresh database: its name and how to reach it."""
        # Two that ask at once, from two threads, get one each.
        with self._turn:
            ready = self._next.result()
            self._next = self._begin()
        return ready

    def drop(self, name: str) -> None:
        """Drops one in the background."""
        self._dropped.append(self._hand.submit(asyncio.run, embedded.drop_database(self._home, name)))

    def close(self) -> None:
        """Waits for everything that was begun, and raises what went wrong with it."""
        self.drop(self._next.result()[0])
        for future in self._dropped:
            future.result()
        self._hand.shutdown()

    def _begin(self) -> Future[tuple[str, Urls]]:
        return self._hand.submit(asyncio.run, self._clone(f"test_{secrets.token_hex(6)}"))

    async def _clone(self, name: str) -> tuple[str, Urls]:
        urls = await embedded.create_database(self._home, name, template=self._template)
        async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
            # A setting of the database, which a clone does not inherit.
            search = sql.SQL("ALTER DATABASE {} SET search_path = remit, public").format(sql.Identifier(name))
            await owner.execute(search)
        return name, urls


@pytest.fixture(scope="session")
def clones(postgres_home: Path, migrated_template: str) -> Iterator[Clones]:
    """Makes and drops the databases of `ledger_database`."""
    made = Clones(postgres_home, migrated_template)
    yield made
    made.close()


@pytest.fixture
def ledger_database(clones: Clones) -> Iterator[Urls]:
    """A migrated database of its own, marked as a sandbox of the tenant `test`."""
    name, urls = clones.take()
    yield urls
    clones.drop(name)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A fresh company in this process, in which nothing takes long."""
    async with served_world(tmp_path) as opened:
        await opened.control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        yield opened


@pytest.fixture
def catalogue() -> Catalogue | None:
    """The tools of `bench`; None for the credit agent's own with shorter waits. Override it in a test module."""
    return None


@pytest.fixture
async def bench(
    ledger_database: Urls, world: World, tmp_path: Path, catalogue: Catalogue | None
) -> AsyncIterator[Bench]:
    """One agent process over a fresh ledger and a fresh company."""
    async with opened_bench(
        ledger_database.app_url, tmp_path, world.urls, world.credentials, catalogue=catalogue
    ) as opened:
        yield opened


@pytest.fixture
async def tokens(bench: Bench) -> Tokens:
    """Secrets of an administrator, a support manager and a finance lead."""
    return await mint_tokens(bench.people)


@pytest.fixture
def affected(world: World) -> list[str]:
    """The subjects of `outage-0611` in this company, 24 of them, customer 104 first."""
    from remit.sandbox import dump

    incidents = {incident["id"]: incident["affected"] for incident in dump(world.home)["incidents"]}
    others = [customer for customer in incidents["outage-0611"] if customer != "c-104"]
    return [f"customer:{customer}" for customer in ["c-104", *others]]
