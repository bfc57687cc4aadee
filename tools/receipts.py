"""Attempts in groups, and what the end of each attempt comes to: pure functions around the sends of the runner.

Keeps the half of I5 that concerns answers: one operation, one receipt, and never more in it than its answer proves.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from remit.tools.actions import Json, Request
from remit.tools.contracts import Contract, WriteTool
from remit.tools.ports import Claimed, Receipt
from remit.tools.recovery import AFTER_ATTEMPT, AfterAttempt
from remit.tools.states import Seen, State
from remit.tools.transport import Response

_log = logging.getLogger(__name__)

_LONGEST_BACKOFF = 60.0
"""Between two tries, in seconds, unless the receiver itself asks for more."""

_LONGEST_RETRY_AFTER = 3_600.0
"""A receiver that asks for more than an hour is asked again after one."""

_LONGEST_KEPT = 200
"""Characters of a receiver's id or code."""


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts that begin together after one look at orders and doors; `as_one`: in one call."""

    claims: Sequence[Claimed]
    as_one: bool


def groups(contract: Contract, claims: Sequence[Claimed]) -> list[Group]:
    """At most the concurrency, or a batch. What was tried before goes alone: no item spoils a batch twice."""
    first = [c for c in claims if contract.batch > 1 and c.number == 1]
    again = [c for c in claims if not (contract.batch > 1 and c.number == 1)]
    size, most = contract.batch, contract.concurrency
    return [Group(first[n : n + size], True) for n in range(0, len(first), size)] + [
        Group(again[n : n + most], False) for n in range(0, len(again), most)
    ]


def receipt_of(
    tool: WriteTool, claimed: Claimed, request: Request | None, answer: Response | Seen | None
) -> Receipt:
    """`answer` None: the attempt was not begun, and goes back to where it was."""
    if answer is None or request is None:
        return Receipt(claimed.attempt_id or 0, "not_begun", None, State.PENDING, no_effect=True)
    if isinstance(answer, Seen):
        return _receipt(claimed, answer, None)
    try:
        seen = tool.classify(answer, request)
    except Exception:  # noqa: BLE001 - whatever a tool's own code does after the send, the outcome is not known
        _log.exception("%s could not classify an answer", tool.contract.name)
        seen = Seen.UNKNOWN
    return _receipt(claimed, seen, answer)


def _gate_seconds(then: AfterAttempt, number: int, response: Response | None) -> float:
    """Seconds until the next try: doubled per attempt with jitter, and never before the receiver asked for it."""
    if then.gate != "backoff":
        return then.gate_seconds
    doubled = min(then.gate_seconds * 2.0 ** min(number - 1, 10), _LONGEST_BACKOFF)
    asked = "" if response is None else response.headers.get("retry-after", "")
    told = min(float(asked), _LONGEST_RETRY_AFTER) if asked.isdecimal() and asked.isascii() else 0.0
    return max(doubled, told) * (1 + random.random() / 2)  # noqa: S311 - jitter, not a secret


def _receipt(claimed: Claimed, seen: Seen, response: Response | None) -> Receipt:
    then = AFTER_ATTEMPT[seen]
    return Receipt(
        attempt_id=claimed.attempt_id or 0,
        seen=seen.value,
        response=None if response is None else kept(response),
        to=then.to,
        no_effect=then.no_effect,
        closed=then.closed,
        detail=then.detail,
        gate=then.gate,
        gate_seconds=_gate_seconds(then, claimed.number or 1, response),
        case=then.case,
    )


def kept(response: Response) -> dict[str, Json]:
    """Status, code and the receiver's own id: what an investigation needs, and nothing personal."""
    # Only text that the ledger can store: one NUL in it would lose the receipts of the whole group.
    body = response.body if isinstance(response.body, dict) else {}
    named = {name: body.get(name) for name in ("id", "code", "credit_id")}
    kept = {
        k: v for k, v in named.items() if isinstance(v, str) and len(v) <= _LONGEST_KEPT and v.isprintable()
    }
    return {"status": response.status, **kept}
