"""The tests' side of the fork server: start a worker, wait for what becomes of it, wake it up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

from tests.matrix.order import Order


@dataclass
class Forked:
    """One worker: how it ended is None while it lives, suspended or not."""

    id: int
    pid: int = 0
    stopped: bool = False
    code: int | None = None
    points: list[str] = field(default_factory=list)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Workers:
    """Forks workers. Use `forking()`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ids = count(1)
        self._forked: dict[int, Forked] = {}
        self._news = asyncio.Condition()

    async def run(self, order: Order, *, or_stop: bool = False, seconds: float = 90.0) -> Forked:
        """A new worker, when it has ended, or suspended itself where that is what is waited for."""
        worker = Forked(next(self._ids))
        self._forked[worker.id] = worker
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": worker.id, "order": asdict(order)}).encode() + b"\n")
        await self.ended(worker, or_stop=or_stop, seconds=seconds)
        return worker

    async def ended(self, worker: Forked, *, or_stop: bool = False, seconds: float = 90.0) -> None:
        """TimeoutError when that does not come about within `seconds`."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: worker.code is not None or (or_stop and worker.stopped))

    async def listen(self) -> None:
        """Takes in what the server says, until it says nothing more."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            worker = self._forked[said.pop("id")]
            async with self._news:
                for name, value in said.items():
                    setattr(worker, name, value)
                self._news.notify_all()


@asynccontextmanager
async def forking() -> AsyncIterator[Workers]:
    """A fork server, gone with all its workers when the context ends."""
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.matrix.fork_server", stdin=PIPE, stdout=PIPE, cwd=root
    )
    workers = Workers(process)
    listening = asyncio.create_task(workers.listen())
    try:
        yield workers
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)
        await listening
