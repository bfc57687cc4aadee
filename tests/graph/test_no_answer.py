"""I10 through graph, ledger and company: each way of getting no answer leaves the world as it was, under its own code.

The servers are real ones that misbehave, and the client is the one that production uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remit.policies import ServerEngine
from remit.policies.silence import SILENCES
from tests.graph.agents import DONE, LIST, Agent, credit, turn
from tests.policies.misbehaving import REVISION, WAYS, WITHOUT_HTTP, served, silent_by

SUBJECT = "customer:c-104"
KEY = f"outage-0611/credit/{SUBJECT}/1"
DEADLINE_SECONDS = 0.4
CODES = sorted({*WAYS, *WITHOUT_HTTP})

WITHIN = {"policy_question", "policy_error", "policy_too_large", "policy_canary", "policy_tls"}
"""Codes that no plain answer of a server brings about: they have tests of their own beside the engines."""


def test_every_code_that_a_server_can_bring_about_is_brought_about_here() -> None:
    """The list of codes is closed: a new one needs its way, or its place among the others."""
    assert {*CODES, *WITHIN} == set(SILENCES)


@asynccontextmanager
async def server_that(code: str) -> AsyncIterator[ServerEngine]:
    """The real client at a server that brings about this code for the question about KEY."""
    async with (
        silent_by(code, KEY) as url,
        ServerEngine(url, revision=REVISION, deadline_seconds=DEADLINE_SECONDS) as engine,
    ):
        yield engine


async def told(agent: Agent, run: str) -> dict[str, Any]:
    """The counts of one run: verdicts now, silences so far, and what the journal has of them."""
    database = agent.bench.database
    return {
        "verdicts": {
            (r["verdict"], r["code"]): r["count"] for r in await database.rows("verdict_counts", run=run)
        },
        "silences": {r["code"]: r["actions"] for r in await database.rows("silences", run=run)},
        "journal": [
            row["data"]["code"]
            for row in await database.rows("journal", run=run, operation=None, limit=1_000)
            if row["kind"] == "silences.added"
        ],
    }


@pytest.mark.parametrize("code", CODES)
async def test_nothing_is_sent_and_it_is_counted_apart_from_denials(agent: Agent, code: str) -> None:
    """No effect, no verdict, no denial: an operation that waits for policy, and the code in gate, count and journal
    (F22, F23, F24, F25, F28)."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), DONE]
    async with server_that(code) as engine:
        driver = agent.driver_with(policy=engine)
        with agent.nothing_changes():
            run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
            end = await driver.drive(run)
    assert (end.status, end.waits) == ("PAUSED", {"policy": 1})
    (operation,) = await agent.operations()
    assert (operation["state"], operation["verdict"], operation["attempts"]) == ("PENDING", None, 0)
    assert await told(agent, run) == {
        "verdicts": {("no_answer", code): 1},
        # As a proposal, and at once again with everything that has no verdict yet.
        "silences": {code: 2},
        "journal": [code],
    }


async def test_a_read_and_a_write_of_one_plan_are_both_left_undone(agent: Agent) -> None:
    """The server is down: nothing is read, nothing is sent, and neither looks like an allow or a deny (F24, F28)."""
    agent.model.turns = [turn(*LIST.calls, credit(subject=SUBJECT)), DONE]
    async with server_that("policy_unreachable") as engine:
        driver = agent.driver_with(policy=engine)
        with agent.nothing_changes():
            run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
            await driver.drive(run)
    assert agent.bench.transport.calls == 0
    assert await agent.operations() == []
    assert await told(agent, run) == {
        "verdicts": {},
        "silences": {"policy_unreachable": 0},
        "journal": ["policy_unreachable"],
    }


async def test_a_silence_that_lasts_is_one_line_of_the_journal_and_a_count(agent: Agent) -> None:
    """Asked four times without an answer: counted as often, journaled once, and the later verdict stands alone."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), DONE]
    agent.policy.silent = True
    run, _ = await agent.started()
    for _ in range(2):
        await agent.drive(run, by_person=True)
    (silence,) = await agent.bench.database.rows("silences", run=run)
    assert (silence["times"], silence["actions"]) == (4, 4)
    assert (await told(agent, run))["journal"] == ["policy_unreachable"]
    agent.policy.silent = False
    await agent.finished(run)
    assert (await told(agent, run))["verdicts"] == {("allow", ""): 1}
    assert len(agent.records()["credits"]) == 1


async def test_each_verdict_keeps_the_question_that_it_answers(agent: Agent) -> None:
    """What was said about each action, once; what its batch has in common, once for all of them."""
    run, _ = await agent.started()
    questions = await agent.bench.sql("SELECT * FROM remit.questions")
    operations = await agent.operations()
    assert {(q["operation_id"], q["decision_id"]) for q in questions} == {
        (o["id"], o["decision_id"]) for o in operations
    }
    assert {q["evaluation"]["id"] for q in questions} == {o["key"] for o in operations}
    assert len(await agent.bench.sql("SELECT * FROM remit.contexts")) == 1
    agent.policy.other_revision = "r1-another"
    await agent.drive(run)
    assert len(await agent.bench.sql("SELECT * FROM remit.questions")) == 2 * len(questions)


async def test_the_company_hears_of_nothing_while_a_redirect_leads_to_an_allow(agent: Agent) -> None:
    """Whoever answers for the policy server with a redirect to its own allow is not followed (F25)."""
    agent.model.turns = [turn(credit(subject=SUBJECT)), DONE]
    async with (
        served(WAYS["policy_redirect"](KEY)) as (url, seen),
        ServerEngine(url, revision=REVISION) as engine,
    ):
        with agent.nothing_changes():
            driver = agent.driver_with(policy=engine)
            await driver.drive(await driver.start(agent.tokens.support_manager, agent.mandate.hash))
    assert {request.path for request in seen} == {"/v1/data/remit/boundary/decisions"}
