"""`remit cases`: from the list to the closed case, on the screen and as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import psycopg
import pytest

from remit.console.cases import _compensation, _next
from remit.sandbox import Control
from tests.console.conftest import MANDATE, Remit

KEY = "outage-0611/credit/customer:c-104/1"


def faults(remit: Remit, *rules: dict[str, Any]) -> None:
    """These standing faults of the payments service in the place of all others."""

    async def change() -> None:
        async with Control.at(remit.home) as control:
            await control.clear_faults()
            for rule in rules:
                await control.add_fault("payments", times=None, **rule)

    asyncio.run(change())


LATE: dict[str, Any] = {
    "kind": "late_search",
    "seconds": 3600,
    "route": "POST /credits",
    "match": {"customer": "c-104"},
}


def lost(remit: Remit) -> int:
    """Customer 104's credit was accepted, no search shows it, and its run has ended: the case that this is."""
    faults(remit, LATE)
    remit.done("approve", remit.open_approval()["id"], "--token", "finance-lead")
    assert remit("resume", "--wait").code == 5
    (case,) = remit.json("cases")["cases"]
    return int(case["id"])


def test_without_a_case_the_list_says_so(remit: Remit) -> None:
    """Exit 0, an empty listing, and a case that does not exist is a mistake with a next step."""
    assert "No case is open." in remit.done("cases")
    assert remit.json("cases", "list")["cases"] == []
    said = remit("cases", "show", "7")
    assert (said.code, "`remit cases`" in said.errors) == (1, True)


def test_a_case_is_listed_shown_resolved_and_closed(asked: Remit) -> None:
    """What is open exits 5 everywhere; each refusal says why; the end is in the trace with person and evidence."""
    case = lost(asked)
    faults(asked, {"kind": "html", "route": "POST /credits/search"})
    listed = asked("cases", "--json")
    assert listed.code == 5
    document = asked.json("cases")
    (row,) = document["cases"]
    assert (row["id"], row["key"], row["tool"], row["fact"]) == (case, KEY, "issue_credit", "UNKNOWN")
    counted = {(one["part"], one["name"]): one["open"] for one in document["counts"]}
    assert (
        counted["code", "accepted_then_absent"]
        == counted["effect", "credit.issue"]
        == counted["purpose", "outage-0611"]
        == 1
    )
    assert f"`remit cases show {case}`" in asked("status").out
    shown = asked("cases", "show", str(case))
    assert shown.code == 5
    for part in (
        "failed step: credit",
        "owner support-manager",
        "compensation: none",
        "checkpoint",
        "attempt 1",
    ):
        assert part in shown.out, part
    (found,) = asked.json("cases", "show", str(case))["case"]
    assert found["threads"][0]["checkpoint"] is not None
    assert {sibling["step"] for sibling in found["same_subject"]} == {"annotate", "notify"}
    assert found["trace"]["attempts"][0]["seen"] == "accepted"
    own = ("cases", "resolve", str(case), "--evidence", "a letter", "--because", "asked the provider")
    wrong = asked(*own, "--fact", "paid", "--token", "finance-lead")
    assert wrong.code == 2
    chain = asked(*own, "--fact", "completed", "--token", "support-manager")
    assert (chain.code, "stands in the chain" in chain.errors) == (1, True)
    early = asked(
        "cases", "close", str(case), "--because", "x", "--eval", "lost-reply", "--token", "finance-lead"
    )
    assert (early.code, "not final" in early.errors) == (1, True)
    asked.done(*own, "--fact", "completed", "--token", "finance-lead")
    nothing = asked("cases", "close", str(case), "--because", "settled", "--token", "finance-lead")
    assert (nothing.code, "--no-eval" in nothing.errors) == (1, True)
    asked.done(
        "cases", "close", str(case), "--because", "settled", "--eval", "lost-reply", "--token", "finance-lead"
    )
    assert asked.json("cases")["cases"] == []
    assert asked.json("cases", "--all")["cases"][0]["closed_by"] == "finance-lead"
    closed = asked.done("cases", "show", str(case))
    assert "resolve by finance-lead (finance_lead)" in closed
    assert '"a letter"' in closed


def test_a_replay_is_dry_by_default_and_its_run_carries_it_on(asked: Remit) -> None:
    """What would happen and why it is safe, without a token; with --go the run goes on, and one credit is there."""
    with psycopg.connect(os.environ["REMIT_OWNER_URL"], autocommit=True) as owner:
        owner.execute(
            "SELECT remit.open_case(o, 'budget', 'tried') FROM remit.operations o WHERE key = %s", [KEY]
        )
    (case,) = (str(row["id"]) for row in asked.json("cases")["cases"])
    asked.done("approve", asked.open_approval()["id"], "--token", "finance-lead")
    asked("resume")
    assert given(asked) == 0
    dry = asked.done("cases", "replay", case)
    assert "safe: everything sent so far" in dry
    assert "Nothing was changed" in dry
    assert asked.json("cases", "replay", case)["replay"][0]["way"] == "send"
    assert asked.json("cases", "show", case)["case"][0]["acts"] == []
    nobody = asked("cases", "replay", case, "--go", "--because", "again")
    assert (nobody.code, "--token" in nobody.errors) == (1, True)
    asked.done("cases", "replay", case, "--go", "--because", "nothing was sent", "--token", "finance-lead")
    assert given(asked) == 0
    asked("resume")
    assert given(asked) == 1
    barred = asked("cases", "replay", case)
    assert (barred.code, "not safe: " in barred.out) == (3, True)


def test_a_case_of_a_run_that_is_not_ones_own_business_is_none(company: Remit) -> None:
    """F18: the listing leaves it out with its purpose, and by its number it does not exist."""
    company.done("mandate", "grant", MANDATE, "--token", "support-manager", "--yes")
    company("run", "outage-0611", "--token", "support-manager")
    with psycopg.connect(os.environ["REMIT_OWNER_URL"], autocommit=True) as owner:
        owner.execute(
            "INSERT INTO remit.cases (run_id, code, detail) SELECT id, 'blocked', '' FROM remit.runs"
        )
    company.done(
        "token",
        "new",
        "second-manager",
        "--role",
        "support_manager",
        "--days",
        "1",
        "--token",
        "administrator",
    )
    (case,) = (str(row["id"]) for row in company.json("cases", "--token", "support-manager")["cases"])
    hidden = company.json("cases", "--token", "second-manager")
    assert hidden["cases"] == []
    assert not [row for row in hidden["counts"] if row["part"] == "purpose"]
    for words in (("show", case), ("replay", case)):
        said = company("cases", *words, "--token", "second-manager")
        assert (said.code, f"There is no case {case}." in said.errors) == (1, True)


def given(remit: Remit) -> int:
    """How many credits the payments service's own records show for customer 104."""
    return sum(one["customer"] == "c-104" for one in json.loads(remit.done("sandbox", "dump"))["credits"])


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([], "none"),
        (["SENDING", "CLOSED"], "under way"),
        (["CLOSED", "SETTLED"], "compensated"),
        (["CLOSED"], "failed"),
    ],
)
def test_compensated_is_what_an_undo_settled(states: list[str], said: str) -> None:
    """A refused or unfinished undo compensates nothing (F47)."""
    assert _compensation([{"state": state} for state in states]) == said


@pytest.mark.parametrize("state", ["PENDING", "UNKNOWN", "ACCEPTED", "SETTLED", "CLOSED", None])
def test_every_open_case_has_a_next_step(state: str | None) -> None:
    """Whatever its state, somebody is told what to do."""
    case = {"id": 7, "closed_at": None, "state": state}
    assert _next({"case": case, "replay": {"safe": False}})
