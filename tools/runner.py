"""The only code that may call a side-effecting tool. DESIGN sections 5 and 6.

Keeps I1 (stored request, one wire key, verify before retry), I4 (orders read before each group, nothing begun after
`send_by` on this machine's boot clock) and I10 (nothing is sent that is not recorded first).
"""

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from remit.tools.actions import Json, Request, reference
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Contract, Item, Sighting, Snapshot, Sought, WriteTool
from remit.tools.doors import CLOSED, Doors
from remit.tools.errors import NotSent, OutcomeUnknown, Refused
from remit.tools.ports import (
    Claimed,
    Due,
    FaultPoint,
    Lease,
    Ledger,
    Operation,
    Reach,
    Receipt,
    Settlement,
    inert,
)
from remit.tools.receipts import Group, groups, receipt_of
from remit.tools.recovery import AfterLook, Look, after_look
from remit.tools.states import Seen, Sight, State
from remit.tools.transport import Response, Transport

_log = logging.getLogger(__name__)

SEND_SECONDS = 8.0
"""How long after its claim a send may begin. Long enough for a full batch in groups, short enough that a worker that
was suspended wakes up too late rather than in the middle of somebody else's work."""

_TIRED_CHECKS = 12
"""Looks without an answer before a person is told; with doubling pauses up to 30 s that is about four minutes."""

_LONGEST_PAUSE = 30.0
"""Between two looks, in seconds: what settles late is still known within half a minute."""


@dataclass(slots=True)
class Sent:
    """What came of one batch: ids by outcome. `refused` maps an operation to why it was not claimed."""

    attempted: list[int] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    receiver_down: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One look that moves nothing: what was seen, as the recovery table reads it, and what the table says follows.

    `bound_over`: no request of ours can still become visible, as far as the contract bounds that. `remembered`: a
    resend would meet the receiver's memory of the key. `known`: the catalogue has the tool.
    """

    sighting: Sighting
    look: Look
    then: AfterLook
    bound_over: bool
    remembered: bool
    known: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the sends of one claim have in common; `began` is the boot clock before the claim was asked for, `waiting`
    are the attempts of which nothing has begun."""

    lease: Lease
    operations: dict[int, Operation]
    snapshots: dict[int, Snapshot]
    began: float
    waiting: set[int]

    def request(self, claimed: Claimed) -> Request:
        """As it was stored when it was proposed."""
        return Request.model_validate(self.operations[claimed.operation_id].request)


def boot_seconds() -> float:
    """Seconds on a clock that goes on while the machine or the process is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Runner:
    """Sends and verifies for one process. `reach` is a fault hook around its calls; `send_seconds` as SEND_SECONDS."""

    def __init__(
        self,
        ledger: Ledger,
        catalogue: Catalogue,
        transport: Transport,
        reach: Reach = inert,
        *,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._transport = transport
        self._reach = reach
        # Here, so that nothing that sends can be built without the doors.
        transport.guard(Doors(ledger))
        self._send_seconds = send_seconds
        self._terms: dict[str, Json] = {
            tool.contract.name: _terms(tool.contract) for tool in catalogue.writes()
        }

    async def send(self, lease: Lease, operations: Sequence[Operation]) -> Sent:
        """Revalidate, claim, send and record one batch of at most 100. Snapshots that differ are returned as stale."""
        sent = Sent()
        read_at = await self._ledger.now()
        await self._reach(FaultPoint.BEFORE_SNAPSHOT)
        snapshots = await self._snapshots(operations, sent)
        await self._reach(FaultPoint.AFTER_SNAPSHOT)
        fresh = [o for o in operations if o.id in snapshots and self._still_true(o, snapshots[o.id], sent)]
        if not fresh:
            return sent
        began = boot_seconds()
        claims = await self._ledger.claim(
            lease, [o.id for o in fresh], read_at, self._send_seconds, self._terms
        )
        sent.refused |= {c.operation_id: c.refused for c in claims if c.refused is not None}
        by_id = {o.id: o for o in fresh}
        groups: dict[str, list[Claimed]] = defaultdict(list)
        for claimed in claims:
            if claimed.attempt_id is not None:
                groups[by_id[claimed.operation_id].tool].append(claimed)
        waiting = {c.attempt_id for c in claims if c.attempt_id is not None}
        batch = _Batch(lease, by_id, snapshots, began, waiting)
        try:
            for tool, claimed_here in groups.items():
                await self._send_tool(self._catalogue.write(tool), claimed_here, batch)
                sent.attempted += [c.operation_id for c in claimed_here]
        finally:
            # What was claimed and certainly not begun goes back, of every tool, also when this worker is asked to end.
            if waiting:
                await self._ledger.unsend(sorted(waiting))
        return sent

    async def look(self, run_id: str | None, limit: int = 100) -> int:
        """Ask the systems of record about everything that is due, and settle it. Returns how many were looked at."""
        due = await self._ledger.due(run_id, limit)
        by_tool: dict[str, list[Due]] = defaultdict(list)
        for item in due:
            by_tool[item.tool].append(item)
        settlements: list[Settlement] = []
        await self._reach(FaultPoint.BEFORE_VERIFY)
        for tool, items in by_tool.items():
            settlements += await self._judge(tool, items)
        await self._reach(FaultPoint.AFTER_VERIFY)
        if settlements:
            await self._ledger.settle(settlements)
        return len(due)

    async def foresee(self, item: Due) -> Foreseen:
        """Ask the system of record about one operation; what the recovery table makes of it. Settles nothing."""
        sought = self._sought(item.key, item.subject, item.intent)
        contract, sightings = await self._sightings(item.tool, [sought])
        seen = sightings.get(sought.reference) or _unreadable(sought, f"{item.tool} left it out")
        look = _look(contract, item, seen)
        followed = item.state in {State.UNKNOWN, State.ACCEPTED} and seen.asked
        return Foreseen(
            seen,
            look,
            after_look(look) if followed else AfterLook(),
            bound_over=not look.bounded or _bound_over(contract, item),
            remembered=contract is not None and _remembered(contract, item) and not item.key_answered,
            known=contract is not None,
        )

    async def _snapshots(self, operations: Sequence[Operation], sent: Sent) -> dict[int, Snapshot]:
        found: dict[int, Snapshot] = {}
        by_tool: dict[str, list[Operation]] = defaultdict(list)
        for operation in operations:
            by_tool[operation.tool].append(operation)
        for name, group in by_tool.items():
            sought = {o.id: self._sought(o.key, o.subject, o.intent) for o in group}
            if name not in self._terms:
                # The claim refuses what has no contract any more, and opens a case for it.
                found |= dict.fromkeys(sought, Snapshot({}))
                continue
            tool = self._catalogue.write(name)
            try:
                answers = await tool.snapshot_many(self._transport, list(sought.values()))
                found |= {id_: answers[s.reference] for id_, s in sought.items()}
            except (NotSent, OutcomeUnknown) as error:
                sent.receiver_down |= dict.fromkeys(sought, str(error))
            except Exception as error:  # noqa: BLE001 - whatever a tool's own code does, nothing is claimed on it
                _log.exception("%s could not read its snapshots", name)
                sent.receiver_down |= dict.fromkeys(sought, f"{name} could not read ({type(error).__name__})")
        return found

    def _still_true(self, operation: Operation, snapshot: Snapshot, sent: Sent) -> bool:
        # A resend repeats what was begun; its premises were judged then, and its own effect may show by now.
        if (
            operation.state is State.UNKNOWN
            or operation.tool not in self._terms
            or relied_on(self._catalogue.write(operation.tool), snapshot) == operation.relied_on
        ):
            return True
        sent.stale.append(operation.id)
        return False

    async def _send_tool(self, tool: WriteTool, claims: Sequence[Claimed], batch: _Batch) -> None:
        for group in groups(tool.contract, claims):
            ids = [c.attempt_id for c in group.claims if c.attempt_id]
            allowed = await self._ledger.may_send(batch.lease, ids)
            batch.waiting.difference_update(ids)
            await self._reach(FaultPoint.BEFORE_SEND)
            receipts = await self._send_group(tool, group, allowed, batch)
            await self._reach(FaultPoint.AFTER_SEND)
            await self._ledger.record(receipts)

    async def _send_group(
        self, tool: WriteTool, group: Group, allowed: set[int], batch: _Batch
    ) -> list[Receipt]:
        begun = [c for c in group.claims if c.attempt_id in allowed]
        barred = [receipt_of(tool, c, None, None) for c in group.claims if c.attempt_id not in allowed]
        if group.as_one and len(begun) > 1:
            return barred + await self._together(tool, begun, batch)
        return barred + list(await asyncio.gather(*(self._alone(tool, c, batch) for c in begun)))

    async def _alone(self, tool: WriteTool, claimed: Claimed, batch: _Batch) -> Receipt:
        request, etag = batch.request(claimed), batch.snapshots[claimed.operation_id].etag
        answer = await self._answer(
            tool, lambda: (request, tool.headers(claimed.wire_key or "", etag)), [claimed], batch
        )
        return receipt_of(tool, claimed, request, answer)

    async def _together(self, tool: WriteTool, claims: Sequence[Claimed], batch: _Batch) -> list[Receipt]:
        """One call for all of them; what its answer does not tell of an item is unknown, for that item alone."""
        items = [Item(claimed.wire_key or "", batch.request(claimed)) for claimed in claims]
        answer = await self._answer(tool, lambda: (tool.batch_request(items), {}), claims, batch)
        if not isinstance(answer, Response):
            return [receipt_of(tool, c, i.request, answer) for c, i in zip(claims, items, strict=True)]
        try:
            said = tool.split(answer, items)
        except Exception:  # noqa: BLE001 - whatever a tool's own code does after the send, the outcome is not known
            _log.exception("%s could not take an answer apart", tool.contract.name)
            said = {}
        return [
            receipt_of(tool, c, i.request, said.get(i.wire_key, Seen.UNKNOWN))
            for c, i in zip(claims, items, strict=True)
        ]

    async def _answer(
        self,
        tool: WriteTool,
        call: Callable[[], tuple[Request, dict[str, str]]],
        claims: Sequence[Claimed],
        batch: _Batch,
    ) -> Response | Seen | None:
        """What one call brought: an answer, what its lack proves, or None where it was not begun."""
        contract = tool.contract
        # The last thing before the send: a process that was suspended anywhere above wakes up here (I4).
        if boot_seconds() - batch.began >= min(c.send_within or 0.0 for c in claims):
            return None
        try:
            request, headers = call()
            return await self._transport.call(
                contract.receiver,
                request.method,
                request.path,
                credential=contract.credential,
                seconds=contract.timeout,
                body=request.body,
                headers=headers,
            )
        except NotSent as error:
            if error.code == CLOSED:
                return None
            return Seen.CREDENTIAL if error.code == "credential" else Seen.NOT_WRITTEN
        except OutcomeUnknown:
            return Seen.UNKNOWN
        except Exception:  # noqa: BLE001 - whatever a tool's own code does around the send, the outcome is not known
            _log.exception("%s could not send", contract.name)
            return Seen.UNKNOWN

    async def _judge(self, name: str, items: Sequence[Due]) -> list[Settlement]:
        sought = [self._sought(item.key, item.subject, item.intent) for item in items]
        contract, sightings = await self._sightings(name, sought)
        settlements = []
        for item, asked in zip(items, sought, strict=True):
            seen = sightings.get(asked.reference) or _unreadable(asked, f"{name} left it out")
            if not seen.asked:
                # Its door was closed meanwhile: nothing was learnt, and nothing counts as a look.
                continue
            settlements.append(_settlement(item, seen, after_look(_look(contract, item, seen))))
        return settlements

    async def _sightings(
        self, name: str, sought: Sequence[Sought]
    ) -> tuple[Contract | None, dict[str, Sighting]]:
        """By reference. What one tool cannot tell is unreadable, and never keeps the others from being settled."""
        try:
            tool = self._catalogue.write(name)
        except Refused as error:
            return None, {s.reference: _unreadable(s, error.code) for s in sought}
        try:
            seen = await tool.verify_many(self._transport, sought)
        except Exception as error:  # noqa: BLE001 - whatever a tool's own code does, nothing was learnt
            _log.exception("%s could not verify", name)
            return tool.contract, {s.reference: _unreadable(s, type(error).__name__) for s in sought}
        return tool.contract, {s.reference: s for s in seen}

    def _sought(self, key: str, subject: str, intent: dict[str, Json]) -> Sought:
        return Sought(reference(self._ledger.installation, key), subject, intent)


def relied_on(tool: WriteTool, snapshot: Snapshot) -> dict[str, Json]:
    """The values of the snapshot that the contract says the decision relies on: what an approval binds to."""
    return {name: snapshot.values.get(name) for name in tool.contract.relies_on}


def _terms(contract: Contract) -> dict[str, Json]:
    return {
        "attempts": contract.budget.attempts,
        "budget_ms": round(contract.budget.seconds * 1000),
        "timeout_ms": round(contract.timeout * 1000),
        "retention_ms": None if contract.key_retention is None else round(contract.key_retention * 1000),
    }


def _unreadable(sought: Sought, why: str) -> Sighting:
    return Sighting(sought.reference, Sight.UNREADABLE, f"none ({why})", "", complete=False)


def _look(contract: Contract | None, item: Due, seen: Sighting) -> Look:
    """What the table asks. Where no attempt is left that could have had an effect, absence counts at once."""
    bound = None if contract is None else contract.visible_within
    passed = _bound_over(contract, item)
    remembered = contract is not None and _remembered(contract, item)
    return Look(
        sight=seen.sight,
        state=item.state,
        absence_counts=seen.complete and passed,
        may_resend=remembered and not item.key_answered,
        # Whoever still sends under a key that has its last word gets that word again, and has no effect.
        senders_ended=item.senders_ended or (remembered and item.key_answered),
        receipt_accepted=item.receipt_accepted,
        bounded=bound is not None,
        tired=item.checks >= _TIRED_CHECKS,
    )


def _bound_over(contract: Contract | None, item: Due) -> bool:
    """Whether whatever was sent must be visible by now. Where the contract bounds nothing, it never must."""
    bound = None if contract is None else contract.visible_within
    return item.last_send is None or (
        bound is not None and item.now > item.last_send + timedelta(seconds=bound)
    )


def _remembered(contract: Contract, item: Due) -> bool:
    """Whether the receiver enforces keys and still knows this one when a resend would arrive."""
    if not contract.receiver_enforces_key or contract.key_retention is None or item.first_sent is None:
        return False
    return item.company_now < item.first_sent + timedelta(seconds=contract.key_retention - contract.timeout)


def _settlement(item: Due, seen: Sighting, then: AfterLook) -> Settlement:
    pause = min(0.2 * 2.0 ** min(item.checks, 10), _LONGEST_PAUSE) * (1 + random.random() / 5)  # noqa: S311 - jitter, not a secret
    return Settlement(
        operation_id=item.operation_id,
        version=item.version,
        attempt=item.attempt,
        sight=seen.sight.value,
        source=seen.source,
        as_of=seen.as_of,
        complete=seen.complete,
        read_began_at=item.now,
        records=seen.records,
        to=then.to,
        next_seconds=pause,
        resend=then.resend,
        closed=then.closed,
        detail=then.detail,
        case=then.case,
    )
