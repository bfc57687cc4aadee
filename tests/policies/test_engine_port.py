"""One contract for every policy engine: the compiled module in this process, and a real OPA server (I10).

That both decide alike is in `test_agreement`, and each way of giving no answer in `test_no_answer`; this is what the
boundary relies on whichever engine it was given.
"""

from __future__ import annotations

import asyncio

import pytest

from remit.policies import PolicyEngine
from remit.policies.revision import HERE, revision_of
from remit.tools.errors import NoAnswer
from remit.tools.states import Verdict

from .cases import ANNOTATE, CREDIT, MANDATE, action, batch, changed, question, usd


@pytest.fixture(params=["embedded", "server"])
def engine(request: pytest.FixtureRequest) -> PolicyEngine:
    found: PolicyEngine = request.getfixturevalue(request.param)
    return found


async def test_every_action_gets_one_decision_in_order(engine: PolicyEngine) -> None:
    """With the revision that decided and an id of its own for each answer."""
    asked = question(action(CREDIT, 104), action(CREDIT, 205), action(ANNOTATE, 104))
    first, second = await engine.ask(asked), await engine.ask(asked)
    assert [decision.id for decision in first.decisions] == [one.id for one in asked.evaluations]
    assert first.revision == engine.revision == revision_of(HERE)
    assert first.decision_id != second.decision_id
    assert first.decisions == second.decisions


async def test_a_full_batch_is_answered_whole(engine: PolicyEngine) -> None:
    """A hundred actions are one question and a hundred decisions."""
    answer = await engine.ask(question(*batch(MANDATE, 100)))
    assert len(answer.decisions) == 100


async def test_a_denial_says_why(engine: PolicyEngine) -> None:
    """A verdict without an allow carries at least one reason with a code."""
    twice = changed(MANDATE, steps=(CREDIT.model_copy(update={"exactly": usd(999)}),))
    (decision,) = (await engine.ask(question(action(CREDIT), mandate=twice))).decisions
    assert decision.verdict is Verdict.DENY
    assert all(reason.code for reason in decision.reasons)
    assert decision.reasons


async def test_a_question_without_one_meaning_has_no_answer(engine: PolicyEngine) -> None:
    """Nothing is decided by whichever of two rules comes first."""
    twice = (*MANDATE.limits, MANDATE.limits[0].model_copy(update={"count": 9}))
    with pytest.raises(NoAnswer):
        await engine.ask(question(action(CREDIT), mandate=changed(MANDATE, limits=twice)))


async def test_many_questions_at_once_do_not_mix(engine: PolicyEngine) -> None:
    """Each answer is about the actions of its own question."""
    asked = [question(action(CREDIT, customer)) for customer in (104, 205, 206, 207)]
    answers = await asyncio.gather(*(engine.ask(one) for one in asked))
    assert [a.decisions[0].id for a in answers] == [one.evaluations[0].id for one in asked]


async def test_a_known_allow_and_a_known_deny_are_checked(engine: PolicyEngine) -> None:
    """The check that comes before anything is sent."""
    await engine.check()
