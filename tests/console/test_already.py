"""What a later run says of keys that were taken, and what can be done once a run has ended."""

from typing import Any

import pytest

from remit.console.already import sentences
from remit.console.carrying import next_steps
from remit.graph import RunEnd
from remit.tools.states import RunStatus

from .conftest import Remit
from .test_campaign import approve


def met(outcome: str, code: str, count: int, *runs: str) -> str:
    (sentence,) = sentences([{"outcome": outcome, "code": code, "count": count, "runs": list(runs)}])
    return sentence


def test_what_was_completed_already_names_whose_it_is() -> None:
    """Nothing was sent twice, and the report says why."""
    assert met("done", "completed_already", 48, "run-1") == (
        "Nothing was sent for 48 of its proposals: completed already, by run-1."
    )


def test_a_conflict_says_that_nothing_was_changed() -> None:
    """The earlier effect stands, and the later wish is no silent loss."""
    assert met("conflict", "other_intent_under_a_live_key", 1, "run-1") == (
        "1 proposal differs from what stands under the same key, by run-1, and was left alone (conflict)."
    )


def test_a_key_with_many_owners_keeps_to_one_line() -> None:
    """Three runs are named, the others counted."""
    assert met("same", "proposed_already", 9, "a", "b", "c", "d", "e").endswith(
        "by a, b, c and 2 other runs."
    )


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        ({}, ["Propose again what was not sent: `remit run p`."]),
        (
            {"order_id": 7},
            [
                "An order stands over it: `remit lift 7`.",
                "Then propose again what was not sent: `remit run p`.",
            ],
        ),
        (
            {"mandate_live": False},
            [
                "Its mandate is over: `remit mandate grant FILE`.",
                "Then propose again what was not sent: `remit run p`.",
            ],
        ),
        (
            {"mandate_live": False, "superseded_at": "now"},
            ["Propose again what was not sent: `remit run p`."],
        ),
    ],
)
@pytest.mark.parametrize("status", [RunStatus.STOPPED, RunStatus.BLOCKED, RunStatus.INCOMPLETE])
def test_an_ended_run_says_how_to_propose_again(
    status: RunStatus, more: dict[str, Any], steps: list[str]
) -> None:
    """What stands in the way is named first, with its number."""
    row = {"purpose": "p", "order_id": None, "mandate_live": True, "superseded_at": None, **more}
    assert next_steps(RunEnd("run-1", status, "r"), row)[1:] == steps


def test_what_an_ended_run_has_in_flight_is_counted(asked: Remit) -> None:
    """A stopped run is over, and what it sent is followed by the standing worker."""
    asked.control(settle_seconds=900)
    approve(asked, "--only", "104")
    asked("resume")
    asked.done("stop", "all", "--token", "support-manager")
    run = asked.last_run()
    assert asked("resume", run).code == 4
    for words in (("resume", "--wait"), ("resume", "--wait", run)):
        assert "1 sent action not final yet: `remit work` follows" in asked(*words).out
    (end,) = asked.json("resume", run)["runs"]
    assert end["followed"] == 1
