"""One door per receiver, in front of every call: who may pass now, and what each call met.

Keeps a receiver that is down, or that refuses our credential, from being called by everybody (issue 4): the database
decides for all workers, this file keeps what it said for a moment, so that a call at an open door costs no statement.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from remit.tools.errors import NotSent

CLOSED = "door_closed"
"""The code of the NotSent that a closed door answers with: nothing was asked, so nothing was learnt."""

_FRESH_SECONDS = 1.0
"""How long a look at the doors counts. Sends are checked by the database before each group whatever is known here."""


class Met(StrEnum):
    """What one call met. SILENT: no answer, half of one, 5xx, or a page; GONE: nobody listens there."""

    ANSWERED = "answered"
    SILENT = "silent"
    GONE = "gone"
    CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True)
class Door:
    """How one receiver's door stands in the database. `closed` is None while it is open."""

    name: str
    closed: Met | None
    failures: int
    detail: str


class DoorKeeper(Protocol):
    """Who decides for all workers. Every method is one statement."""

    async def doors(self) -> list[Door]:
        """Those that are known; a receiver that nobody had trouble with yet may be missing, and is open."""
        ...

    async def knock(self, receiver: str) -> bool:
        """True for exactly one of all who ask at a closed door whose probe is due."""
        ...

    async def note(self, receiver: str, met: Met, detail: str) -> Door:
        """Count what a call met; the door as it stands afterwards."""
        ...


class Doors:
    """The doors as one process sees them. `clock` gives monotonic seconds."""

    def __init__(self, keeper: DoorKeeper, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper = keeper
        self._clock = clock
        self._known: dict[str, Door] = {}
        self._looked_at: float | None = None

    async def before(self, receiver: str) -> None:
        """Let one call pass, as the probe where the door is closed. Raises NotSent with the code CLOSED."""
        if self._looked_at is None or self._clock() - self._looked_at > _FRESH_SECONDS:
            self._known = {door.name: door for door in await self._keeper.doors()}
            self._looked_at = self._clock()
        door = self._known.get(receiver)
        if door is not None and door.closed is not None and not await self._keeper.knock(receiver):
            # What was just learnt is not kept: another worker's probe may open the door at any moment.
            self._looked_at = None
            raise NotSent(
                f"The door of {receiver} is closed to all workers ({door.detail}). {remedy(door.closed)}",
                code=CLOSED,
                receiver=receiver,
            )

    async def after(self, receiver: str, met: Met, detail: str) -> None:
        """Tell the database what a call met, unless that is what it knows already."""
        door = self._known.get(receiver)
        if met is Met.ANSWERED and (door is None or (door.closed is None and door.failures == 0)):
            return
        self._known[receiver] = await self._keeper.note(receiver, met, detail)


def remedy(closed: Met) -> str:
    """What a person does about it, and what happens without."""
    if closed is Met.CREDENTIAL:
        return (
            "Put a working credential in its place, then `remit resume`; until then it is tried now and then."
        )
    return "It is tried again by itself, ever more seldom; look at the receiver, then `remit resume`."
