"""I10: where policy gives no answer, nothing is read or sent, and the run pauses with that reason until it does."""

from __future__ import annotations

import socket
from typing import Any

from remit.graph.deps import load_run
from remit.graph.model import Reply
from remit.graph.sending import send_ready
from remit.policies import ServerEngine
from remit.tools.actions import reference
from remit.tools.questions import Answer, Question
from remit.tools.states import Verdict
from remit.tools.transport import Response
from tests.graph.agents import DONE, FEW, LIST, Agent, Turn, credit, turn


async def test_with_no_answer_from_the_start_not_even_the_cohort_is_read(agent: Agent) -> None:
    """The plan is made and kept; no company system is called, and the run says why (F24, F28)."""
    agent.policy.silent = True
    run, end = await agent.started()
    assert (end.status, end.waits, agent.bench.transport.calls) == ("PAUSED", {"policy": 1}, 0)
    assert "Policy gave no answer" in end.reason
    assert not await agent.bench.database.value("run_ready", run=run), "asked again at once, in a tight loop"
    agent.policy.silent = False
    assert (await agent.drive(run, by_person=True)).status == "PAUSED_AWAITING_APPROVAL"
    assert len(agent.model.asked) == 2


async def test_when_policy_falls_silent_before_the_verdict_the_operations_wait_and_are_no_denials(
    agent: Agent,
) -> None:
    """Counted apart: all behind a policy gate, none denied; later reads and sends do not happen; then it goes on."""
    agent.model.turns = [LIST, _silencing(agent), DONE]
    run, end = await agent.started()
    calls = agent.bench.transport.calls
    assert (end.status, end.waits) == ("PAUSED", {"policy": FEW})
    assert {(o["state"], o["verdict"]) for o in await agent.operations()} == {("PENDING", None)}
    assert (await agent.drive(run, by_person=True)).waits == {"policy": FEW}
    assert agent.bench.transport.calls == calls
    agent.policy.silent = False
    end = await agent.drive(run, by_person=True)
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": FEW})
    await agent.approve()
    await agent.finished(run)
    assert len(agent.records()["credits"]) == FEW


async def test_a_policy_server_that_cannot_be_reached_sends_nothing_and_is_named(agent: Agent) -> None:
    """The real client on a closed port: PAUSED, with `policy` as what is waited for, and no credit."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    async with ServerEngine(url, revision=agent.policy.revision) as server:
        driver = agent.driver_with(policy=server)
        run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
        end = await driver.drive(run)
    assert (end.status, end.waits, agent.bench.transport.calls) == ("PAUSED", {"policy": 1}, 0)
    assert "cannot be reached" in end.reason
    assert (await agent.drive(run, by_person=True)).status == "PAUSED_AWAITING_APPROVAL"


async def test_a_policy_that_changed_while_the_run_was_paused_is_asked_before_anything_is_sent(
    agent: Agent,
) -> None:
    """The same verdict under the new revision: the approval of the very same actions still holds."""
    run, _ = await agent.approved()
    asked = agent.policy.questions
    agent.policy.other_revision = "r1-another"
    await agent.finished(run)
    assert agent.policy.questions > asked
    assert {o["policy_revision"] for o in await agent.operations("credit")} == {"r1-another"}
    assert agent.breaches(final=True) == []


async def test_while_a_changed_policy_is_silent_not_even_what_was_approved_is_sent(agent: Agent) -> None:
    """The old verdict is none any more; the run waits for policy, and the approval is not asked for again."""
    run, _ = await agent.approved()
    agent.policy.other_revision, agent.policy.silent = "r1-another", True
    with agent.nothing_changes():
        end = await agent.drive(run)
    assert (end.status, end.waits["policy"]) == ("PAUSED", 3 * FEW)
    agent.policy.silent = False
    await agent.drive(run, by_person=True)
    await agent.finished(run)
    assert agent.breaches(final=True) == []
    assert len(await agent.bench.sql("SELECT id FROM remit.approvals")) == 1


async def test_a_policy_that_now_denies_closes_what_was_approved(agent: Agent) -> None:
    """No credit is sent, the approval asks nobody any more, and what followed the credit is cancelled with the run."""
    run, _ = await agent.started()
    _deny_credits(agent)
    with agent.nothing_changes():
        end = await agent.drive(run)
    assert end.status == "INCOMPLETE"
    assert {o["closed"] for o in await agent.operations("credit")} == {"denied"}
    assert await agent.approvals() == []
    (asked,) = await agent.bench.sql("SELECT status FROM remit.approvals")
    assert asked == {"status": "CANCELLED"}


async def test_nothing_is_claimed_under_a_verdict_of_another_revision(agent: Agent) -> None:
    """Also where the policy changes between judging and sending: it is asked, and only then something leaves."""
    run, _ = await agent.approved()
    context = await load_run(agent.bench.database, await agent.bench.leased(run))
    agent.policy.other_revision = "r1-another"
    with agent.nothing_changes():
        assert (await send_ready(agent.deps, context)).moved == FEW
    assert (await send_ready(agent.deps, context)).moved == FEW
    assert len(agent.records()["credits"]) == FEW


async def test_a_resend_repeats_what_was_begun_also_under_a_policy_that_changed_since(agent: Agent) -> None:
    """The reply was a failure and the records cannot be read: the same key goes out again, and nothing spins."""
    transport, control = agent.bench.transport, agent.world.control
    await control.add_fault("payments", "error_before", "POST /credits")
    sought = reference(agent.bench.ledger.installation, "outage-0611/credit/customer:c-104/1")
    unread: dict[str, object] = {"references": sought}
    await control.add_fault("payments", "html", "POST /credits/search", match=unread, times=None)
    usual = transport.call

    async def call(receiver: str, method: str, path: str, **rest: Any) -> Response:
        if path == "/credits":
            agent.policy.other_revision = "r1-another"
        return await usual(receiver, method, path, **rest)

    transport.call = call  # type: ignore[method-assign]
    agent.model.turns = [turn(credit(subject="customer:c-104")), DONE]
    run, end = await agent.started()
    assert end.waits == {"settlement": 1}
    await control.clear_faults()
    await agent.finished(run)
    (operation,) = await agent.operations("credit")
    assert (operation["state"], operation["attempts"]) == ("SETTLED", 2)
    assert len(agent.records()["credits"]) == 1


def _silencing(agent: Agent) -> Turn:
    """A turn that proposes the credits, and with it the engine falls silent."""

    def play(_: object) -> Reply:
        agent.policy.silent = True
        return turn(credit())

    return play


def _deny_credits(agent: Agent) -> None:
    """From now on policy has another revision and denies every credit."""
    usual = agent.policy.ask

    async def ask(question: Question) -> Answer:
        answer = await usual(question)
        denied = tuple(
            one.model_copy(update={"verdict": Verdict.DENY}) if "/credit/" in one.id else one
            for one in answer.decisions
        )
        return answer.model_copy(update={"decisions": denied})

    agent.policy.other_revision = "r1-stricter"
    agent.policy.ask = ask  # type: ignore[method-assign]
