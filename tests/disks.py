"""A disk that is full, for real: the kernel refuses to let the journal's file grow.

As root the journal is moved to a small file system of its own. As anybody else the server's processes get a limit on
the size of a file, which the kernel enforces in the same place.
"""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit.checkpoints import embedded_system as system
from tests.clusters import Cluster

_MEGABYTE = 2**20
_LIMIT = 16 * _MEGABYTE
"""No less: the files of the write-ahead log are made with this size, and the server does not live without them."""


@dataclass(frozen=True)
class Disk:
    """The place of the journal: `fill` leaves no room in it, `free` makes some."""

    fill: Callable[[], Awaitable[None]]
    free: Callable[[], Awaitable[None]]


@asynccontextmanager
async def small_disk(cluster: Cluster) -> AsyncIterator[Disk]:
    """A place for the journal that can be full. Skips visibly where neither way exists, and fails where CI=true."""
    if os.geteuid() == 0:
        async with _own_file_system(cluster) as disk:
            if disk is not None:
                yield disk
                return
    elif hasattr(resource, "prlimit"):
        yield await _limited_files(cluster)
        return
    reason = "a full disk cannot be had here: neither a mount as root nor a limit on the size of files"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@asynccontextmanager
async def _own_file_system(cluster: Cluster) -> AsyncIterator[Disk | None]:
    place = cluster.home / f"small-{secrets.token_hex(3)}"
    place.mkdir()
    if not _ran("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)):
        yield None
        return
    try:
        owner, space = cluster.data.stat(), place / "space"
        space.mkdir(mode=0o700)
        os.chown(space, owner.st_uid, owner.st_gid)
        place.chmod(0o755)
        async with await cluster.superuser() as superuser:
            await superuser.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
            await superuser.execute(b"GRANT CREATE ON TABLESPACE small TO remit_owner")
        async with await cluster.owner() as owning:
            await owning.execute(b"ALTER TABLE remit.journal SET TABLESPACE small")
        yield _filled_by_a_file(place / "somebody-elses")
    finally:
        await cluster.down()
        assert _ran("umount", "-l", str(place))


def _ran(*argv: str) -> bool:
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def _filled_by_a_file(file: Path) -> Disk:
    async def fill() -> None:
        with file.open("wb", buffering=0) as filler:
            room = shutil.disk_usage(file.parent).free
            filler.write(b"\0" * room)

    async def free() -> None:
        file.unlink()

    return Disk(fill, free)


async def _limited_files(cluster: Cluster) -> Disk:
    """The journal is brought near the limit first, with entries that nobody reads."""

    async def limit(size: int) -> None:
        server = system.postmaster(cluster.data)
        assert server is not None
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        async with await cluster.superuser() as superuser:
            # Backends have the limit that the postmaster had when they began.
            await superuser.execute(
                b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                b" WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    async def fill() -> None:
        async with await cluster.owner() as owner:
            # Small entries, so that no page keeps room for a real one.
            await owner.execute(
                b"DO $$ BEGIN WHILE pg_relation_size('remit.journal') < 16 * 1024 * 1024 LOOP"
                b" INSERT INTO remit.journal (kind, data) SELECT 'filler', to_jsonb(repeat('x', 60))"
                b" FROM generate_series(1, 5000); END LOOP; END $$"
            )
        await limit(_LIMIT)

    return Disk(fill, lambda: limit(resource.RLIM_INFINITY))
