"""Limits from policy data to the company's records: what is beyond one waits, asks or is denied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.policies import EmbeddedEngine
from remit.sandbox.worlds import World
from remit.tools.actions import Json
from remit.tools.mandates import AskAbove, Limit, Money, Step
from remit.tools.questions import Answer, Question
from tests.fixtures import HOUR, Bench, Tokens, mandate_over
from tests.graph.agents import LIST, Agent, Turn, credit, finish, turn
from tests.policies.cases import copied, policy_data, with_data

DAY = 24 * HOUR
FREELY = {"approvers": ["finance_lead"], "high_above": {"USD": 1_000_000}}


def usd(amount_minor: int) -> Money:
    return Money(amount_minor=amount_minor, currency="USD")


def daily(count: int | None, amount_minor: int | None) -> dict[str, Json]:
    """A limit of every day over all purposes."""
    currency = None if amount_minor is None else "USD"
    most = {"count": count, "amount_minor": amount_minor, "currency": currency}
    return {"scope": "effect", "window": "day", **most}


def steps(*amounts: int) -> tuple[Step, ...]:
    """A step for each amount, all of them credits."""
    return tuple(
        Step(name=f"credit_{amount}", effect="credit.issue", exactly=usd(amount)) for amount in amounts
    )


class Limited:
    """Makes agents under a policy with other data for credits."""

    def __init__(self, bench: Bench, world: World, tokens: Tokens, folder: Path) -> None:
        self._parts = (bench, world, tokens)
        self._folder = folder

    async def agent(
        self,
        turns: Sequence[Turn],
        *amounts: int,
        customers: int,
        ask: AskAbove | None = None,
        total: int = 100_000,
        **effect: Json,
    ) -> Agent:
        """An agent with a mandate for these amounts, whose model plays these turns; `effect` is policy data."""
        data = policy_data()
        settings = data["remit"]["settings"]
        settings["effects"]["credit.issue"].update(FREELY | effect)
        settings["roles"]["support_manager"]["credit.issue"]["each"]["USD"] = 10_000
        engine = EmbeddedEngine(with_data(copied(self._folder), data))
        limits = (Limit(effect="credit.issue", count=100, money=usd(total)),)
        mandate: dict[str, Any] = {"steps": steps(*amounts), "limits": limits, "ask_above": ask or AskAbove()}
        agent = await Agent.made(*self._parts, engine, customers, **mandate)
        agent.model.turns = [LIST, *turns]
        return agent


@pytest.fixture
def limited(bench: Bench, world: World, tokens: Tokens, tmp_path: Path) -> Limited:
    return Limited(bench, world, tokens, tmp_path / "policy")


def given(agent: Agent) -> list[int]:
    """The amounts that the company's records show, smallest first."""
    return sorted(record["amount_minor"] for record in agent.records()["credits"])


def reasons(operation: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in operation["reasons"]}


async def test_exactly_what_a_limit_leaves_is_given_and_not_a_cent_more(limited: Limited) -> None:
    """(F52) 11.85 and 18.35 fit 30.20 to the cent, in whole minor units all the way; another cent does not."""
    agent = await limited.agent([], 1185, 1835, 1, customers=3, total=3020)
    first, second, third = agent.cohort
    agent.model.turns[1:] = [
        turn(credit(1185, subject=first), credit(1835, subject=second)),
        turn(credit(1, subject=third)),
        finish(("credit_1185", 1)),
    ]
    run, _ = await agent.started()
    await agent.finished(run)
    assert given(agent) == [1185, 1835]
    (late,) = [o for o in await agent.operations() if o["amount_minor"] == 1]
    assert (late["attempts"], late["closed"]) == (0, "cancelled")
    (limit,) = [
        row
        for row in await agent.bench.database.rows("limits", which="credit.issue", every=False, limit=9)
        if row["name"].startswith("mandate:")
    ]
    assert (limit["amount_minor"], limit["most_amount_minor"]) == (3020, 3020)


async def test_ten_credits_that_each_stay_below_the_threshold_ask_together(limited: Limited) -> None:
    """(F53) Ten times 9.99 under a threshold of 10.00 is one proposal of 99.90: a person decides."""
    agent = await limited.agent([turn(credit(999))], 999, customers=10, ask=AskAbove(money=usd(1000)))
    with agent.nothing_changes():
        _, end = await agent.started()
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": 10})
    assert {frozenset(reasons(o)) for o in await agent.operations()} == {frozenset({"ask_above_amount"})}


async def test_a_split_over_steps_is_one_proposal(limited: Limited) -> None:
    """(F53) Two steps of 6.00 each for two customers are 12.00, above a threshold of 10.00."""
    agent = await limited.agent([], 600, 601, customers=2, ask=AskAbove(money=usd(1000)))
    first, second = agent.cohort
    agent.model.turns[1:] = [turn(credit(600, subject=first), credit(601, subject=second))]
    with agent.nothing_changes():
        _, end = await agent.started()
    assert end.waits == {"approval": 2}


async def test_a_split_over_purposes_is_asked_about_once_the_days_budget_is_used(limited: Limited) -> None:
    """(F53) 9.99 goes out for one purpose; the same for another purpose on the same day needs a person."""
    agent = await limited.agent(
        [turn(credit(999)), finish()], 999, customers=1, auto_budget=[daily(None, 1000)]
    )
    run, _ = await agent.started()
    assert (await agent.finished(run)).status == "COMPLETED"
    await agent.grant(agent.mandate.model_copy(update={"purpose": "outage-again"}))
    agent.model.asked.clear()
    with agent.nothing_changes():
        _, end = await agent.started()
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": 1})
    assert reasons((await agent.operations())[-1]) == {"auto_budget"}
    await agent.approve()
    await agent.finished(end.run_id)
    assert given(agent) == [999, 999]


class Meanwhile:
    """A policy engine during whose first answer somebody else acts."""

    def __init__(self, engine: Any, act: Callable[[Answer], Awaitable[None]]) -> None:
        self._engine = engine
        self._act = [act]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def ask(self, question: Question) -> Answer:
        answer: Answer = await self._engine.ask(question)
        while self._act:
            await self._act.pop()(answer)
        return answer


async def test_who_loses_the_race_for_a_budget_after_the_verdict_asks_a_person(
    limited: Limited, bench: Bench, tokens: Tokens
) -> None:
    """(F53, F54) Allowed, and then another run takes the rest of the day's budget: now a person decides."""
    agent = await limited.agent([turn(credit(999))], 999, customers=1, auto_budget=[daily(1, None)])

    async def rival(answer: Answer) -> None:
        mandate = mandate_over("rival")
        lease = await bench.run_over(tokens, agent.cohort, mandate)
        terms = answer.decisions[0].obligations.model_dump(mode="json")
        ids = await bench.propose(lease, "credit", agent.cohort, mandate=mandate, obligations=terms)
        (claimed,) = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, bench.runner._terms)
        assert claimed.refused is None

    agent.policy.engine = Meanwhile(agent.policy.engine, rival)
    with agent.nothing_changes():
        _, end = await agent.started()
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": 1})
    (asked,) = [o for o in await agent.operations() if o["purpose"] == agent.mandate.purpose]
    assert (reasons(asked), asked["attempts"]) == ({"auto_budget"}, 0)


@pytest.mark.parametrize(("proposed", "denied"), [((8400, 8400), []), ((3401, 5000), [{"subject_limit"}])])
async def test_one_customer_gets_no_more_than_what_was_paid(
    limited: Limited, proposed: tuple[int, int], denied: list[set[str]]
) -> None:
    """(F53) Of 84.00 paid, 84.00 is credited once however often it is proposed; 34.01 goes out, and not also 50.00."""
    paid = [{"count": None, "amount_minor": 8400, "currency": "USD"}]
    plan = turn(*(credit(amount) for amount in proposed))
    agent = await limited.agent([plan, finish()], *sorted({*proposed}), customers=1, per_subject=paid)
    run, _ = await agent.started()
    await agent.finished(run)
    assert given(agent) == [proposed[0]]
    assert [reasons(o) for o in await agent.operations() if o["closed"] == "denied"] == denied


async def test_what_does_not_fit_a_day_goes_the_next_day_by_itself(limited: Limited) -> None:
    """Two of three credits fit today; the run pauses until the calendar turns, and completes without anybody's hand."""
    agent = await limited.agent([turn(credit(999)), finish()], 999, customers=3, volume=[daily(2, 100_000)])
    run, end = await agent.started()
    await agent.swept_to("credit_999", "SETTLED", "PENDING")
    end = await agent.drive(run)
    assert (end.status, end.waits) == ("PAUSED", {"limit_window": 1})
    assert given(agent) == [999, 999]
    assert await agent.bench.database.value("run_ready", run=run) is False
    await agent.skip(DAY)
    assert (await agent.finished(run)).status == "COMPLETED"
    assert given(agent) == [999, 999, 999]


async def test_an_amount_beyond_every_bound_is_refused_where_it_comes_in(limited: Limited) -> None:
    """(F27) 2^64 + 1 minor units, as a model may write it, reaches no policy, no ledger and no receiver."""
    agent = await limited.agent([turn(credit(18446744073709551617)), finish()], 999, customers=1)
    with agent.nothing_changes():
        run, _ = await agent.started()
    stored = (await agent.plans(run))[1]
    assert stored["results"]["1"]["error"] == "invalid_arguments"
    assert await agent.operations() == []
