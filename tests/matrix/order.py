"""The order of one process of the matrix, and the hook by which it gives itself its signal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from remit.graph import RunEnd
from remit.graph.driver import LEASE_SECONDS
from remit.tools.actions import operation_key
from remit.tools.ports import FaultPoint
from tests.matrix.company import step_of
from tests.matrix.rows import Kind, Trouble

SECONDS = 60.0
"""For one whole story; a few seconds are usual, and what hangs longer is a fault."""


@dataclass(frozen=True)
class Order:
    """What one process is to do, where everything is, and at which point it gives itself which signal."""

    app_url: str
    home: str
    urls: dict[str, str]
    credentials: dict[str, str]
    tokens: dict[str, str]
    purpose: str
    subject: str
    wanted: dict[str, dict[str, Any]]
    """Arguments of the call by kind."""
    trouble: str
    point: str = ""
    armed_by: str = ""
    signal: int = 0
    lease_seconds: float = LEASE_SECONDS
    send_seconds: float = 8.0

    @property
    def kinds(self) -> list[Kind]:
        return [Kind(name) for name in self.wanted]

    @property
    def customer(self) -> str:
        return self.subject.partition(":")[2]

    def key(self, kind: Kind) -> str:
        return operation_key(self.purpose, step_of(kind), self.subject)


class Hook:
    """The fault hook: one signal at one point, and the wish to end where the row's trouble is that."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._asked = False
        self._hit = False
        self.reached: set[FaultPoint] = set()
        self.driving: asyncio.Task[RunEnd] | None = None
        self.cancelled: Callable[[], Awaitable[None]] | None = None
        """What a person does when the worker has closed what a stop kept from being sent."""

    async def reach(self, point: FaultPoint) -> None:
        armed = not self._order.armed_by or self._order.armed_by in self.reached
        self.reached.add(point)
        if point.value == self._order.point and armed and not self._hit:
            self._hit = True
            os.kill(os.getpid(), self._order.signal)
        if point is FaultPoint.AFTER_CANCEL_STOPPED and self.cancelled is not None:
            await self.cancelled()
        ends = self._order.trouble == Trouble.ASKED_TO_END and point is FaultPoint.BEFORE_MAY_SEND
        if ends and self.driving is not None and not self._asked:
            self._asked = True
            self.driving.cancel()
            await asyncio.Event().wait()


def carried_on(order: Order) -> Order:
    """The order of the process that takes over: no signal, the usual lease."""
    return replace(order, point="", armed_by="", signal=0, lease_seconds=LEASE_SECONDS, send_seconds=8.0)
