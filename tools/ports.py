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
    """Where a test may kill or suspend the process: a pair around every commit and every call. Inert by default.

    Closed: a statement that may change something and has no pair fails a test, and so does a pair that no run reaches.
    """

    # The calls: receivers, policy, the model.
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_POLICY = "before_policy"
    AFTER_POLICY = "after_policy"
    BEFORE_READ = "before_read"
    AFTER_READ = "after_read"
    BEFORE_SNAPSHOT = "before_snapshot"
    AFTER_SNAPSHOT = "after_snapshot"
    BEFORE_SEND = "before_send"
    AFTER_SEND = "after_send"
    BEFORE_VERIFY = "before_verify"
    AFTER_VERIFY = "after_verify"
    BEFORE_PREMISES = "before_premises"
    AFTER_PREMISES = "after_premises"
    BEFORE_CONFIRM = "before_confirm"
    AFTER_CONFIRM = "after_confirm"
    # LangGraph's checkpoint, and the results of a node.
    BEFORE_CHECKPOINT = "before_checkpoint"
    AFTER_CHECKPOINT = "after_checkpoint"
    BEFORE_WRITES = "before_writes"
    AFTER_WRITES = "after_writes"
    # The commits, each a statement of `checkpoints/queries.sql`.
    BEFORE_REGISTER_WORKER = "before_register_worker"
    AFTER_REGISTER_WORKER = "after_register_worker"
    BEFORE_WORKER_DEAD = "before_worker_dead"
    AFTER_WORKER_DEAD = "after_worker_dead"
    BEFORE_SWEPT = "before_swept"
    AFTER_SWEPT = "after_swept"
    BEFORE_WATCH_RESTORE = "before_watch_restore"
    AFTER_WATCH_RESTORE = "after_watch_restore"
    BEFORE_TIDY = "before_tidy"
    AFTER_TIDY = "after_tidy"
    BEFORE_DUE = "before_due"
    AFTER_DUE = "after_due"
    BEFORE_SETTLE = "before_settle"
    AFTER_SETTLE = "after_settle"
    BEFORE_START_RUN = "before_start_run"
    AFTER_START_RUN = "after_start_run"
    BEFORE_ACQUIRE_LEASE = "before_acquire_lease"
    AFTER_ACQUIRE_LEASE = "after_acquire_lease"
    BEFORE_CARRY_VERSION = "before_carry_version"
    AFTER_CARRY_VERSION = "after_carry_version"
    BEFORE_HEARTBEAT = "before_heartbeat"
    AFTER_HEARTBEAT = "after_heartbeat"
    BEFORE_NEW_THREAD = "before_new_thread"
    AFTER_NEW_THREAD = "after_new_thread"
    BEFORE_RELEASE_RUN = "before_release_run"
    AFTER_RELEASE_RUN = "after_release_run"
    BEFORE_STORE_PLAN = "before_store_plan"
    AFTER_STORE_PLAN = "after_store_plan"
    BEFORE_STORE_COHORT = "before_store_cohort"
    AFTER_STORE_COHORT = "after_store_cohort"
    BEFORE_STORE_STATEMENTS = "before_store_statements"
    AFTER_STORE_STATEMENTS = "after_store_statements"
    BEFORE_STORE_PROPOSALS = "before_store_proposals"
    AFTER_STORE_PROPOSALS = "after_store_proposals"
    BEFORE_STORE_RESULTS = "before_store_results"
    AFTER_STORE_RESULTS = "after_store_results"
    BEFORE_REOPEN_STALE = "before_reopen_stale"
    AFTER_REOPEN_STALE = "after_reopen_stale"
    BEFORE_PROPOSE = "before_propose"
    AFTER_PROPOSE = "after_propose"
    BEFORE_RESOLVE_PROPOSALS = "before_resolve_proposals"
    AFTER_RESOLVE_PROPOSALS = "after_resolve_proposals"
    BEFORE_JUDGE = "before_judge"
    AFTER_JUDGE = "after_judge"
    BEFORE_KEEP_CONTEXT = "before_keep_context"
    AFTER_KEEP_CONTEXT = "after_keep_context"
    BEFORE_COUNT_SILENCE = "before_count_silence"
    AFTER_COUNT_SILENCE = "after_count_silence"
    BEFORE_FALL_BACK = "before_fall_back"
    AFTER_FALL_BACK = "after_fall_back"
    BEFORE_POLICY_SILENT = "before_policy_silent"
    AFTER_POLICY_SILENT = "after_policy_silent"
    BEFORE_CLOSE_PENDING = "before_close_pending"
    AFTER_CLOSE_PENDING = "after_close_pending"
    BEFORE_ASK_APPROVALS = "before_ask_approvals"
    AFTER_ASK_APPROVALS = "after_ask_approvals"
    BEFORE_START_HOLDS = "before_start_holds"
    AFTER_START_HOLDS = "after_start_holds"
    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    BEFORE_MAY_SEND = "before_may_send"
    AFTER_MAY_SEND = "after_may_send"
    BEFORE_RECORD = "before_record"
    AFTER_RECORD = "after_record"
    BEFORE_UNSEND = "before_unsend"
    AFTER_UNSEND = "after_unsend"
    BEFORE_PUT_OFF = "before_put_off"
    AFTER_PUT_OFF = "after_put_off"
    BEFORE_CLEAR_GATES = "before_clear_gates"
    AFTER_CLEAR_GATES = "after_clear_gates"
    BEFORE_MINT_TOKEN = "before_mint_token"  # noqa: S105 - the name of a point
    AFTER_MINT_TOKEN = "after_mint_token"  # noqa: S105 - the name of a point
    BEFORE_REVOKE_TOKEN = "before_revoke_token"  # noqa: S105 - the name of a point
    AFTER_REVOKE_TOKEN = "after_revoke_token"  # noqa: S105 - the name of a point
    BEFORE_GRANT_MANDATE = "before_grant_mandate"
    AFTER_GRANT_MANDATE = "after_grant_mandate"
    BEFORE_REVOKE_MANDATE = "before_revoke_mandate"
    AFTER_REVOKE_MANDATE = "after_revoke_mandate"
    BEFORE_DECIDE = "before_decide"
    AFTER_DECIDE = "after_decide"
    BEFORE_UNAPPROVE = "before_unapprove"
    AFTER_UNAPPROVE = "after_unapprove"
    BEFORE_EDIT = "before_edit"
    AFTER_EDIT = "after_edit"
    BEFORE_STOP = "before_stop"
    AFTER_STOP = "after_stop"
    BEFORE_FREEZE = "before_freeze"
    AFTER_FREEZE = "after_freeze"
    BEFORE_LIFT = "before_lift"
    AFTER_LIFT = "after_lift"
    BEFORE_CANCEL_STOPPED = "before_cancel_stopped"
    AFTER_CANCEL_STOPPED = "after_cancel_stopped"
    BEFORE_RESTORED = "before_restored"
    AFTER_RESTORED = "after_restored"
    BEFORE_VERIFY_RESTORED = "before_verify_restored"
    AFTER_VERIFY_RESTORED = "after_verify_restored"
    BEFORE_CANCEL_HOLDS = "before_cancel_holds"
    AFTER_CANCEL_HOLDS = "after_cancel_holds"
    BEFORE_RELEASE_HOLDS = "before_release_holds"
    AFTER_RELEASE_HOLDS = "after_release_holds"
    BEFORE_RESCHEDULE_HOLDS = "before_reschedule_holds"
    AFTER_RESCHEDULE_HOLDS = "after_reschedule_holds"
    BEFORE_MAY_SEE = "before_may_see"
    AFTER_MAY_SEE = "after_may_see"
    BEFORE_RESOLVE_CASE = "before_resolve_case"
    AFTER_RESOLVE_CASE = "after_resolve_case"
    BEFORE_REPLAY_CASE = "before_replay_case"
    AFTER_REPLAY_CASE = "after_replay_case"
    BEFORE_CLOSE_CASE = "before_close_case"
    AFTER_CLOSE_CASE = "after_close_case"
    BEFORE_STORE_PROBE = "before_store_probe"
    AFTER_STORE_PROBE = "after_store_probe"
    BEFORE_FORGET = "before_forget"
    AFTER_FORGET = "after_forget"
    BEFORE_ADVANCE_CLOCK = "before_advance_clock"
    AFTER_ADVANCE_CLOCK = "after_advance_clock"
    BEFORE_RECEIVE_EVENT = "before_receive_event"
    AFTER_RECEIVE_EVENT = "after_receive_event"
    BEFORE_COUNT_REFUSED_EVENTS = "before_count_refused_events"
    AFTER_COUNT_REFUSED_EVENTS = "after_count_refused_events"
    BEFORE_KNOCK = "before_knock"
    AFTER_KNOCK = "after_knock"
    BEFORE_NOTE_ANSWER = "before_note_answer"
    AFTER_NOTE_ANSWER = "after_note_answer"
    BEFORE_TAKE_NOTICES = "before_take_notices"
    AFTER_TAKE_NOTICES = "after_take_notices"
    BEFORE_NOTICES_TOLD = "before_notices_told"
    AFTER_NOTICES_TOLD = "after_notices_told"
    BEFORE_NOTICES_FAILED = "before_notices_failed"
    AFTER_NOTICES_FAILED = "after_notices_failed"


Reach = Callable[[FaultPoint], Awaitable[None]]


async def inert(point: FaultPoint) -> None:
    """The default of every fault hook: nothing happens."""


POINTS: dict[str, tuple[FaultPoint, FaultPoint]] = {
    point.value.removeprefix("before_"): (point, FaultPoint(point.value.replace("before_", "after_", 1)))
    for point in FaultPoint
    if point.value.startswith("before_")
}
"""By act: the point before it and the one after it."""


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
