"""Any number of actions: batches of at most 100, two in flight, one decision each in order, all or none."""

import asyncio

import pytest

from remit.policies import EmbeddedEngine, ask_all
from remit.tools.errors import NoAnswer
from remit.tools.questions import BATCH, Answer, Question

from .cases import CREDIT, MANDATE, action, question

ASKED = question(action(CREDIT))


class Slow:
    """A port that waits until it may answer, and counts what it sees."""

    revision = "r1-test"

    def __init__(
        self, engine: EmbeddedEngine, fail_at: int | None = None, error: Exception | None = None
    ) -> None:
        self._engine = engine
        self._fail_at = fail_at
        self._error = error or NoAnswer("Policy gave no answer.", code="policy_timeout")
        self.sizes: list[int] = []
        self.in_flight = 0
        self.most = 0

    async def ask(self, question: Question) -> Answer:
        self.sizes.append(len(question.evaluations))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if len(self.sizes) == self._fail_at:
                raise self._error
            return await self._engine.ask(question)
        finally:
            self.in_flight -= 1

    async def check(self) -> None:
        """It is always there."""


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, 3 * BATCH + 7])
async def test_each_action_has_its_decision_in_order(embedded: EmbeddedEngine, count: int) -> None:
    """The batches fit the limit, and the decisions come back in the order of the actions."""
    actions = [action(MANDATE.steps[number % 3], number) for number in range(count)]
    port = Slow(embedded)
    judged = await ask_all(port, ASKED.subject, ASKED.context, actions)
    assert [one.decision.id for one in judged] == [one.id for one in actions]
    assert sum(port.sizes) == count
    assert max(port.sizes, default=0) <= BATCH
    assert port.most <= 2


async def test_each_decision_names_its_engine_and_revision(embedded: EmbeddedEngine) -> None:
    """So that the trail can tell who decided."""
    [judged] = await ask_all(embedded, ASKED.subject, ASKED.context, [action(CREDIT)])
    assert (judged.engine, judged.revision) == ("embedded", embedded.revision)
    assert judged.decision_id


@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_one_batch_without_an_answer_leaves_all_without(embedded: EmbeddedEngine, fail_at: int) -> None:
    """No part of a proposal goes on, and nothing stays in flight."""
    actions = [action(CREDIT, number) for number in range(3 * BATCH)]
    port = Slow(embedded, fail_at)
    with pytest.raises(NoAnswer) as refused:
        await ask_all(port, ASKED.subject, ASKED.context, actions)
    assert refused.value.code == "policy_timeout"
    assert port.in_flight == 0


async def test_an_action_in_two_batches_is_not_asked_about(embedded: EmbeddedEngine) -> None:
    """Ids are unique over all batches, or decisions could not be told apart."""
    actions = [*(action(CREDIT, number) for number in range(BATCH)), action(CREDIT, 0)]
    port = Slow(embedded)
    with pytest.raises(NoAnswer) as refused:
        await ask_all(port, ASKED.subject, ASKED.context, actions)
    assert (refused.value.code, port.sizes) == ("policy_question", [])


async def until_in_flight(port: Slow, turns: int = 1_000) -> None:
    for _ in range(turns):
        if port.in_flight:
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was asked")


async def test_a_cancelled_proposal_leaves_no_question_behind(embedded: EmbeddedEngine) -> None:
    """Whoever gives up takes its questions along."""
    port = Slow(embedded)
    asking = asyncio.create_task(
        ask_all(port, ASKED.subject, ASKED.context, [action(CREDIT, number) for number in range(3 * BATCH)])
    )
    await until_in_flight(port)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert port.in_flight == 0


@pytest.mark.parametrize("fail_at", [1, 3])
async def test_an_error_that_is_no_lack_of_an_answer_reaches_the_caller_as_itself(
    embedded: EmbeddedEngine, fail_at: int
) -> None:
    """A fault of ours is neither wrapped in a group nor taken for a silence of policy."""
    port = Slow(embedded, fail_at, ZeroDivisionError("a fault"))
    with pytest.raises(ZeroDivisionError, match="a fault"):
        await ask_all(
            port, ASKED.subject, ASKED.context, [action(CREDIT, number) for number in range(3 * BATCH)]
        )
    assert port.in_flight == 0


async def test_a_fault_beside_a_silence_is_not_hidden_by_it() -> None:
    """Two batches fail at once, the first for lack of an answer: what is told is the fault."""

    class Both:
        revision = "r1-test"
        asked = 0

        async def ask(self, question: Question) -> Answer:
            self.asked += 1
            if self.asked == 1:
                raise NoAnswer("Policy gave no answer.", code="policy_timeout")
            raise ZeroDivisionError("a fault")

        async def check(self) -> None:
            """It is always there."""

    with pytest.raises(ZeroDivisionError):
        await ask_all(
            Both(), ASKED.subject, ASKED.context, [action(CREDIT, number) for number in range(2 * BATCH)]
        )
