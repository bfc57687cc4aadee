"""Ask about any number of actions: in batches of at most 100, two in flight, in order, all or none.

Keeps I10 for a whole proposal: one batch without an answer leaves every action of it without one.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from remit.policies.answers import unique
from remit.policies.engines import PolicyEngine
from remit.tools.errors import NoAnswer
from remit.tools.questions import BATCH, Agent, Answer, Context, Decision, Evaluation, Question

IN_FLIGHT = 2
"""As many as there are compiled instances; more would only wait, and their deadlines would run."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One decision, and which engine at which revision gave it in which answer."""

    decision: Decision
    engine: str
    revision: str
    decision_id: str


async def ask_all(
    engine: PolicyEngine, agent: Agent, context: Context, evaluations: Sequence[Evaluation]
) -> list[Judged]:
    """One judged decision per evaluation, in the same order.

    Raises the first NoAnswer of any batch, unless a batch failed otherwise: then that error, as it is.
    """
    unique([one.id for one in evaluations])
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one_batch(batch: Sequence[Evaluation]) -> Answer:
        async with places:
            return await engine.ask(Question(subject=agent, context=context, evaluations=tuple(batch)))

    answers = await _all_or_first(
        [one_batch(evaluations[start : start + BATCH]) for start in range(0, len(evaluations), BATCH)]
    )
    return [
        Judged(decision, answer.engine, answer.revision, answer.decision_id)
        for answer in answers
        for decision in answer.decisions
    ]


async def _all_or_first(questions: Sequence[Coroutine[None, None, Answer]]) -> list[Answer]:
    tasks: list[asyncio.Task[Answer]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(question) for question in questions]
    except ExceptionGroup as failed:
        # An error that is no NoAnswer is a fault of ours, and must not hide behind one that is.
        raise min(failed.exceptions, key=lambda error: isinstance(error, NoAnswer)) from None
    return [task.result() for task in tasks]
