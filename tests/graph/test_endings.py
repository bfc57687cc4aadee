"""Under which name a run ends: the pure rule, fact by fact. DESIGN section 9, I7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remit.graph import Budget
from remit.graph.deps import RunContext
from remit.graph.endings import End, Progress, authority_end, borne_out, confirmed, ending, repeats
from remit.tools.ports import Lease
from remit.tools.questions import Agent
from remit.tools.states import RunStatus
from tests.fixtures import mandate_over

ALL_DONE = {"credit": {"COMPLETED": 24}, "notify": {"COMPLETED": 24}}
SHORT = {"credit": {"COMPLETED": 23, "NOT_SENT": 1}, "notify": {"COMPLETED": 24}}
BUDGET = Budget(plans=3, tokens=100)

RUN = RunContext(
    lease=Lease("run-1", 1, "w-1"),
    purpose="outage-0611",
    mandate_hash="v1:0",
    mandate=mandate_over(),
    agent=Agent(id="agent", version="1", chain=()),
    tokens_used=10,
    order_id=None,
    mandate_live=True,
    superseded=False,
    revoked=False,
)
GOING_ON = Progress(
    plan=1, finished=False, steps=SHORT, statements=[], repeated_plan=False, repeated_denial=None, cases=0
)


def said(step: str | None, count: int | None) -> dict[str, Any]:
    return {"text": "It is done.", "step": step, "count": count}


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"order_id": 7}, "STOPPED", "stopped"),
        ({"superseded": True, "mandate_live": False}, "BLOCKED", "mandate_superseded"),
        ({"revoked": True, "mandate_live": False}, "BLOCKED", "mandate_revoked"),
        ({"mandate_live": False}, "BLOCKED", "mandate_over"),
    ],
)
def test_authority_that_is_gone_ends_a_run_whatever_else_is_the_case(
    changes: dict[str, Any], status: str, code: str
) -> None:
    """Also a run that says that it has finished, and one that has a budget left."""
    run = replace(RUN, **changes)
    done = replace(GOING_ON, finished=True, steps=ALL_DONE)
    for end in (authority_end(run), ending(run, GOING_ON, BUDGET), ending(run, done, BUDGET)):
        assert end is not None
        assert (end.status, end.reason.partition(":")[0]) == (status, code)


def test_a_run_with_something_left_to_do_goes_on() -> None:
    """No end: the model is asked for another plan."""
    assert ending(RUN, GOING_ON, BUDGET) is None


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"repeated_plan": True}, "BLOCKED", "repeated_plan"),
        ({"repeated_denial": {"step": "credit"}}, "BLOCKED", "repeated_denial"),
        ({"plan": 3}, "BLOCKED", "step_budget"),
        ({"finished": True, "steps": ALL_DONE, "statements": [said("credit", 24)]}, "COMPLETED", "completed"),
        ({"finished": True, "steps": ALL_DONE}, "COMPLETED", "completed"),
        ({"finished": True, "statements": [said("credit", 24)]}, "INCOMPLETE", "unproven_finish"),
        (
            {"finished": True, "steps": ALL_DONE, "statements": [said("credit", 23)]},
            "INCOMPLETE",
            "unproven_finish",
        ),
        (
            {"finished": True, "steps": ALL_DONE, "statements": [said("refund", 0)]},
            "INCOMPLETE",
            "unproven_finish",
        ),
        ({"finished": True, "statements": [said("credit", 23)]}, "INCOMPLETE", "finished_early"),
        ({"finished": True, "steps": ALL_DONE, "cases": 1}, "INCOMPLETE", "open_cases"),
        ({"finished": True, "cases": 1}, "INCOMPLETE", "open_cases"),
    ],
)
def test_every_end_has_its_name(changes: dict[str, Any], status: str, code: str) -> None:
    """A repeated plan or denial, a budget, a true finish, and a finish that the evidence does not bear out."""
    end = ending(RUN, replace(GOING_ON, **changes), BUDGET)
    assert end is not None
    assert (end.status, end.reason.partition(":")[0]) == (status, code)


def test_used_up_tokens_end_a_run() -> None:
    """At the bound itself, since the next turn would go beyond it."""
    end = ending(replace(RUN, tokens_used=100), GOING_ON, BUDGET)
    assert end == End(end.status, "token_budget: 100 tokens used") if end else False


def test_a_finish_outranks_a_budget() -> None:
    """Who finishes with the last allowed plan has finished."""
    end = ending(RUN, replace(GOING_ON, plan=3, finished=True, steps=ALL_DONE), BUDGET)
    assert end is not None
    assert end.status == "COMPLETED"


def test_an_end_that_falls_short_says_by_how_much() -> None:
    """Step, completed and total, so that a person knows where to look."""
    end = ending(RUN, replace(GOING_ON, finished=True), BUDGET)
    assert end is not None
    assert end.reason == "finished_early: credit 23 of 24"


def plan(number: int, hash_: str, movement: int) -> dict[str, Any]:
    return {"number": number, "hash": hash_, "movement": movement}


@pytest.mark.parametrize(
    ("plans", "movement", "repeated"),
    [
        ([plan(1, "a", 0)], 0, False),
        ([plan(1, "a", 0), plan(2, "b", 0)], 0, False),
        ([plan(1, "a", 0), plan(2, "a", 0)], 0, True),
        ([plan(1, "a", 0), plan(2, "a", 24)], 24, True),
        ([plan(1, "a", 0), plan(2, "a", 0)], 1, False),
        ([plan(1, "a", 0), plan(2, "b", 0), plan(3, "a", 0)], 0, True),
        ([plan(1, "a", 0), plan(2, "b", 0), plan(3, "a", 24)], 24, False),
    ],
)
def test_a_plan_repeats_where_it_was_made_before_and_moved_nothing(
    plans: list[dict[str, Any]], movement: int, repeated: bool
) -> None:
    """Also two plans in turn over a ledger that stands still; not a plan that moved something, or after a movement."""
    assert repeats(plans[-1], plans, movement) is repeated


def test_a_statement_without_step_and_count_claims_nothing_that_could_be_checked() -> None:
    """With both it is compared with the completed subjects of its step, and with nothing else."""
    assert borne_out(said(None, None), {}) is None
    assert borne_out(said("credit", None), {}) is None
    assert not borne_out(said("credit", 24), SHORT)
    assert borne_out(said("credit", 23), SHORT)
    assert not borne_out(said("gift", 0), SHORT)


def test_a_completed_end_stands_only_where_the_records_show_all_of_it() -> None:
    """Settled once is not completed now: the end says what is missing, by step."""
    end = End(RunStatus.COMPLETED, "completed: all")
    assert confirmed(end, {"credit": {"COMPLETED": 3}}) is end
    lost = confirmed(end, {"credit": {"COMPLETED": 1, "UNKNOWN": 2}, "notify": {"COMPLETED": 3}})
    assert lost.status is RunStatus.INCOMPLETE
    assert lost.reason.endswith("only credit 1 of 3")
