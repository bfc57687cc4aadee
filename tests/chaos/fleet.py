"""The fleet of workers as a round sees it: begin one with a fate, wait for the next death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.fork_server import FAULTY, UNREACHABLE
from tests.chaos.schedule import Fate

ROOT = Path(__file__).parents[2]

_PATIENCE = 60.0
"""Seconds without a death before a round is given up: the slowest fate is two seconds from outside."""


@dataclass(frozen=True)
class Death:
    """How a worker ended."""

    worker: int
    code: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def faulty(self) -> bool:
        """It broke by itself, as no worker may. Asked to end before it listens, it ends by the signal."""
        return self.code not in (0, UNREACHABLE, -signal.SIGKILL, -signal.SIGTERM)

    def __str__(self) -> str:
        names = {0: "ended", UNREACHABLE: "found a part away", FAULTY: "broke"}
        return "killed" if self.killed else names.get(self.code, f"ended with {self.code}")


class Fleet:
    """Workers of one round, forked by one server. `url` is the application's; the company is the home's."""

    def __init__(self, server: Process, home: Path, url: str) -> None:
        self._server = server
        self._home = home
        self._url = url
        self._alive: dict[int, int] = {}
        self._fates: dict[int, Fate] = {}
        self._deaths: asyncio.Queue[Death] = asyncio.Queue()
        self._listening = asyncio.create_task(self._listen())

    @property
    def log(self) -> Path:
        """What the workers said."""
        return self._home / "workers.log"

    def begin(self, fate: Fate) -> None:
        assert self._server.stdin is not None
        self._fates[fate.worker] = fate
        place = {
            "worker": fate.worker,
            "moment": fate.moment,
            "point": fate.point,
            "home": str(self._home),
            "url": self._url,
            "log": str(self.log),
        }
        self._server.stdin.write(json.dumps(place).encode() + b"\n")

    async def death(self) -> Death:
        """The next one; TimeoutError when nobody dies."""
        return await asyncio.wait_for(self._deaths.get(), _PATIENCE)

    def died(self) -> list[Death]:
        """Deaths that nobody waited for."""
        return [self._deaths.get_nowait() for _ in range(self._deaths.qsize())]

    async def killed_all(self) -> list[Death]:
        """Kills whoever lives, and waits for it."""
        for worker in list(self._alive):
            self._hit(worker, signal.SIGKILL)
        deaths = []
        while self._alive:
            deaths.append(await self.death())
        return deaths + self.died()

    async def _listen(self) -> None:
        assert self._server.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await self._server.stdout.readline():
            told = json.loads(line)
            if "code" in told:
                self._alive.pop(told["worker"], None)
                self._deaths.put_nowait(Death(told["worker"], told["code"]))
            elif "worker" in told:
                self._alive[told["worker"]] = told["pid"]
                fate = self._fates[told["worker"]]
                if fate.seconds:
                    how = signal.SIGTERM if fate.polite else signal.SIGKILL
                    loop.call_later(fate.seconds, self._hit, fate.worker, how)

    def _hit(self, worker: int, how: signal.Signals) -> None:
        if worker in self._alive:
            with suppress(ProcessLookupError):
                os.kill(self._alive[worker], how)

    async def close(self) -> None:
        """No worker outlives its round."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        await asyncio.wait_for(self._server.wait(), 20)
        await self._listening


@asynccontextmanager
async def fleet(home: Path, url: str) -> AsyncIterator[Fleet]:
    """A fleet whose server has imported everything."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.fork_server", stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    assert server.stdout is not None
    assert "ready" in json.loads(await asyncio.wait_for(server.stdout.readline(), 60))
    opened = Fleet(server, home, url)
    try:
        yield opened
    finally:
        await opened.close()
