"""A Postgres of a test's own, to be killed, copied, put back from an older copy, or promoted.

The shared server of the test run must not be harmed; this one starts in a second or two and is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from remit.checkpoints import embedded, migrate
from remit.checkpoints import embedded_access as access
from remit.checkpoints import embedded_system as system
from remit.checkpoints.embedded_access import Urls
from tests.fixtures import eventually


@dataclass
class Cluster:
    """A running server with one migrated database, marked as a sandbox of the tenant `test`."""

    home: Path
    urls: Urls

    @property
    def data(self) -> Path:
        """Where the server keeps its files."""
        record = access.read_record(self.home)
        assert record is not None
        return record.data

    async def owner(self) -> psycopg.AsyncConnection:
        """A connection of the role that owns the tables."""
        return await psycopg.AsyncConnection.connect(self.urls.owner_url, autocommit=True)

    async def superuser(self) -> psycopg.AsyncConnection:
        """A connection that may change the server's settings."""
        return await access._superuser(*embedded._live(self.home))

    async def up(self) -> None:
        """Starts it, after whatever end it had."""
        self.urls = await embedded.up(self.home)

    async def down(self) -> None:
        """Stops it in good order."""
        assert await embedded.down(self.home)

    async def kill(self) -> None:
        """SIGKILL of the postmaster; returns when every process of the server is gone."""
        server = system.postmaster(self.data)
        assert server is not None
        family = psutil.Process(server.pid).children(recursive=True)
        os.kill(server.pid, signal.SIGKILL)

        async def gone() -> bool:
            return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)

        await eventually(gone, 30.0)

    async def copied(self) -> Path:
        """A file copy of the whole server, which is stopped for it and started again."""
        await self.down()
        copy = self.home / "backup"
        _copy(self.data, copy)
        await self.up()
        return copy

    async def put_back(self, copy: Path) -> None:
        """The server as it was when it was copied."""
        await self.down()
        shutil.rmtree(self.data)
        _copy(copy, self.data)
        await self.up()

    async def promoted(self) -> None:
        """Recovered to the end of its own log, as after a failover: the same data on a timeline of its own."""
        await self.down()
        owner = self.data.stat()
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("restore_command = 'false'\n")
        mark = self.data / "recovery.signal"
        mark.touch()
        os.chown(mark, owner.st_uid, owner.st_gid)
        await self.up()

        async def writable() -> bool:
            async with await self.owner() as connection:
                row = await (await connection.execute("SELECT pg_is_in_recovery()")).fetchone()
                return row == (False,)

        await eventually(writable, 30.0)


def _copy(source: Path, target: Path) -> None:
    """With modes, and with the owners where this process may give them."""
    shutil.copytree(source, target, symlinks=True)
    for path in (source, *source.rglob("*")):
        found, copy = path.lstat(), target / path.relative_to(source)
        if os.geteuid() == 0:
            os.chown(copy, found.st_uid, found.st_gid, follow_symlinks=False)


@asynccontextmanager
async def own_cluster() -> AsyncIterator[Cluster]:
    """A cluster that is removed with the context. Not under pytest's own folder, which only its user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        urls = await embedded.up(home)
        try:
            await migrate(urls.owner_url, tenant="test", environment="sandbox")
            yield Cluster(home, urls)
        finally:
            await embedded.remove(home)
