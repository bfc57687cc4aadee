"""The ledger's rules a second time, in memory and written from DESIGN section 6, not from the SQL.

It implements the runner's port, so that tests of the runner need no database, and it is the model that the database is
compared with after each step of the property test. Real time is `now()`; company time is real time plus `offset`.
Limits are those of a whole purpose for ever; windows, subjects and automatic budgets are left to their own tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.tools.actions import Json, wire_key
from remit.tools.doors import Door, Met
from remit.tools.errors import LeaseLost
from remit.tools.ports import Claimed, Due, Lease, Operation, Receipt, Settlement
from remit.tools.states import State

LONG_AGO = datetime.min.replace(tzinfo=UTC)
FINAL = (State.SETTLED, State.CLOSED)
SEEN_THERE = ("pending", "effective", "different", "multiple")
ANSWERED_BY_EVIDENCE = (
    "accepted_then_absent",
    "unverifiable",
    "sender_alive",
    "absence_proves_nothing",
    "budget",
)
BURNS_NOTHING = ("not_begun", "credential", "receiver_down")


@dataclass
class Try:
    """One attempt."""

    id: int
    number: int
    key: str
    worker: str
    token: int
    claimed_at: datetime
    company_time: datetime
    send_by: datetime
    timeout: timedelta
    seen: str | None = None
    ended_at: datetime | None = None
    late: bool = False
    no_effect: bool = False


@dataclass
class Entry:
    """One operation. `row` is what was proposed; `cases` are open codes; `gates` are kinds with their end."""

    id: int
    revision: int
    run: str
    row: dict[str, Any]
    verdict: str | None
    state: State
    closed: str | None
    generation: int
    obligations: dict[str, Any]
    doubt: bool = False
    keep_back: bool = False
    resend: bool = False
    version: int = 1
    checks: int = 0
    hold_until: datetime | None = None
    decide_by: datetime | None = None
    decided: bool = False
    execute_by: datetime | None = None
    due_at: datetime = LONG_AGO
    tries: list[Try] = field(default_factory=list)
    gates: dict[str, datetime] = field(default_factory=dict)
    cases: set[str] = field(default_factory=set)
    sights: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return str(self.row["key"])

    @property
    def fact(self) -> str:
        if self.state in (State.PENDING, State.CLOSED):
            return "NOT_SENT"
        if self.state is State.SETTLED:
            return "COMPLETED"
        return "UNKNOWN" if self.state is State.UNKNOWN or self.doubt else "IN_PROGRESS"


@dataclass
class Hold:
    """Who has a run: the token of its lease, the worker, and until when."""

    token: int = 0
    worker: str = ""
    until: datetime = LONG_AGO


@dataclass
class Gate:
    """One receiver's door: closed why, failures in a row, and when the next probe is due."""

    closed: Met | None = None
    failures: int = 0
    detail: str = ""
    pause: timedelta | None = None
    probe_at: datetime = LONG_AGO
    probing: bool = False


@dataclass(frozen=True)
class Order:
    """A standing stop or freeze: `value` is a run's id, a purpose, a subject, or empty for all."""

    kind: str
    scope: str
    value: str


class MemoryLedger:
    """Implements `remit.tools.ports.Ledger`, and what people and time do beside it.

    `operation_ids` by key and `attempt_ids` by operation are numbers that another ledger gave already.
    """

    def __init__(self, installation: str, purpose: str = "outage-0611") -> None:
        self.installation = installation
        self.purpose = purpose
        self.offset = timedelta()
        self.entries: dict[int, Entry] = {}
        self.holds: dict[str, Hold] = {}
        self.dead: dict[str, datetime] = {}
        self.orders: list[Order] = []
        self.mandate_over: str | None = None
        self.shares: dict[int, list[str]] = {}
        self.gates: dict[str, Gate] = {}
        self.operation_ids: dict[str, int] = {}
        self.attempt_ids: dict[int, int] = {}

    async def now(self) -> datetime:
        return datetime.now(UTC)

    # What agents and people do.

    def lease(self, run: str, worker: str, seconds: float = 600.0) -> Lease:
        """Takes the run, whoever had it: the caller has seen to it that its lease is over."""
        hold = self.holds.setdefault(run, Hold())
        hold.token, hold.worker = hold.token + 1, worker
        hold.until = datetime.now(UTC) + timedelta(seconds=seconds)
        return Lease(run, hold.token, worker)

    def propose(self, lease: Lease, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        """New operations by key; a key that has a live revision is left alone."""
        self._held(lease)
        added = {}
        for row in rows:
            earlier = [entry for entry in self.entries.values() if entry.key == row["key"]]
            if any(entry.state is not State.CLOSED for entry in earlier):
                continue
            # A person said no in this run, and an agent does not ask twice.
            asked_before = any(e.closed == "rejected" and e.run == lease.run_id for e in earlier)
            verdict = "deny" if asked_before else row["verdict"]
            denied = verdict == "deny"
            made = Entry(
                id=self.operation_ids.get(row["key"], len(self.entries) + 1),
                revision=len(earlier) + 1,
                run=lease.run_id,
                row=row,
                verdict=verdict,
                state=State.CLOSED if denied else State.PENDING,
                closed="denied" if denied else None,
                generation=max((entry.generation for entry in earlier), default=1),
                obligations=row["obligations"],
            )
            self.entries[made.id] = made
            added[made.key] = made.id
        return added

    def judge(self, lease: Lease, id_: int, verdict: str, obligations: dict[str, Any]) -> None:
        """A verdict given later; only what waits is judged."""
        self._held(lease)
        entry = self.entries[id_]
        if entry.state is State.PENDING:
            entry.verdict, entry.obligations = verdict, obligations
            entry.gates.pop("limit", None)
            if verdict == "deny":
                self._close(entry, "denied")

    def ask(self, lease: Lease) -> None:
        """Asks people about everything that needs one and was not asked yet."""
        for entry in self._pending(lease.run_id):
            if entry.verdict == "needs_approval" and entry.decide_by is None:
                entry.decide_by = self.clock() + timedelta(seconds=entry.obligations["decide_within"])

    def decide(self, id_: int, *, grant: bool) -> bool:
        """A person's word about one operation; False where there is nothing to decide any more."""
        entry = self.entries[id_]
        asked = entry.decide_by is not None and entry.decide_by > self.clock()
        if not asked or entry.decided or entry.state is not State.PENDING:
            return False
        entry.decided = True
        if grant:
            entry.execute_by = self.clock() + timedelta(seconds=entry.obligations["execute_within"])
        else:
            self._close(entry, "rejected")
        return True

    def order(self, order: Order) -> None:
        if order not in self.orders:
            self.orders.append(order)

    def lift(self, order: Order) -> None:
        """What a stop kept back is closed before the order goes; what a freeze kept back goes on."""
        self._cancel_stopped()
        self.orders.remove(order)

    def end_mandate(self, how: str) -> None:
        """`superseded` closes what waits at once, `cancelled` (a revocation) leaves that to the sweep."""
        self.mandate_over = self.mandate_over or how
        if self.mandate_over == "superseded":
            self._close_dead_mandates()

    def cancel(self, id_: int) -> bool:
        """Keeps an operation back: at once where it waits, and for good where it proves not to have been sent."""
        entry = self.entries[id_]
        waiting = entry.state is State.PENDING
        if waiting:
            self._close(entry, "cancelled")
        elif entry.state in (State.SENDING, State.UNKNOWN) and not entry.keep_back:
            entry.keep_back = True
            entry.version += 1
        return waiting

    def start_holds(self, run: str) -> None:
        for entry in self._pending(run):
            if entry.hold_until is None and self.obstacle(entry) == "hold":
                entry.hold_until = self.clock() + timedelta(seconds=entry.obligations["hold_seconds"])
                entry.version += 1

    def clear_gates(self, run: str) -> None:
        """A person says: carry on now. A limit is not cleared."""
        for entry in self.entries.values():
            if entry.run == run:
                entry.gates = {kind: until for kind, until in entry.gates.items() if kind == "limit"}

    def clock(self) -> datetime:
        """Company time."""
        return datetime.now(UTC) + self.offset

    def bury(self, worker: str) -> None:
        self.dead.setdefault(worker, datetime.now(UTC))

    def tidy(self) -> None:
        """What time alone brings about."""
        for entry in self.entries.values():
            if entry.state is State.SENDING and self._sender_lost(entry.tries[-1]):
                self._apply(entry, State.UNKNOWN)
        for entry in self.entries.values():
            if entry.state is State.PENDING and entry.verdict == "needs_approval" and self._expired(entry):
                self._close(entry, "expired")
        self._cancel_stopped()
        self._close_dead_mandates()

    # The port.

    async def claim(
        self, lease: Lease, ids: Sequence[int], read_at: datetime, send_seconds: float, terms: dict[str, Json]
    ) -> list[Claimed]:
        self._held(lease)
        if lease.worker in self.dead:
            raise LeaseLost(f"Worker {lease.worker} was found dead. Start another.", code="lease_lost")
        entries = [self.entries[id_] for id_ in sorted(ids) if self.entries[id_].run == lease.run_id]
        claimed = [self._claim(lease, entry, read_at, send_seconds, terms) for entry in entries]
        taken = [claim.operation_id for claim in claimed if claim.refused is None]
        self._wake({name for id_ in taken for name in self.shares[id_]}, len(taken))
        return claimed

    async def may_send(self, lease: Lease, attempts: Sequence[int]) -> set[int]:
        hold, now = self.holds[lease.run_id], datetime.now(UTC)
        held = hold.token == lease.token and hold.until > now
        return {
            one.id
            for entry, one in self._tries(attempts)
            if held
            and entry.state is State.SENDING
            and one is entry.tries[-1]
            and one.token == lease.token
            and one.ended_at is None
            and one.send_by > now
            and one.worker not in self.dead
            and not entry.keep_back
            and self._allowed(entry)
            and not self._shut(entry)
            and self._ordered(entry) is None
            and self.mandate_over is None
        }

    async def record(self, receipts: Sequence[Receipt]) -> None:
        by_id = {receipt.attempt_id: receipt for receipt in receipts}
        freed: list[Entry] = []
        for entry, one in sorted(self._tries(by_id), key=lambda pair: pair[0].id):
            if one.ended_at is not None:
                continue
            receipt = by_id[one.id]
            current = entry.state is State.SENDING and one is entry.tries[-1]
            one.late = not (current and self.holds[entry.run].token == one.token)
            one.seen, one.no_effect, one.ended_at = receipt.seen, receipt.no_effect, datetime.now(UTC)
            if one.late:
                self._note_late(entry, receipt)
            elif self._take(entry, receipt):
                freed.append(entry)
        self._release(freed)

    async def unsend(self, attempts: Sequence[int]) -> None:
        await self.record(
            [Receipt(id_, "not_begun", None, State.PENDING, no_effect=True) for id_ in attempts]
        )

    async def due(self, run_id: str | None, limit: int) -> list[Due]:
        now = datetime.now(UTC)
        found = [
            entry
            for entry in sorted(self.entries.values(), key=lambda e: e.due_at)
            if entry.state in (State.UNKNOWN, State.ACCEPTED)
            and entry.due_at <= now
            and run_id in (None, entry.run)
            and not self._shut(entry)
        ][:limit]
        for entry in found:
            entry.due_at = now + timedelta(seconds=5)
        return [self._due(entry, now) for entry in found]

    async def settle(self, settlements: Sequence[Settlement]) -> int:
        moved, freed = 0, []
        for settlement in sorted(settlements, key=lambda s: s.operation_id):
            entry = self.entries[settlement.operation_id]
            entry.sights.append(settlement.sight)
            if entry.version != settlement.version:
                if entry.state in (State.PENDING, State.CLOSED) and settlement.sight in SEEN_THERE:
                    entry.cases.add("seen_after_absent")
            elif self._settle(entry, settlement):
                moved += 1
                freed += [entry] if settlement.to in (State.PENDING, State.CLOSED) else []
        self._release(freed)
        return moved

    async def doors(self) -> list[Door]:
        return [Door(name, gate.closed, gate.failures, gate.detail) for name, gate in self.gates.items()]

    async def knock(self, receiver: str) -> bool:
        gate, now = self.gates.get(receiver, Gate()), datetime.now(UTC)
        if gate.closed is None or gate.probe_at > now:
            return False
        gate.probing, gate.probe_at = True, now + timedelta(seconds=30)
        return True

    async def note(self, receiver: str, met: Met, detail: str) -> Door:
        gate = self.gates.setdefault(receiver, Gate())
        if met is Met.ANSWERED:
            gate.closed, gate.failures, gate.detail, gate.probing = None, 0, "", False
        else:
            gate.failures += 1
            closing = gate.closed is None and (met is not Met.SILENT or gate.failures >= 5)
            if gate.probing or closing:
                first = timedelta(seconds=20 if met is Met.CREDENTIAL else 2)
                gate.pause = (
                    first if gate.pause is None else min(max(gate.pause * 2, first), timedelta(minutes=5))
                )
                gate.closed, gate.detail, gate.probing = met, detail[:300], False
                gate.probe_at = datetime.now(UTC) + gate.pause
        return Door(receiver, gate.closed, gate.failures, gate.detail)

    # The rules.

    def obstacle(self, entry: Entry) -> str | None:
        """What keeps an operation from being sent; `ready` is nothing."""
        if entry.state in FINAL:
            return None
        if entry.state is State.SENDING:
            return "sending"
        if entry.cases:
            return "case"
        if entry.state is State.ACCEPTED:
            return "settlement"
        unknown = entry.state is State.UNKNOWN
        if unknown and (entry.keep_back or not entry.resend):
            return "verification"
        barred = self._barred(entry)
        if barred is not None:
            return "verification" if unknown and barred != "policy" else barred
        door = "receiver" if self._shut(entry) else None
        return self._required(entry) or door or self._gated(entry) or self._holding(entry) or "ready"

    def _barred(self, entry: Entry) -> str | None:
        """What people and policy have not allowed, or have taken back."""
        if ordered := self._ordered(entry):
            return ordered
        if self.mandate_over is not None:
            return "mandate"
        if entry.verdict is None:
            return "policy"
        return None if self._allowed(entry) else "approval"

    def _allowed(self, entry: Entry) -> bool:
        granted = entry.execute_by is not None and entry.execute_by > self.clock()
        return entry.verdict != "needs_approval" or granted

    def _shut(self, entry: Entry) -> bool:
        """Whether a door that the operation has to pass lets nobody through now."""
        found = (self.gates.get(name, Gate()) for name in entry.row["receivers"])
        return any(gate.closed is not None and gate.probe_at > datetime.now(UTC) for gate in found)

    def _required(self, entry: Entry) -> str | None:
        live = {e.key: e for e in self.entries.values() if e.state is not State.CLOSED}
        needed = [live.get(key) for key in entry.row["requires"]]
        if any(one is None for one in needed):
            return "requirement_lost"
        if any(one is not None and one.cases for one in needed):
            return "case"
        unmet = any(one is not None and one.state is not State.SETTLED for one in needed)
        return "requirement" if unmet else None

    def _gated(self, entry: Entry) -> str | None:
        now = datetime.now(UTC)
        return min((kind for kind, until in entry.gates.items() if until > now), default=None)

    def _holding(self, entry: Entry) -> str | None:
        if not entry.obligations.get("hold_seconds"):
            return None
        return "hold" if entry.hold_until is None or entry.hold_until > self.clock() else None

    def _claim(
        self, lease: Lease, entry: Entry, read_at: datetime, send_seconds: float, terms: dict[str, Json]
    ) -> Claimed:
        now, contract = datetime.now(UTC), terms.get(entry.row["tool"])
        refused = self.obstacle(entry) or entry.state.value.lower()
        if refused == "ready":
            refused = self._refusal(entry, contract, read_at, now, send_seconds)
        if refused in ("budget", "no_contract"):
            entry.cases.add(refused)
        if refused:
            return Claimed(entry.id, refused, None, None, None)
        assert contract is not None
        self.shares.setdefault(entry.id, _limits(entry))
        entry.gates.pop("limit", None)
        entry.state, entry.resend, entry.checks = State.SENDING, False, 0
        entry.version += 1
        one = Try(
            id=self.attempt_ids.get(entry.id, sum(len(e.tries) for e in self.entries.values()) + 1),
            number=len(entry.tries) + 1,
            key=wire_key(self.installation, entry.key, entry.generation),
            worker=lease.worker,
            token=lease.token,
            claimed_at=now,
            company_time=now + self.offset,
            send_by=now + timedelta(seconds=send_seconds),
            timeout=timedelta(milliseconds=contract["timeout_ms"]),
        )
        entry.tries.append(one)
        return Claimed(entry.id, None, one.id, one.key, send_seconds, one.number)

    def _refusal(
        self, entry: Entry, contract: dict[str, Any] | None, read_at: datetime, now: datetime, seconds: float
    ) -> str:
        if contract is None:
            return "no_contract"
        if read_at < now - timedelta(seconds=20):
            return "snapshot_old"
        counted = [one for one in entry.tries if one.seen not in BURNS_NOTHING]
        first = min((one.claimed_at for one in counted), default=now)
        if len(counted) >= contract["attempts"] or first < now - timedelta(
            milliseconds=contract["budget_ms"]
        ):
            return "budget"
        if seconds <= 0:
            return "too_late"
        if entry.id not in self.shares and self._limit_used_up(entry):
            entry.gates["limit"] = datetime.max.replace(tzinfo=UTC)
            return "limit"
        return ""

    def _limit_used_up(self, entry: Entry) -> bool:
        return any(
            limit["count"] is not None and self.used(limit["name"]) + 1 > limit["count"]
            for limit in entry.obligations.get("volume", [])
        )

    def _wake(self, names: set[str], most: int) -> None:
        """The next that wait for a limit with room, the smallest first; a claim wakes as many as it took."""
        for name in names:
            waiting = [e for e in self.entries.values() if "limit" in e.gates and name in _limits(e)]
            waiting.sort(key=lambda e: (e.row["amount_minor"] or 0, e.id))
            for entry in [e for e in waiting if not self._limit_used_up(e)][:most]:
                del entry.gates["limit"]

    def used(self, limit: str) -> int:
        """Shares of one limit that are taken."""
        return sum(limit in names for names in self.shares.values())

    def _take(self, entry: Entry, receipt: Receipt) -> bool:
        """A receipt of the attempt in flight. True where the share is free again: certainly nothing happened."""
        back = receipt.to in (State.PENDING, State.CLOSED)
        target = State.UNKNOWN if entry.doubt and back else receipt.to
        self._apply(entry, target, closed=receipt.closed)
        if receipt.gate is not None:
            entry.gates[receipt.gate] = datetime.now(UTC) + timedelta(seconds=receipt.gate_seconds)
        if receipt.case is not None:
            entry.cases.add(receipt.case)
        return target in (State.PENDING, State.CLOSED)

    def _note_late(self, entry: Entry, receipt: Receipt) -> None:
        if entry.state in (State.UNKNOWN, State.ACCEPTED):
            entry.due_at = datetime.now(UTC)
            entry.version += 1
        if receipt.seen == "accepted" and entry.state in (State.PENDING, State.CLOSED):
            entry.cases.add("late_receipt")

    def _settle(self, entry: Entry, settlement: Settlement) -> bool:
        to, now = settlement.to or entry.state, datetime.now(UTC)
        moves = to is not entry.state or settlement.resend != entry.resend
        if moves:
            if settlement.to in (State.PENDING, State.CLOSED):
                for one in entry.tries:
                    one.no_effect = True
            self._apply(entry, to, closed=settlement.closed, resend=settlement.resend)
            if settlement.to in (State.ACCEPTED, State.SETTLED, State.CLOSED):
                entry.cases -= set(ANSWERED_BY_EVIDENCE)
        else:
            entry.checks += 1
        entry.due_at = now + timedelta(seconds=settlement.next_seconds)
        if settlement.case is not None:
            entry.cases.add(settlement.case)
        return moves

    def _apply(self, entry: Entry, to: State, *, closed: str | None = None, resend: bool = False) -> None:
        entry.checks = entry.checks + 1 if to is entry.state else 0
        answered = to is State.PENDING and self._key_answered(entry)
        entry.state, entry.closed = to, closed if to is State.CLOSED else None
        entry.doubt = to is State.UNKNOWN
        entry.resend = resend and to is State.UNKNOWN
        entry.generation += answered or (to is State.CLOSED and closed in ("refused", "withdrawn"))
        entry.due_at = datetime.now(UTC)
        entry.version += 1
        if to is State.PENDING and entry.keep_back:
            self._close(entry, "cancelled")

    def _key_answered(self, entry: Entry) -> bool:
        """The receiver's last word under the current key is a failure that it keeps."""
        key = wire_key(self.installation, entry.key, entry.generation)
        return any(one.seen == "stored_failure" and one.key == key for one in entry.tries)

    def _close(self, entry: Entry, why: str) -> None:
        entry.state, entry.closed = State.CLOSED, why
        entry.gates.pop("limit", None)
        entry.version += 1

    def _release(self, freed: Sequence[Entry]) -> None:
        """Shares go back; where any did, whatever waited for one tries again."""
        back = [name for entry in freed for name in self.shares.pop(entry.id, [])]
        self._wake(set(back), 100)

    def _due(self, entry: Entry, now: datetime) -> Due:
        tries = [one for one in entry.tries if not one.no_effect]
        ends = [one.ended_at or self.dead.get(one.worker) or one.send_by + one.timeout for one in tries]
        seen = any(sight in SEEN_THERE for sight in entry.sights)
        return Due(
            operation_id=entry.id,
            version=entry.version,
            key=entry.key,
            tool=entry.row["tool"],
            subject=entry.row["subject"],
            intent=entry.row["intent"],
            state=entry.state,
            attempt=len(entry.tries),
            checks=entry.checks,
            resend=entry.resend,
            last_send=max(ends, default=None),
            senders_ended=all(one.ended_at or one.worker in self.dead for one in tries),
            first_sent=min((one.company_time for one in tries), default=None),
            receipt_accepted=seen or any(one.seen == "accepted" for one in tries),
            key_answered=self._key_answered(entry),
            now=now,
            company_now=now + self.offset,
        )

    def operation(self, entry: Entry) -> Operation:
        """The row as the runner takes it."""
        row = entry.row
        copied = (
            "key",
            "step",
            "subject",
            "effect",
            "tool",
            "intent",
            "request",
            "relied_on",
            "policy_revision",
            "plan",
        )
        return Operation(
            id=entry.id, revision=entry.revision, state=entry.state, **{name: row[name] for name in copied}
        )

    async def sendable(self, run_id: str, after: int, limit: int) -> list[Operation]:
        ready = [e for e in self.entries.values() if e.run == run_id and self.obstacle(e) == "ready"]
        return [self.operation(entry) for entry in sorted(ready, key=lambda e: e.id) if entry.id > after][
            :limit
        ]

    def _held(self, lease: Lease) -> None:
        hold = self.holds[lease.run_id]
        if hold.token != lease.token or hold.until <= datetime.now(UTC):
            raise LeaseLost(f"Another worker took {lease.run_id} over. Start another.", code="lease_lost")

    def _ordered(self, entry: Entry) -> str | None:
        """The kind of the order over an operation, a stop before a freeze."""
        wanted = {
            ("all", ""),
            ("run", entry.run),
            ("mandate", self.purpose),
            ("subject", entry.row["subject"]),
        }
        return max(
            (order.kind for order in self.orders if (order.scope, order.value) in wanted), default=None
        )

    def _sender_lost(self, one: Try) -> bool:
        over = one.send_by + one.timeout < datetime.now(UTC)
        return one.worker in self.dead or one.ended_at is not None or over

    def _expired(self, entry: Entry) -> bool:
        limit = entry.execute_by if entry.decided else entry.decide_by
        return limit is not None and limit <= self.clock()

    def _cancel_stopped(self) -> None:
        for entry in self.entries.values():
            if entry.state is State.PENDING and self._ordered(entry) == "stop":
                self._close(entry, "cancelled")

    def _close_dead_mandates(self) -> None:
        for entry in self.entries.values():
            if entry.state is State.PENDING and self.mandate_over is not None:
                self._close(entry, self.mandate_over)

    def _pending(self, run: str) -> list[Entry]:
        return [e for e in self.entries.values() if e.run == run and e.state is State.PENDING]

    def _tries(self, ids: Iterable[int]) -> list[tuple[Entry, Try]]:
        wanted = set(ids)
        return [(e, one) for e in self.entries.values() for one in e.tries if one.id in wanted]


def _limits(entry: Entry) -> list[str]:
    """Names of the limits that an operation needs a share of."""
    return [limit["name"] for limit in entry.obligations.get("volume", [])]
