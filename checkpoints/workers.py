"""A worker's life, proved by the operating system: a file lock held until the process ends. DESIGN section 6.

SIGKILL frees the lock, SIGSTOP does not. Whoever obtains another worker's lock has proved it dead; on another host
that proof does not exist, and its lease has to run out instead.
"""

import fcntl
import os
import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from remit.checkpoints.database import Database
from remit.checkpoints.restores import watch


class Worker:
    """This process as a worker: its id and its lock, held for life. Create with `Worker.begin`."""

    def __init__(self, id_: str, lock: IO[str], home: Path, installation: str) -> None:
        self.id = id_
        self._lock = lock
        self._home = home
        self._installation = installation

    @classmethod
    async def begin(cls, database: Database, home: Path) -> "Worker":
        """Lock a new file under `home`/workers and register. The lock is never released by hand.

        Nobody who can send begins without this, so a ledger that is an older copy of itself is noticed here.
        """
        folder = home.absolute() / "workers"
        folder.mkdir(parents=True, exist_ok=True)
        id_ = f"w-{os.getpid()}-{secrets.token_hex(4)}"
        path = folder / f"{id_}.lock"
        with ExitStack() as unless_registered:
            lock = unless_registered.enter_context(path.open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            await database.rows(
                "register_worker", id=id_, host=socket.gethostname(), pid=os.getpid(), lock_path=str(path)
            )
            installation = await database.row("installation")
            assert installation is not None, "migrate() writes the one row"
            begun = cls(id_, lock, home, installation["id"])
            await begun.watch(database)
            unless_registered.pop_all()
        return begun

    async def watch(self, database: Database) -> int | None:
        """Look whether the ledger is still the one that this home knows. The restore order in force, or None."""
        return await watch(database, self._home, self._installation)

    async def bury_the_dead(self, database: Database) -> int:
        """Mark every worker of this host whose lock can be obtained as dead. Returns how many."""
        buried = 0
        for row in await database.rows("live_workers", me=self.id):
            if row["host"] == socket.gethostname() and _lock_is_free(Path(row["lock_path"])):
                await database.rows("worker_dead", id=row["id"])
                Path(row["lock_path"]).unlink(missing_ok=True)
                buried += 1
        return buried

    async def end(self, database: Database) -> None:
        """A normal end: nothing of this worker is in flight any more."""
        await database.rows("worker_dead", id=self.id)
        Path(self._lock.name).unlink(missing_ok=True)
        self._lock.close()


def _lock_is_free(path: Path) -> bool:
    # A missing file proves nothing by itself: another REMIT_HOME or a cleaned folder looks the same.
    if not path.exists():
        return False
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
