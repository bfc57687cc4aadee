"""Workers by the dozen: this process has imported everything and forks one standing worker for each line it reads.

It has no loop, no thread and no connection when it forks, so a child begins like a fresh `remit work`, only without
the seconds of importing. The child runs the console's own standing worker over the console's own services, with
shorter waits, and dies by SIGKILL when it has passed so many statements, calls and checkpoints (`moment`), or so many
of the runner's points of sending (`point`); 0 is never.

Lines in: {worker, moment, point, home, url, log}. Lines out: {worker, pid} when it begins, {worker, pid, code} when it
has ended, code being negative for a signal.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import sys
import traceback
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from remit.checkpoints import Sweep
from remit.console import work
from remit.console.services import Services
from remit.console.settings import Settings
from remit.graph import Driver, OpenAIModel
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Budget
from remit.tools.errors import RemitError
from remit.tools.ports import FaultPoint, Reach
from tests.fixtures import quick_catalogue
from tests.graph.driver_process import Moments

TENANT = "chaos"
UNREACHABLE, FAULTY = 69, 70
"""Exit codes of a worker that could not begin since a part was away, and of one that broke by itself."""

_LEASE_SECONDS = 5.0

Place = dict[str, Any]


def chaos_catalogue() -> Catalogue:
    """The credit agent's tools. Every kill costs an attempt, so budgets are larger; the receivers' own bounds are not
    smaller than a loaded machine keeps them."""
    return quick_catalogue(timeout=1.0, visible_within=2.0, budget=Budget(attempts=50, seconds=3_600.0))


class _Everything(Sweep):
    """Finds runs that were started and that nobody has taken yet, too: their starters are dead or elsewhere."""

    async def ready_runs(self) -> list[str]:
        untaken = "SELECT r.id FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id WHERE l.token = 0 ORDER BY r.id"
        async with self._database.pool.connection() as connection:
            cursor = await connection.execute(untaken)
            fresh = [row["id"] for row in await cursor.fetchall()]
        return fresh + await super().ready_runs()


_SENDING = frozenset(
    {
        *(FaultPoint.BEFORE_CLAIM, FaultPoint.AFTER_CLAIM, FaultPoint.BEFORE_SEND),
        *(FaultPoint.AFTER_SEND, FaultPoint.AFTER_RECORD),
    }
)


def _sending(reach: Reach, last: int) -> Reach:
    """Ends this process at its n-th point of sending. Every sweep passes many others, so they do not count."""
    # Coming to a point and leaving it are two moments.
    counted = Moments(2 * last - 1).around(reach)

    async def reached(point: FaultPoint) -> None:
        await (counted if point in _SENDING else reach)(point)

    return reached


class _Services(Services):
    """The console's, counting what this process does."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, ending: work.Ending, place: Place) -> None:
        super().__init__(settings, stack, _sending(ending.reach, place["point"]))
        self._catalogue = chaos_catalogue()
        self._moments = Moments(place["moment"])
        self._parent = os.getppid()
        self._counted = False

    async def sweep(self) -> Sweep:
        if os.getppid() != self._parent:
            os._exit(UNREACHABLE)
        if not self._counted:
            self._counted = True
            database, transport = await self.database(), await self.transport()
            database.rows = self._moments.around(database.rows)  # type: ignore[assignment, method-assign]
            transport.call = self._moments.around(transport.call)  # type: ignore[assignment, method-assign]
        return _Everything(await self.database(), await self.runner(), await self.worker())

    async def driver(self, purpose: str) -> Driver:
        new = purpose not in self._drivers
        driver = await super().driver(purpose)
        if new:
            saver: Any = driver.graph.checkpointer
            saver.aput = self._moments.around(saver.aput)
            saver.aput_writes = self._moments.around(saver.aput_writes)
        return driver


async def stand(place: Place) -> int:
    """A standing worker from its beginning to its end."""
    # The console's pauses suit a person who watches, and a machine that has other things to do.
    work._TICK, work._LONGEST = 0.02, 0.2
    settings = Settings(
        home=Path(place["home"]),
        tenant=TENANT,
        database_url=SecretStr(place["url"]),
        lease_seconds=_LEASE_SECONDS,
    )
    ending = work.Ending()
    try:
        async with AsyncExitStack() as stack:
            services = _Services(settings, stack, ending, place)
            await services.sweep()
            ending.listen()
            await work.Standing(services, ending).until_ended()
    except (RemitError, psycopg.OperationalError):
        traceback.print_exc()
        return UNREACHABLE
    return 0


def _child(place: Place) -> None:
    """Never returns."""
    code = FAULTY
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(place["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        code = asyncio.run(stand(place))
    except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened, and its log says what
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _say(**told: Any) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


class Server:
    """Forks and reaps, one thing at a time."""

    def __init__(self) -> None:
        self._workers: dict[int, int] = {}
        self._text = b""

    def serve(self) -> None:
        """Until its input ends; then every worker is killed, so that none outlives a test."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    os.read(woken, 4_096)
                    self._reap()
                if 0 in ready and not self._read():
                    break
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)

    def _read(self) -> bool:
        """False at the end of the input."""
        read = os.read(0, 65_536)
        *lines, self._text = (self._text + read).split(b"\n")
        for line in lines:
            self._fork(json.loads(line))
        return bool(read)

    def _fork(self, place: Place) -> None:
        pid = os.fork()
        if pid == 0:
            _child(place)
        self._workers[pid] = place["worker"]
        _say(worker=place["worker"], pid=pid)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _say(worker=self._workers.pop(pid), pid=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Imports what a worker would only import when it needs it, then serves."""
    # Made for what it imports, the slowest part of all; it connects to nobody.
    OpenAIModel("http://127.0.0.1:9", "nobody", "nothing")
    _say(ready=os.getpid())
    Server().serve()


if __name__ == "__main__":
    main()
