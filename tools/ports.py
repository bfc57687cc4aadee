"""The ports that other layers implement, and the rows that cross them. The runner knows nothing else of the ledger."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from remit.tools.actions import Json
from remit.tools.doors import DoorKeeper
from remit.tools.states import State


class FaultPoint(StrEnum):
    """Recovery points, by name: where a test may kill or suspend the process. Inert by default."""

    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    BEFORE_SEND = "before_send"
    AFTER_SEND = "after_send"
    AFTER_RECORD = "after_record"
    BEFORE_SETTLE = "before_settle"
    AFTER_SETTLE = "after_settle"


Reach = Callable[[FaultPoint], Awaitable[None]]


async def inert(point: FaultPoint) -> None:
    """The default of every fault hook: nothing happens."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run: a run, the fencing token of its lease, and the worker that holds it."""

    run_id: str
    token: int
    worker: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the ledger, as far as sending and judging need it."""

    id: int
    key: str
    revision: int
    step: str
    subject: str
    effect: str
    tool: str
    state: State
    intent: dict[str, Json]
    request: dict[str, Json]
    relied_on: dict[str, Json]
    policy_revision: str | None
    plan: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to one claim: an attempt with its wire key and the seconds in which it may begin, or why not."""

    operation_id: int
    refused: str | None
    attempt_id: int | None
    wire_key: str | None
    send_within: float | None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an attempt came to, and the step that the recovery table makes of it."""

    attempt_id: int
    seen: str
    response: Json
    to: State
    no_effect: bool
    closed: str | None = None
    detail: str | None = None
    gate: str | None = None
    gate_seconds: float = 0.0
    case: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """An operation whose outcome has to be looked up, with what its attempts say. Times are the database's."""

    operation_id: int
    version: int
    key: str
    tool: str
    subject: str
    intent: dict[str, Json]
    state: State
    attempt: int
    checks: int
    resend: bool
    last_send: datetime | None
    senders_ended: bool
    first_sent: datetime | None
    receipt_accepted: bool
    key_answered: bool
    """The receiver's last word under the current wire key is a failure that it keeps: a resend would only repeat it."""
    now: datetime
    company_now: datetime


@dataclass(frozen=True, slots=True)
class Settlement:
    """One look at the system of record and the step that follows. `to` None: nothing new, look again later."""

    operation_id: int
    version: int
    attempt: int
    sight: str
    source: str
    as_of: str
    complete: bool
    read_began_at: datetime
    records: list[Json]
    to: State | None
    next_seconds: float
    resend: bool = False
    closed: str | None = None
    detail: str | None = None
    case: str | None = None


class Ledger(DoorKeeper, Protocol):
    """What the runner needs of the ledger, the doors included. Every method is one round trip for the whole batch."""

    installation: str

    async def now(self) -> datetime: ...

    async def claim(
        self, lease: Lease, ids: Sequence[int], read_at: datetime, send_seconds: float, terms: dict[str, Json]
    ) -> list[Claimed]: ...

    async def may_send(self, lease: Lease, attempts: Sequence[int]) -> set[int]: ...

    async def record(self, receipts: Sequence[Receipt]) -> None: ...

    async def unsend(self, attempts: Sequence[int]) -> None: ...

    async def due(self, run_id: str | None, limit: int) -> list[Due]: ...

    async def settle(self, settlements: Sequence[Settlement]) -> int: ...
