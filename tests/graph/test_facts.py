"""What one row and one look prove together: the whole table, state by sight. Keeps I6."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remit.graph import facts
from remit.tools.contracts import Sighting
from remit.tools.states import Sight, State

NOW = datetime(2026, 6, 12, tzinfo=UTC)
SETTLED = "2026-06-11T12:00:00+00:00"


def row(state: str, **changes: Any) -> dict[str, Any]:
    usual = {
        "state": state,
        "closed": "refused" if state == "CLOSED" else None,
        "closed_detail": "",
        "attempts": 1,
        "fact": "IN_PROGRESS",
        "obstacle": "approval",
        "recorded_at": NOW,
        "as_of": SETTLED,
        "amount_minor": 1000,
    }
    return {**usual, **changes}


def seen(sight: str, *records: dict[str, Any]) -> Sighting:
    return Sighting("ref", Sight(sight), "payments: credits", SETTLED, complete=True, records=list(records))


PROVED: dict[str, dict[str, str]] = {
    "effective": dict.fromkeys(map(str, State), "COMPLETED"),
    "different": dict.fromkeys(map(str, State), "COMPLETED"),
    "multiple": dict.fromkeys(map(str, State), "COMPLETED"),
    "pending": dict.fromkeys(map(str, State), "IN_PROGRESS"),
    "withdrawn": dict.fromkeys(map(str, State), "NOT_SENT"),
    "unreadable": {
        "PENDING": "NOT_SENT",
        "SENDING": "UNKNOWN",
        "UNKNOWN": "UNKNOWN",
        "ACCEPTED": "UNKNOWN",
        "SETTLED": "COMPLETED",
        "CLOSED": "NOT_SENT",
    },
    "absent": {
        "PENDING": "NOT_SENT",
        "SENDING": "IN_PROGRESS",
        "UNKNOWN": "UNKNOWN",
        "ACCEPTED": "UNKNOWN",
        "SETTLED": "UNKNOWN",
        "CLOSED": "NOT_SENT",
    },
}


@pytest.mark.parametrize("sight", list(Sight))
@pytest.mark.parametrize("state", list(State))
def test_the_record_outranks_the_ledger_and_silence_proves_nothing(state: State, sight: Sight) -> None:
    """Every state with every sight has one fact, and a reason in words."""
    fact, detail, _ = facts.judged(row(state), seen(sight))
    assert fact == PROVED[sight][state]
    assert detail


@pytest.mark.parametrize(
    ("state", "sight"),
    [("PENDING", "effective"), ("CLOSED", "effective"), ("CLOSED", "pending"), ("SETTLED", "pending"),
     ("SETTLED", "withdrawn"), ("SETTLED", "absent"), ("SETTLED", "unreadable"), ("UNKNOWN", "multiple"),
     ("ACCEPTED", "different")],
)  # fmt: skip
def test_where_record_and_ledger_differ_the_difference_is_said(state: str, sight: str) -> None:
    """A discrepancy stands beside the fact, never in its place."""
    assert facts.judged(row(state), seen(sight))[2]


@pytest.mark.parametrize(
    ("state", "sight"), [("SETTLED", "effective"), ("ACCEPTED", "pending"), ("UNKNOWN", "absent")]
)
def test_where_they_agree_nothing_is_noted(state: str, sight: str) -> None:
    """No attention is asked for where none is needed."""
    assert facts.judged(row(state), seen(sight))[2] == ""


def test_a_send_whose_time_is_over_is_not_known_any_more() -> None:
    """The ledger's own fact of a SENDING row tells a live send from an expired one."""
    fact, detail, _ = facts.judged(row("SENDING", fact="UNKNOWN"), seen("absent"))
    assert (fact, detail) == ("UNKNOWN", "sent without an answer; absence proves nothing yet")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"state": "CLOSED", "closed": "denied", "attempts": 0, "closed_detail": "not_in_cohort"},
            "not sent: denied (not_in_cohort)",
        ),
        ({"state": "CLOSED", "closed": "stale", "attempts": 1}, "no effect: stale"),
        ({"state": "PENDING", "attempts": 0}, "waiting for approval"),
        ({"state": "PENDING", "attempts": 1}, "an earlier attempt had no effect; waiting for approval"),
    ],
)
def test_what_was_never_sent_is_told_apart_from_what_had_no_effect(
    changes: dict[str, Any], words: str
) -> None:
    """*Not sent* is said only where nothing ever left."""
    assert facts.judged(row(**changes), None)[:2] == ("NOT_SENT", words)


def test_the_time_of_a_fact_is_its_source_s_own() -> None:
    """Of what only the ledger says it is the time of reading, and of evidence from earlier the evidence's."""
    assert facts.as_of(row("ACCEPTED", as_of=None), seen("pending"), NOW) == SETTLED
    silent = Sighting("ref", Sight.UNREADABLE, "payments", "", complete=False)
    assert facts.as_of(row("SETTLED", as_of="2026-06-10"), silent, NOW) == "2026-06-10"
    assert facts.as_of(row("ACCEPTED"), silent, NOW) == NOW.isoformat()
    assert facts.as_of(row("PENDING"), None, NOW) == NOW.isoformat()


def test_amounts_are_those_of_the_record_less_what_was_taken_back() -> None:
    """Two credits count twice, a withdrawn one not at all, and without a record the amount that was asked for."""
    twice = seen(
        "multiple",
        {"amount_minor": 1000, "reversed_minor": 0, "status": "settled"},
        {"amount_minor": 700, "reversed_minor": 200, "status": "settled"},
        {"amount_minor": 500, "reversed_minor": 0, "status": "withdrawn"},
    )
    assert (facts.shown(row("SETTLED"), twice), facts.remaining(row("SETTLED"), twice)) == (1700, 1500)
    assert (facts.shown(row("SETTLED"), seen("absent")), facts.remaining(row("UNKNOWN"), None)) == (
        1000,
        1000,
    )
    assert facts.remaining(row("SETTLED", amount_minor=None), seen("effective", {"at": SETTLED})) is None


@pytest.mark.parametrize(
    ("record", "stops", "expected"),
    [
        ({"settled_at": SETTLED}, [NOW], True),
        ({"settled_at": "2026-06-13T00:00:00+00:00", "accepted_at": SETTLED}, [NOW], False),
        ({"accepted_at": SETTLED}, [NOW], True),
        ({}, [NOW], None),
        ({"settled_at": SETTLED}, [], None),
    ],
)
def test_before_or_after_the_stop_goes_by_the_record_s_latest_step(
    record: dict[str, Any], stops: list[datetime], expected: bool | None
) -> None:
    """Company time on both sides; without a record or a stop nothing is said."""
    sighting = seen("effective", record)
    assert facts.before(sighting, facts.judged(row("SETTLED"), sighting)[0], stops) is expected
