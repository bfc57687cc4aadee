"""`remit work`: the standing worker. It sweeps, and carries on every run that can be carried on.

Keeps the promise of a clean end: asked to stop, it claims nothing more, finishes what it sent, and lets its run go.
"""

import asyncio
import signal
import time
from contextlib import suppress
from typing import Annotated

import psycopg
import typer

from remit.console import carrying
from remit.console.edge import go
from remit.console.render import many
from remit.console.screen import complain, say, stuck_warning
from remit.console.services import Services, opened
from remit.console.telling import telling
from remit.tools.errors import LeaseLost, RemitError
from remit.tools.ports import FaultPoint

_TICK, _LONGEST = 0.5, 5.0
"""Seconds between two passes; doubled while a pass finds nothing to do or fails."""

_HEARTBEAT = 60.0
"""Seconds between two lines that say that the worker lives."""

_GRACE = 20.0
"""Seconds for what was begun to come to its end: a batch in groups, each with its own deadline of a few seconds."""


def work(
    once: Annotated[bool, typer.Option("--once", help="One pass over everything, then end.")] = False,
) -> None:
    """Sweep and carry runs on, until SIGTERM or Ctrl-C. Exit 0."""
    go(_work(once))


async def _work(once: bool) -> None:
    ending = Ending()
    async with opened(reach=ending.reach, acts=True) as services:
        worker = await services.worker()
        ending.listen()
        say(f"Worker {worker.id} begins. SIGTERM or Ctrl-C ends it.")
        standing = Standing(services, ending)
        async with telling(services):
            await (standing.pass_once() if once else standing.until_ended())
        if once:
            await standing.tell_stuck()
        say(f"Worker {worker.id} ends: {standing.tally()}.")


class Ending:
    """The wish to end, and where it takes hold of a run: before its next claim, when nothing is in flight."""

    def __init__(self) -> None:
        self.wished = asyncio.Event()
        self.driving: asyncio.Task[object] | None = None

    def listen(self) -> None:
        """From now on SIGTERM and SIGINT are wishes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(RuntimeError, ValueError):
                loop.add_signal_handler(number, self._wish)

    def _wish(self) -> None:
        self.wished.set()
        if self.driving is not None:
            asyncio.get_running_loop().call_later(_GRACE, self.driving.cancel)

    async def rest(self, seconds: float) -> None:
        """At most `seconds`, and no longer than until the end is wished for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wished.wait(), seconds)

    async def reach(self, point: FaultPoint) -> None:
        """The fault points: a claim that was not made yet is not made any more."""
        if point is FaultPoint.BEFORE_CLAIM and self.wished.is_set() and self.driving is not None:
            self.driving.cancel()
            await asyncio.Event().wait()


class Standing:
    """One worker's passes, and what they came to."""

    def __init__(self, services: Services, ending: Ending) -> None:
        self._services = services
        self._ending = ending
        self._swept = 0
        self._driven = 0
        self._said = time.monotonic()

    def tally(self) -> str:
        return f"{many(self._swept, 'row')} swept, {many(self._driven, 'run')} carried on"

    async def until_ended(self) -> None:
        """Passes with a pause between them, which grows while there is nothing to do."""
        pause = _TICK
        while not self._ending.wished.is_set():
            try:
                moved = await self.pass_once()
            except (RemitError, psycopg.Error) as error:
                # A receiver or the database is away or full: the worker stays, says so, and comes back more slowly.
                complain(_why(error))
                moved = 0
            pause = _TICK if moved else min(pause * 2, _LONGEST)
            await self._heartbeat()
            await self._ending.rest(pause)

    async def pass_once(self) -> int:
        """One sweep, then every run that is ready, one after the other; between two of them it sweeps again."""
        moved = await self._sweep()
        for run_id in await (await self._services.sweep()).ready_runs():
            if self._ending.wished.is_set():
                break
            moved += await self._drive(run_id)
            await self._sweep()
        return moved

    async def _sweep(self) -> int:
        swept = await (await self._services.sweep()).once()
        self._swept += swept
        return swept

    async def _drive(self, run_id: str) -> int:
        """1 when the run moved; 0 when it stands as before or somebody else has it."""
        before = await carrying.standing(await self._services.database(), run_id)
        self._ending.driving = task = asyncio.ensure_future(
            carrying.drive(self._services, run_id, by_person=False)
        )
        try:
            end = await asyncio.shield(task)
        except LeaseLost:
            return 0
        except (RemitError, psycopg.Error) as error:
            # One run that cannot go on keeps no other one waiting.
            complain(f"{run_id}: {_why(error)}")
            return 0
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()
                raise
            say(f"{run_id}: let go; any worker takes it up where it stands.")
            return 0
        finally:
            self._ending.driving = None
        self._driven += 1
        say(f"{run_id}: {end.status}. {end.reason}")
        return int((end.status, end.waits) != (before.status, before.waits))

    async def _heartbeat(self) -> None:
        if time.monotonic() - self._said < _HEARTBEAT:
            return
        self._said = time.monotonic()
        say(f"At work: {self.tally()}.")
        await self.tell_stuck()

    async def tell_stuck(self) -> None:
        """Complains where recovery seems to have lost something, and never ends over it."""
        with suppress(RemitError, psycopg.Error):
            if (warning := await stuck_warning(await self._services.database())) is not None:
                complain(warning)


def _why(error: RemitError | psycopg.Error) -> str:
    """What keeps a pass from going on. Nothing was begun that is not recorded, so to wait is safe."""
    if isinstance(error, RemitError):
        return str(error)
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.DiskFull):
        return "The database is away; this worker waits for it."
    said = (error.diag.message_primary or type(error).__name__).strip()
    return f"The database cannot write ({said}); this worker waits. Make room, or see `remit db status`."
