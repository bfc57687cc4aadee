"""What one operation's row and one look at the system of record prove together. Pure; keeps I6.

The record outranks the ledger, and where they differ the difference is said. Amounts are minor units.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from remit.tools.actions import Json
from remit.tools.contracts import Sighting, Sought
from remit.tools.states import Fact, Sight

Row = dict[str, Any]
"""A row of `operations_of_purpose`."""


def judged(row: Row, seen: Sighting | None) -> tuple[Fact, str, str]:
    """(fact, detail, discrepancy). `seen` None: nothing was ever sent under this key, so nothing was looked for."""
    if seen is None:
        return Fact.NOT_SENT, _why_not(row), ""
    match seen.sight:
        case Sight.EFFECTIVE:
            return (
                Fact.COMPLETED,
                "the record shows it" + _taken_back(seen),
                _against(row, "PENDING", "CLOSED"),
            )
        case Sight.PENDING:
            against = _against(row, "PENDING", "CLOSED", "SETTLED")
            return Fact.IN_PROGRESS, "accepted or queued, not settled yet", against
        case Sight.DIFFERENT:
            detail = "the record shows it with other content" + _taken_back(seen)
            return Fact.COMPLETED, detail, "content differs from what was asked for"
        case Sight.MULTIPLE:
            return Fact.COMPLETED, f"the record shows it {len(seen.records)} times", "more than one effect"
        case Sight.WITHDRAWN:
            return Fact.NOT_SENT, "withdrawn", _against(row, "SETTLED")
        case Sight.UNREADABLE:
            return _unread(row, seen)
        case Sight.ABSENT:
            return _absent(row)


def unreadable(one: Sought, effect: str) -> Sighting:
    """What is known of an operation whose tools a deploy took away: nothing."""
    return Sighting(one.reference, Sight.UNREADABLE, f"no tool for {effect}", "", complete=False)


def as_of(row: Row, seen: Sighting | None, now: datetime) -> str:
    """The source's own time of what is said; of what only the ledger says, the time at which it was read."""
    if seen is not None and seen.as_of:
        return seen.as_of
    earlier = row["state"] == "SETTLED" and row["as_of"]
    return str(row["as_of"]) if earlier else now.isoformat()


def before(seen: Sighting | None, fact: Fact, stops: Sequence[datetime]) -> bool | None:
    """Whether the record's latest step came before the first stop (company times); None without either."""
    became = _became(seen)
    if not stops or became is None or fact is Fact.NOT_SENT:
        return None
    return became <= min(stops)


def shown(row: Row, seen: Sighting | None) -> int | None:
    """The amount that the record shows, or else the one that was asked for."""
    amounts = [record["amount_minor"] for record in _credits(seen)]
    asked: int | None = row["amount_minor"]
    return sum(amounts) if amounts else asked


def remaining(row: Row, seen: Sighting | None) -> int | None:
    """As `shown`, less what was taken back since."""
    amount = shown(row, seen)
    return None if amount is None else amount - _reversed(seen)


def _against(row: Row, *states: str) -> str:
    """The discrepancy, where the ledger stands in one of these states."""
    if row["state"] not in states:
        return ""
    return f"the ledger says {row['state'].lower()}" + (f" ({row['closed']})" if row["closed"] else "")


def _unread(row: Row, seen: Sighting) -> tuple[Fact, str, str]:
    silence = f"{seen.source} gives no answer"
    match row["state"]:
        case "SETTLED":
            when = row["recorded_at"].isoformat() if row["recorded_at"] else "earlier"
            return Fact.COMPLETED, f"shown by evidence of {when}", f"{silence} now"
        case "CLOSED" | "PENDING":
            return Fact.NOT_SENT, _why_not(row), f"{silence} now"
    return Fact.UNKNOWN, silence, ""


def _absent(row: Row) -> tuple[Fact, str, str]:
    match row["state"]:
        case "CLOSED" | "PENDING":
            return Fact.NOT_SENT, _why_not(row), ""
        case "SETTLED":
            return (
                Fact.UNKNOWN,
                "settled earlier, and the record does not show it any more",
                "the world lost a settled effect",
            )
        case "ACCEPTED":
            return Fact.UNKNOWN, "the receiver said accepted; its record does not show it", ""
        case "SENDING" if row["fact"] == Fact.IN_PROGRESS:
            return Fact.IN_PROGRESS, "being sent", ""
    if row.get("receipt_accepted"):
        return Fact.UNKNOWN, "the receiver said accepted; its record does not show it", ""
    return Fact.UNKNOWN, "sent without an answer; absence proves nothing yet", ""


def _why_not(row: Row) -> str:
    sent = row["attempts"] > 0
    if row["state"] == "CLOSED":
        why = f" ({row['closed_detail']})" if row["closed_detail"] else ""
        return f"{'no effect' if sent else 'not sent'}: {row['closed']}{why}"
    return ("an earlier attempt had no effect; " if sent else "") + f"waiting for {row['obstacle']}"


def _taken_back(seen: Sighting) -> str:
    amount = _reversed(seen)
    return f", and that {amount} minor units of it were taken back since" if amount else ""


def _reversed(seen: Sighting | None) -> int:
    return sum(
        record["reversed_minor"] for record in _credits(seen) if isinstance(record.get("reversed_minor"), int)
    )


def _credits(seen: Sighting | None) -> Iterator[dict[str, Json]]:
    for record in _records(seen):
        if isinstance(record.get("amount_minor"), int) and record.get("status") != "withdrawn":
            yield record


def _records(seen: Sighting | None) -> Iterator[dict[str, Json]]:
    for record in seen.records if seen is not None else ():
        if isinstance(record, dict):
            yield record


_BECAME = ("settled_at", "delivered_at", "at", "accepted_at", "queued_at")


def _became(seen: Sighting | None) -> datetime | None:
    """The source's own time of the latest step that its first record shows."""
    record = next(_records(seen), {})
    for name in _BECAME:
        value = record.get(name)
        if isinstance(value, str):
            return datetime.fromisoformat(value)
    return None
