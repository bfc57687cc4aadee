"""`remit resume`: carry on what can carry on. With --wait it sweeps and drives until only a person can go on.

A wake-up is only a wake-up: it carries no authority, and the ledger decides what may be sent.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from remit.console import carrying, viewing
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.screen import print_json, say
from remit.console.services import Services, opened
from remit.tools.errors import LeaseLost

if TYPE_CHECKING:
    from remit.graph import RunEnd

_SHORTEST, _LONGEST = 0.1, 2.0
"""Seconds between two looks: short enough for a person who waits, doubled while nothing changes."""

_DAY = 86_400.0


def resume(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="One run; all that can carry on by default.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it ends, or only a person can go on.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="At most so many seconds.")
    ] = _DAY,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Carry a paused or interrupted run on. Exit 0 ended, 3 paused, 4 stopped or blocked, 5 open cases."""
    go(_resume(run, wait, timeout, token, as_json))


async def _resume(run: str | None, wait: bool, timeout: float, token: str | None, as_json: bool) -> int:
    async with opened(acts=True) as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        if run is not None:
            await viewer.run(run)
        wanted = [run] if run is not None else await _all_open(viewer)
        ends: list[carrying.End] = []
        for run_id in wanted:
            progress = None if as_json else carrying.Progress(database)
            waiting = _Waiting(services, run_id, run is not None, time.monotonic() + timeout, progress)
            ends.append(
                await carrying.described(services, await (waiting.until_people() if wait else waiting.once()))
            )
            if not as_json:
                carrying.tell(ends[-1])
        moving = 0 if ends else await carrying.followed(database)
    if as_json:
        print_json({"runs": [end.document() for end in ends]})
    elif not ends:
        say(*([carrying.following(moving)] if moving else []), "No run can carry on. See `remit runs`.")
    return max((end.code for end in ends), default=Exit.DONE)


async def _all_open(viewer: viewing.Viewer) -> list[str]:
    rows = await viewer.database.rows("runs", all=False, limit=1_000)
    open_ = [row for row in reversed(rows) if row["ended_at"] is None]
    return [row["id"] for row in await viewer.listed("run", open_, "id")]


@dataclass
class _Waiting:
    """One run that this command carries on."""

    services: Services
    run_id: str
    named: bool
    """Whether the person named it: then somebody else's hold is an answer, not something to pass over."""
    deadline: float
    progress: carrying.Progress | None

    async def once(self) -> "RunEnd":
        """Sweep once, then carry the run on as a person asked for it: timed gates are opened."""
        sweep = await self.services.sweep()
        await sweep.once(self.run_id)
        if not self.named:
            return await self._drive(by_person=True)
        return await carrying.drive(self.services, self.run_id, by_person=True, progress=self.progress)

    async def until_people(self) -> "RunEnd":
        """Sweep and drive until the run ends, only a person can go on, or the time is over."""
        sweep = await self.services.sweep()
        await sweep.once(self.run_id)
        end, pause = await self._drive(by_person=True), _SHORTEST
        while end.paused and not end.only_people and (left := self.deadline - time.monotonic()) > 0:
            if self.progress is not None:
                await self.progress.waiting(end)
            await asyncio.sleep(min(pause, left))
            moved = await sweep.once(self.run_id)
            before, end = end, await self._look()
            pause = _SHORTEST if moved or end.waits != before.waits else min(pause * 2, _LONGEST)
        return end

    async def _look(self) -> "RunEnd":
        database = await self.services.database()
        if await database.value("run_ready", run=self.run_id):
            return await self._drive(by_person=False)
        return await carrying.standing(database, self.run_id)

    async def _drive(self, *, by_person: bool) -> "RunEnd":
        """As `drive`, but somebody else's hold is waited for: its worker may end, or finish the run."""
        try:
            return await carrying.drive(
                self.services, self.run_id, by_person=by_person, progress=self.progress
            )
        except LeaseLost:
            return await carrying.standing(await self.services.database(), self.run_id)
