"""I6: what `status_of` says of every customer is what the company's own records show at that moment, and no more."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from remit.graph import Report, status_of, tell
from remit.tools.errors import Refused
from remit.tools.transport import Response
from tests.graph.agents import (
    BY_AN_EMPLOYEE,
    DONE,
    FEW,
    INCIDENT,
    LIST,
    Agent,
    campaign,
    credit,
    finish,
    turn,
)


def by_the_records(agent: Agent) -> dict[tuple[str, str], str]:
    """The fact of each subject and step of the incident, from the company's database alone."""
    records, facts = agent.records(), {}
    about = {"credit": records["credits"], "notify": records["messages"]}
    for subject in agent.cohort:
        customer = subject.partition(":")[2]
        for step, entries in about.items():
            states = {entry["status"] for entry in entries if entry["customer"] == customer}
            done = states & {"settled", "delivered"}
            facts[subject, step] = "COMPLETED" if done else "IN_PROGRESS" if states else "NOT_SENT"
        noted = any(account["id"] == customer and account["notes"] for account in records["accounts"])
        facts[subject, "annotate"] = "COMPLETED" if noted else "NOT_SENT"
    return facts


def by_the_report(report: Report) -> dict[tuple[str, str], str]:
    return {(cell.subject, cell.step): str(cell.fact) for cell in report.cells}


@campaign
async def test_after_a_stop_in_mid_run_every_fact_is_true_while_the_provider_goes_on_settling(
    agent: Agent,
) -> None:
    """Beside the company's dump of the same moment: right after the stop, when all has settled, and after the sweep."""
    await agent.world.control.settings(settle_seconds=60.0)
    run, _ = await agent.started()
    ids = [operation["id"] for operation in await agent.operations("credit")]
    await agent.approve(only=ids[:12])
    await agent.drive(run)
    await agent.skip(60.0)
    await agent.swept_to("credit", "SETTLED", "PENDING")
    await agent.approve()
    await agent.drive(run)
    await agent.bench.people.stop(agent.tokens.support_manager, "all", "", "a test")
    assert (await agent.drive(run)).status == "STOPPED"
    report = await agent.status()
    assert by_the_report(report) == by_the_records(agent)
    assert report.counts()["credit"] == {"COMPLETED": 12, "IN_PROGRESS": 12}
    assert (report.money_out, report.money_uncertain) == ({"USD": 12_000}, {"USD": 12_000})
    await agent.skip(60.0)
    report = await agent.status()
    assert by_the_report(report) == by_the_records(agent)
    assert report.counts()["credit"] == {"COMPLETED": 24}
    assert Counter(cell.before_stop for cell in report.cells if cell.step == "credit") == {
        True: 12,
        False: 12,
    }
    await agent.swept_to("credit", "SETTLED")
    assert by_the_report(await agent.status()) == by_the_records(agent)
    assert (
        await agent.bench.sql(
            "SELECT id FROM remit.attempts WHERE claimed_at > (SELECT max(issued_at) FROM remit.orders)"
        )
        == []
    )


@campaign
async def test_what_is_refused_withdrawn_lied_about_given_twice_or_taken_back_is_each_told_as_it_is(
    agent: Agent,
) -> None:
    """Five customers to whom five different things happened, by the records and not by the ledger alone."""
    refused, withdrawn, lied, twice, reversed_ = agent.cohort[:5]
    await agent.world.control.settings(settle_seconds=60.0)
    await agent.world.control.add_fault("payments", "lying_ok", match={"customer": lied.partition(":")[2]})
    _refuse(agent, refused.partition(":")[2])
    agent.model.turns = [turn(*(credit(subject=subject) for subject in agent.cohort[:5])), DONE]
    await agent.started()
    await _withdraw(agent, withdrawn)
    await agent.skip(60.0)
    await _reverse(agent, reversed_)
    cust = {**BY_AN_EMPLOYEE, "cust": twice.partition(":")[2]}
    await agent.world.ask("payments", "POST", "/legacy/credits", cust)
    report = await agent.status()
    told = {cell.subject: (cell.fact, cell.detail) for cell in report.cells if cell.step == "credit"}
    assert told[refused] == ("NOT_SENT", "no effect: refused (the receiver refused the content)")
    assert told[withdrawn] == ("NOT_SENT", "withdrawn")
    assert told[lied] == ("UNKNOWN", "the receiver said accepted; its record does not show it")
    assert told[twice] == ("COMPLETED", "the record shows it")
    assert told[reversed_] == (
        "COMPLETED",
        "the record shows it, and that 1000 minor units of it were taken back since",
    )
    assert [(found.subject, found.effect, found.count) for found in report.foreign] == [
        (twice, "credit.issue", 1)
    ]
    assert (report.money_out, report.money_uncertain) == ({"USD": 1_000}, {"USD": 1_000})
    assert "1 more effect(s) of credit.issue" in tell(report, twice)[-1]
    assert "Say that it is being looked into." in tell(report, lied)[0]


async def test_a_receiver_that_gives_no_answer_makes_what_is_not_settled_unknown_and_says_so(
    agent: Agent,
) -> None:
    """What was shown earlier stays shown; what was never sent stays not sent; others' effects are not known."""
    await agent.world.control.settings(settle_seconds=60.0)
    settled, accepted, unsent = agent.cohort[:3]
    agent.model.turns = [turn(credit(subject=settled)), turn(credit(subject=accepted)), DONE]
    run, _ = await agent.started()
    await agent.skip(60.0)
    await agent.swept_to("credit", "SETTLED")
    await agent.drive(run)
    await agent.world.control.add_fault("payments", "refuse")
    report = await agent.status()
    cells = {cell.subject: cell for cell in report.cells if cell.step == "credit"}
    assert [cells[s].fact for s in (settled, accepted, unsent)] == ["COMPLETED", "UNKNOWN", "NOT_SENT"]
    assert cells[settled].note.endswith("gives no answer now")
    assert "gives no answer" in cells[accepted].detail
    assert cells[unsent].source == "ledger"
    assert len(report.silent) == 1
    assert "is not known" in tell(report, unsent)[-1]


async def test_an_effect_of_somebody_else_is_shown_for_a_customer_to_whom_nothing_was_sent(
    agent: Agent,
) -> None:
    """Before any run: nothing was proposed, and yet the customer has a credit for the same reason."""
    await agent.world.ask("payments", "POST", "/legacy/credits", BY_AN_EMPLOYEE)
    report = await agent.status()
    assert report.counts() == {step: {"NOT_SENT": FEW} for step in ("credit", "annotate", "notify")}
    assert [(found.subject, found.count) for found in report.foreign] == [("customer:c-104", 1)]


async def test_the_view_of_one_customer_judges_statements_about_all_by_all(agent: Agent) -> None:
    """The agent says 3 of 3; asked about one customer, that is still borne out, and a false count is not."""
    run, _ = await agent.approved()
    agent.model.turns = [LIST, agent.model.turns[1], finish(("credit", FEW), ("annotate", FEW - 1))]
    await agent.finished(run)
    report = await agent.status("customer:c-104")
    assert {cell.subject for cell in report.cells} == {"customer:c-104"}
    assert [(s.step, s.proved, s.borne_out) for s in report.statements] == [
        ("credit", FEW, True),
        ("annotate", FEW, False),
    ]
    assert [line.partition(":")[0] for line in tell(report, "customer:c-104")] == [
        "credit (10.00 USD)",
        "annotate",
        "notify",
    ]


async def test_before_any_stop_no_cell_says_before_or_after(agent: Agent) -> None:
    """There is nothing to compare with."""
    agent.model.turns = [turn(credit(subject="customer:c-104")), DONE]
    run, _ = await agent.started()
    await agent.finished(run)
    assert {cell.before_stop for cell in (await agent.status()).cells} == {None}


async def test_a_purpose_that_is_not_known_is_refused_and_a_report_is_plain_json(agent: Agent) -> None:
    """The keys of the JSON form are part of the interface."""
    with pytest.raises(Refused, match="remit runs"):
        await status_of(agent.deps, "outage-0000")
    plain = (await agent.status()).to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["purpose"] == INCIDENT
    assert {
        "cells",
        "counts",
        "foreign",
        "silent",
        "statements",
        "orders",
        "cases",
        "conflicts",
        "runs",
    } <= set(plain)


def _refuse(agent: Agent, customer: str) -> None:
    """The payments service refuses a credit for this customer as wrong in content."""
    transport = agent.bench.transport
    usual = transport.call

    async def call(receiver: str, method: str, path: str, **rest: Any) -> Response:
        if (method, path) == ("POST", "/credits") and rest["body"]["customer"] == customer:
            return Response(422, {"code": "amount_invalid"}, {})
        return await usual(receiver, method, path, **rest)

    transport.call = call  # type: ignore[method-assign]


def _credit_of(agent: Agent, subject: str) -> str:
    given = agent.records()["credits"]
    return next(str(c["id"]) for c in given if c["customer"] == subject.partition(":")[2])


async def _withdraw(agent: Agent, subject: str) -> None:
    path = f"/credits/{_credit_of(agent, subject)}/withdraw"
    assert (await agent.world.ask("payments", "POST", path)).status == 200


async def _reverse(agent: Agent, subject: str) -> None:
    path = f"/credits/{_credit_of(agent, subject)}/reverse"
    assert (
        await agent.world.ask("payments", "POST", path, {"amount_minor": 1000}, key="by-hand")
    ).status == 202
