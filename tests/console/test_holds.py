"""`remit holds`: sentences that say what really happened, and times that are read exactly."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from remit.console.holds import _SAID, sentence
from remit.console.times import moment_of, seconds_of
from remit.tools.errors import Refused
from tests.console.conftest import Remit

KEY = "outage-0611/notify/customer:c-104/1"


@pytest.fixture
def waiting(asked: Remit) -> Remit:
    """24 messages whose window waits for their credit, which nobody has approved yet."""
    return asked


def approve(remit: Remit) -> None:
    id_ = remit.open_approval()["id"]
    remit.done("approve", id_, "--token", "finance-lead")


def begun(remit: Remit) -> None:
    """The credits are given, and the messages' windows have begun."""
    approve(remit)
    remit.control(settle_seconds=0)
    remit("resume")


def test_who_may_release_sends_now_and_the_trace_names_the_person(asked: Remit) -> None:
    """The listing says who may; the release, and every refused try of it, stand in the trace with the person."""
    begun(asked)
    (row,) = [row for row in asked.json("holds")["holds"] if row["key"] == KEY]
    assert row["release_by"] == ["finance_lead", "support_manager"]
    refused = asked("holds", "release", KEY, "--token", "support-manager")
    assert (refused.code, "stands in the chain" in refused.out) == (1, True)
    assert f"{KEY}: released; it leaves now." in asked.done(
        "holds", "release", "104", "--token", "finance-lead"
    )
    (trace,) = asked.json("show", KEY)["traces"]
    assert [(one["person"], one["outcome"]) for one in trace["hold_changes"]] == [
        ("support-manager", "in_the_chain"),
        ("finance-lead", "released"),
    ]
    shown = asked.done("show", KEY)
    assert "release by support-manager" in shown
    assert "release by finance-lead" in shown
    asked("resume")
    assert asked.json("show", KEY)["traces"][0]["operation"]["state"] in ("ACCEPTED", "SETTLED")
    late = asked("holds", "release", KEY, "--token", "finance-lead")
    assert (late.code, "was sent already" in late.out) == (1, True)


def test_a_window_is_moved_later_by_anybody_and_not_beyond_its_mandate(asked: Remit) -> None:
    """By a time or to a moment; what cannot be is refused with the moment that stands against it, and nothing moves."""
    begun(asked)
    out = asked.done("holds", "reschedule", KEY, "--by", "2h", "--token", "support-manager")
    leaves = re.search(r"leaves on (\S+) (\S+) UTC", out)
    assert leaves is not None
    (row,) = [row for row in asked.json("holds")["holds"] if row["key"] == KEY]
    assert row["hold_until"][:10] == leaves[1]
    earlier = asked("holds", "reschedule", KEY, "--by", "-1h", "--token", "support-manager")
    assert (earlier.code, "may not shorten" in earlier.out) == (1, True)
    beyond = asked("holds", "reschedule", KEY, "--to", "9998-01-01T00:00Z", "--token", "finance-lead")
    assert (beyond.code, "its mandate ends on" in beyond.out) == (1, True)
    past = asked("holds", "reschedule", KEY, "--to", "2001-01-01T00:00Z", "--token", "finance-lead")
    assert (past.code, "`remit holds release`" in past.out) == (1, True)
    assert [r for r in asked.json("holds")["holds"] if r["key"] == KEY] == [row]


def test_before_its_window_began_a_message_is_put_off_to_a_moment(waiting: Remit) -> None:
    """A time has nothing to count from; a moment is kept, and shown beside the window that has yet to begin."""
    approve(waiting)
    waiting.control(settle_seconds=60)
    waiting("resume")
    nothing = waiting("holds", "reschedule", KEY, "--by", "2h", "--token", "support-manager")
    assert (nothing.code, "has not begun" in nothing.out) == (1, True)
    document = waiting.json("mandate", "list")["mandates"][0]
    until = datetime.fromisoformat(document["valid_until"]).astimezone(UTC)
    beyond = waiting("holds", "reschedule", KEY, "--to", until.isoformat(), "--token", "support-manager")
    assert (beyond.code, "its mandate ends on" in beyond.out) == (1, True)
    moment = (until - timedelta(minutes=1)).isoformat()
    said = waiting("holds", "reschedule", KEY, "--to", moment, "--token", "support-manager")
    assert (said.code, "no earlier than" in said.out) == (0, True)
    assert "not before" in waiting.done("holds")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--by", "soon"),
        ("--by", "0s"),
        ("--by", "2h", "--to", "2026-06-12T09:30Z"),
        ("--to", "tomorrow"),
        ("--to", "2026-06-12T09:30"),
    ],
)
def test_a_time_that_is_not_exact_moves_nothing(staffed: Remit, words: tuple[str, ...]) -> None:
    """Usage, with how to write it, before anything is looked up."""
    said = staffed("holds", "reschedule", KEY, *words, "--token", "support-manager")
    assert (said.code, "2026-06-12T09:30Z" in said.errors) == (2, True), said


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("+5m", 300.0), ("-2h", -7200.0), ("1d", 86_400.0), ("1.5m", 90.0), ("0s", 0.0)],
)
def test_a_time_is_read_with_its_unit(text: str, seconds: float) -> None:
    """Seconds, minutes, hours, days, forwards and back."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1w", "1h30m", "1e3s", "--1h", "\u0661s", "1 h", "nan"])
def test_what_is_no_time_is_none(text: str) -> None:
    """Nothing is guessed."""
    assert seconds_of(text) is None


def test_a_moment_has_its_zone() -> None:
    """Any zone, told in UTC; without one, or out of range, it is no exact moment."""
    assert moment_of("2026-06-12T09:30+02:00") == datetime(2026, 6, 12, 7, 30, tzinfo=UTC)
    for text in ("2026-06-12", "2026-06-12T09:30", "9999-12-31T23:59-12:00", "now", ""):
        with pytest.raises(Refused, match="zone"):
            moment_of(text)


@pytest.mark.parametrize("outcome", list(_SAID))
@pytest.mark.parametrize("verb", ["cancel", "release", "reschedule"])
def test_every_outcome_has_a_sentence_and_only_what_was_kept_back_is_called_so(
    outcome: str, verb: str
) -> None:
    """What may have gone out is never called kept back or cancelled, and no sentence has a hole."""
    row = {"outcome": outcome, "verb": verb, "detail": None, "leaves": datetime(2026, 6, 12, tzinfo=UTC)}
    said = sentence(row)
    assert "{" not in said
    assert ("kept back" in said) == (outcome == "kept_back")
    assert "cancelled" not in said


def test_a_conflict_is_shown_beside_the_operation_that_it_meets(asked: Remit) -> None:
    """Who wanted what otherwise, in `remit show KEY`: quoted, since a model wrote it, and nothing was changed."""
    with psycopg.connect(os.environ["REMIT_OWNER_URL"], autocommit=True) as owner:
        owner.execute(
            "INSERT INTO remit.proposals (run_id, plan, call, subject, tool, step, intent, outcome, code, operation_id)"
            " SELECT run_id, 9, 1, subject, tool, step, '{\"amount_minor\": 2000}', 'conflict',"
            " 'other_intent_under_a_live_key', id FROM remit.operations WHERE key = %s",
            [KEY.replace("notify", "credit")],
        )
    (trace,) = asked.json("show", KEY.replace("notify", "credit"))["traces"]
    assert [(one["plan"], one["intent"]) for one in trace["conflicts"]] == [(9, {"amount_minor": 2000})]
    shown = asked.done("show", KEY.replace("notify", "credit"))
    assert "CONFLICT" in shown
    assert "nothing was changed" in shown
