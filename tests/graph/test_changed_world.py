"""The world moves while a run waits: premises are read again, and receivers that are away are waited for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.graph import judging
from remit.tools.catalogue import Catalogue
from remit.tools.errors import NotSent
from remit.tools.runner import Runner
from remit.tools.transport import Response
from tests.graph.agents import (
    BY_AN_EMPLOYEE,
    CAMPAIGN,
    DONE,
    FEW,
    LIST,
    Agent,
    annotate,
    call,
    credit,
    notify,
    turn,
)

SUBJECT = "customer:c-104"


async def test_who_was_given_the_credit_by_somebody_else_meanwhile_gets_no_second_one(agent: Agent) -> None:
    """The approved action goes stale, a new revision of it is denied, and the others go on (F16)."""
    run, _ = await agent.approved()
    await agent.world.ask("payments", "POST", "/legacy/credits", BY_AN_EMPLOYEE)
    end = await agent.finished(run)
    assert end.status == "INCOMPLETE"
    revisions = [o for o in await agent.operations("credit") if o["subject"] == SUBJECT]
    assert [(o["revision"], o["closed"], o["attempts"]) for o in revisions] == [
        (1, "stale", 0),
        (2, "denied", 0),
    ]
    assert {reason["code"] for reason in revisions[1]["reasons"]} == {"already_given"}
    assert Counter(c["customer"] for c in agent.records()["credits"]) == Counter(agent.customers)
    assert {m["customer"] for m in agent.records()["messages"]} == agent.customers - {"c-104"}
    assert [o for o in await agent.outcomes(run, 2) if o["closed"] == "stale"] == []


async def test_what_was_closed_as_stale_by_a_worker_that_died_is_proposed_again(agent: Agent) -> None:
    """Nothing is lost between the closing and the new revision: the proposal is open again for whoever comes next."""
    run, _ = await agent.approved()
    lease = await agent.bench.leased(run)
    first, *_ = await agent.operations("credit")
    await agent.bench.database.rows(
        "close_pending", run=run, token=lease.token, ids=[first["id"]], closed="stale", detail="a test"
    )
    await agent.bench.database.rows(
        "release_run", run=run, token=lease.token, status="RUNNING", reason="", waits="{}"
    )
    end = await agent.drive(run)
    assert end.waits["approval"] == 1, "the new revision needs a person, the others are on their way"
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_an_account_that_an_employee_changed_in_between_is_read_and_judged_again(agent: Agent) -> None:
    """A note that met another version (412) is no end for that customer: the next revision lands on the new version."""
    agent.model.turns = [LIST, turn(credit()), turn(annotate()), turn(notify()), DONE]
    run, _ = await agent.approved()
    await _edited_before_the_write(agent)
    assert (await agent.finished(run)).status == "COMPLETED"
    notes = [o for o in await agent.operations("annotate") if o["subject"] == SUBJECT]
    assert [(o["revision"], o["closed"]) for o in notes] == [(1, "stale"), (2, None)]
    assert agent.breaches(final=True) == []


async def test_a_record_that_never_stands_still_is_left_to_the_model_after_five_tries(agent: Agent) -> None:
    """No endless chain of revisions: the sixth is not proposed by itself."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), turn(annotate(subject=SUBJECT)), DONE]
    await _edited_before_the_write(agent, times=100)
    run, _ = await agent.started()
    end = await agent.finished(run)
    assert end.status == "INCOMPLETE"
    assert [o["closed"] for o in await agent.operations("annotate")] == ["stale"] * 5


async def test_a_template_that_promises_something_else_meanwhile_is_not_sent(agent: Agent) -> None:
    """The message's promise is read again before it leaves: what policy allowed is not what the template says now."""
    run, _ = await agent.approved()
    await _promising(agent, "month_extension")
    end = await agent.finished(run)
    assert (end.status, agent.records()["messages"]) == ("INCOMPLETE", [])
    last = {o["subject"]: o for o in await agent.operations("notify")}
    assert {reason["code"] for o in last.values() for reason in o["reasons"]} == {"promise_not_delegated"}
    assert Counter(o["closed"] for o in await agent.operations("notify")) == {"stale": FEW, "denied": FEW}


@pytest.mark.parametrize("service", ["accounts", "payments"])
async def test_a_receiver_that_is_down_when_its_records_are_read_pauses_the_run_and_then_it_goes_on(
    agent: Agent, service: str
) -> None:
    """No customer is burnt and no proposal lost; the reason names the receiver; resuming asks it again."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), DONE]
    await agent.world.control.add_fault(service, "refuse")
    run, end = await agent.started()
    assert (end.status, end.waits) == ("PAUSED", {"receiver": 1})
    assert service in end.reason
    assert await agent.operations() == []
    assert not await agent.bench.database.value("run_ready", run=run), "asked again at once, in a tight loop"
    await agent.world.control.clear_faults()
    assert (await agent.drive(run, by_person=True)).waits in ({"settlement": 1}, {})
    await agent.finished(run)
    assert len(agent.records()["credits"]) == 1


async def test_what_follows_an_action_whose_receiver_is_silent_is_not_denied_for_that(agent: Agent) -> None:
    """Payments is down, accounts and mail answer: the notes and messages wait for their credit like everything else."""
    await agent.world.control.add_fault("payments", "refuse")
    run, end = await agent.started()
    assert end.waits["receiver"] == FEW
    assert {o["verdict"] for o in await agent.operations()} == {"allow"}
    await agent.world.control.clear_faults()
    await agent.drive(run, by_person=True)
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_a_read_that_gets_no_answer_is_read_again_and_the_model_is_not_asked_meanwhile(
    agent: Agent,
) -> None:
    """The plan stays as it is until the receiver answers; none of its other calls is half carried out."""
    agent.model.turns = [
        turn(call("list_affected_accounts", incident="outage-0611"), credit(subject=SUBJECT)),
        DONE,
    ]
    await agent.world.control.add_fault("accounts", "refuse")
    run, end = await agent.started()
    assert (end.status, end.waits, len(agent.model.asked)) == ("PAUSED", {"receiver": 1}, 1)
    assert (await agent.drive(run, by_person=True)).waits == {"receiver": 1}
    assert len(agent.model.asked) == 1
    await agent.world.control.clear_faults()
    await agent.drive(run, by_person=True)
    await agent.finished(run)
    assert (await agent.plans(run))[0]["results"]["1"]["count"] == FEW
    assert len(agent.records()["credits"]) == 1


@pytest.mark.parametrize("fault", ["refuse", "expired_credential"])
async def test_a_receiver_that_is_down_when_approved_actions_are_to_be_sent_burns_nobody(
    agent: Agent, fault: str
) -> None:
    """A refused connection or credential: all wait, and all are credited once it is put right (F40)."""
    run, _ = await agent.approved()
    await agent.world.control.add_fault("payments", fault, times=None)
    end = await agent.drive(run)
    assert (end.status, end.waits["receiver"], agent.records()["credits"]) == ("PAUSED", FEW, [])
    assert "payments" in end.reason
    await agent.world.control.clear_faults()
    await agent.drive(run, by_person=True)
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_a_run_before_a_closed_door_is_woken_when_the_probe_is_due_and_not_before(
    agent: Agent, ledger_database: Urls
) -> None:
    """It pauses instead of sleeping, nothing drives it meanwhile, and it goes on without anybody's word."""
    run, _ = await agent.approved()
    await agent.world.control.add_fault("payments", "refuse")
    end = await agent.drive(run)
    assert (end.status, end.waits["receiver"]) == ("PAUSED", FEW)
    called = len(agent.bench.transport.called)
    await agent.bench.sweep()
    assert not await agent.bench.database.value("run_ready", run=run)
    assert len(agent.bench.transport.called) == called
    await agent.world.control.clear_faults()
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.receivers SET probe_at = clock_timestamp()")
        await owner.execute("UPDATE remit.leases SET heartbeat_at = heartbeat_at - interval '1 minute'")
    assert await agent.bench.database.value("run_ready", run=run)
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_the_tool_that_a_contract_falls_back_to_takes_over_where_nothing_was_written(
    agent: Agent,
) -> None:
    """The older path was refused three times, which is its budget: the model takes the other one, once."""
    old = call("issue_credit_legacy", subject=SUBJECT, amount_minor=1000, currency="USD")
    agent.model.turns = [turn(old), turn(credit(subject=SUBJECT)), DONE]
    transport = agent.bench.transport
    usual = transport.call

    async def refused(receiver: str, method: str, path: str, **rest: Any) -> Response:
        if path == "/legacy/credits":
            raise NotSent("payments refused the connection. Look at it.", code="not_written")
        return await usual(receiver, method, path, **rest)

    transport.call = refused  # type: ignore[method-assign]
    run, end = await agent.started()
    for _ in range(5):
        if end.paused:
            end = await agent.drive(run, by_person=True)
    await agent.finished(run)
    old_one, new_one = await agent.operations("credit")
    assert (old_one["closed"], old_one["attempts"], new_one["tool"]) == ("superseded", 3, "issue_credit")
    assert (new_one["state"], [c["path"] for c in agent.records()["credits"]]) == ("SETTLED", ["credits"])
    assert await agent.bench.cases() == []


async def test_lost_replies_and_failures_after_the_effect_end_in_the_same_state(agent: Agent) -> None:
    """What timed out is asked for at the system of record before anything is sent again: still one of each."""
    control = agent.world.control
    await control.add_fault("payments", "reply_lost", "POST /credits")
    await control.add_fault("payments", "error_after", "POST /credits")
    await control.add_fault("payments", "error_before", "POST /credits", skip=2)
    await control.add_fault("mail", "reply_lost", "POST /messages", skip=1)
    await control.add_fault("accounts", "error_after", "PATCH /accounts/{id}", skip=2)
    run, _ = await agent.approved()
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


async def test_the_steps_of_a_plan_are_judged_in_the_order_of_the_mandate(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that names the message before the credit gets the same verdicts, in however many batches."""
    monkeypatch.setattr(judging, "BATCH", 2)
    agent.model.turns = [LIST, turn(*reversed(CAMPAIGN.calls)), DONE]
    _, end = await agent.started()
    assert end.waits == {"approval": FEW, "requirement": 2 * FEW}
    assert {o["verdict"] for o in await agent.operations("notify")} == {"allow"}


@pytest.mark.parametrize("revision", [None, "r1-another"])
async def test_what_is_left_of_a_tool_that_a_deploy_took_away_is_not_sent_and_not_lost(
    agent: Agent, revision: str | None
) -> None:
    """It becomes a case where it was judged already, and is refused by name where it had to be judged again."""
    old = call("issue_credit_legacy", cohort="cohort-1-1", amount_minor=1000, currency="USD")
    agent.model.turns = [LIST, turn(old), DONE]
    run, _ = await agent.approved()
    agent.policy.other_revision = revision
    catalogue = Catalogue(
        [tool for tool in agent.bench.catalogue.writes() if tool.contract.name != "issue_credit_legacy"],
        agent.bench.catalogue.reads(),
    )
    runner = Runner(agent.bench.ledger, catalogue, agent.bench.transport)
    with agent.nothing_changes():
        end = await agent.driver_with(catalogue=catalogue, runner=runner).drive(run)
    assert end.status == "INCOMPLETE"
    codes = {(o["outcome"], o["code"]) for o in await agent.outcomes(run, 2)}
    assert codes == ({("operation", None)} if revision is None else {("refused", "unknown_tool")})
    assert await agent.bench.cases() == (["no_contract"] * FEW if revision is None else [])


async def _edited_before_the_write(agent: Agent, times: int = 1) -> None:
    """An employee changes customer 104 between the agent's read and its write, so many times."""
    transport, left = agent.bench.transport, [times]
    usual = transport.call

    async def call(receiver: str, method: str, path: str, **rest: Any) -> Response:
        if (method, path) == ("PATCH", "/accounts/c-104") and left[0]:
            left[0] -= 1
            await agent.world.control.edit("c-104", {"notes": f"An employee's note {left[0]}."})
        return await usual(receiver, method, path, **rest)

    transport.call = call  # type: ignore[method-assign]


async def _promising(agent: Agent, promise: str) -> None:
    """The mail service declares another promise for the template of the credit."""
    transport = agent.bench.transport
    usual = transport.call

    async def call(receiver: str, method: str, path: str, **rest: Any) -> Response:
        answer = await usual(receiver, method, path, **rest)
        if path == "/templates":
            for template in answer.body["templates"]:
                template["promise"] = promise
        return answer

    transport.call = call  # type: ignore[method-assign]
