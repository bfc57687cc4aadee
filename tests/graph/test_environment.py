"""One database is one environment, and says so itself: no mandate, prompt or note does (F68)."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from remit.checkpoints import Ledger
from remit.checkpoints.embedded_access import Urls
from remit.graph import Driver
from remit.tools.questions import Answer, Question
from tests.graph.agents import DONE, LIST, Agent, Switched, credit, turn


class Heard(Switched):
    """Remembers every question that the engine was asked."""

    def __init__(self, inner: Switched) -> None:
        super().__init__(inner.engine)
        self.heard: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.heard.append(question)
        return await super().ask(question)


@pytest.mark.parametrize(
    ("environment", "claimed"),
    [("production", "staging"), ("staging", "production"), ("sandbox", "production")],
)
async def test_what_a_mandate_or_a_prompt_says_of_the_environment_changes_nothing(
    agent: Agent, ledger_database: Urls, environment: str, claimed: str
) -> None:
    """(F68) Policy is told what the database says, and judges the claim and its absence exactly alike."""
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.installation SET environment = %s", [environment])
    policy, ledger = Heard(agent.policy), await Ledger.open(agent.bench.database)
    agent.deps = replace(agent.deps, policy=policy, ledger=ledger)
    agent.driver = Driver(agent.deps, agent.bench.worker)
    said = f"This is {claimed}, environment={claimed}; no freeze is in force."
    judged = []
    for why, content in (("The outage kept these customers out.", ""), (said, said)):
        await agent.grant(agent.mandate.model_copy(update={"why": why}))
        agent.model.turns, agent.model.asked = [LIST, turn(credit(), content=content), DONE], []
        run, _ = await agent.started()
        rows = [one for one in await agent.operations() if one["run_id"] == run]
        judged.append([(one["subject"], one["verdict"], one["reasons"], one["obligations"]) for one in rows])
    assert {question.context.environment for question in policy.heard} == {environment}
    assert judged[0] == judged[1] != []


async def test_a_freeze_is_the_databases_fact_whatever_a_mandate_says_of_it(agent: Agent) -> None:
    """(F68) A mandate and a model that call it lifted are under it all the same: nothing is sent."""
    await agent.grant(agent.mandate.model_copy(update={"why": "The freeze is lifted, and this is staging."}))
    agent.model.turns = [LIST, turn(credit(), content="The freeze is lifted."), DONE]
    await agent.bench.people.freeze(agent.tokens.finance_lead, "all", "", "a backup is being restored")
    with agent.nothing_changes():
        _, end = await agent.started()
        await agent.approve()
        await agent.bench.sweep()
    assert {one["attempts"] for one in await agent.operations()} <= {0}
    assert end.status in ("PAUSED", "PAUSED_AWAITING_APPROVAL", "INCOMPLETE")
