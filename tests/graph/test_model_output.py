"""Unvalidated model output reaches nothing: F56, F57, F59, F60. Whatever a model writes, each call gets one answer."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from remit.graph.intake import checked_json
from remit.graph.model import Call, Reply
from tests.graph.agents import DONE, LIST, Agent, annotate, call, credit, raw_call, turn

SUBJECT = "customer:c-104"
OUTSIDE = "customer:c-0"


def credit_with(amount: str, extra: str = "") -> Call:
    """A credit whose amount is any text; the rest of it is right."""
    return raw_call(
        "issue_credit", f'{{"subject":"{SUBJECT}","currency":"USD","amount_minor":{amount}{extra}}}'
    )


def note_with(text: str) -> Call:
    return raw_call("annotate_account", f'{{"subject":"{SUBJECT}","note":"{text}"}}')


WRONG = [
    raw_call("issue_credit", "{amount: 5}"),
    raw_call("issue_credit", "[]"),
    raw_call("issue_credit", "null"),
    raw_call("issue_credit", '"x"'),
    raw_call("issue_credit", "{}"),
    raw_call("issue_credit", ""),
    credit_with("1000", ","),
    credit_with("true"),
    credit_with('"100"'),
    credit_with("100.0"),
    credit_with('"1_000"'),
    credit_with("-5"),
    credit_with("0"),
    credit_with("NaN"),
    credit_with("1e400"),
    credit_with("1" * 5_000),
    credit_with("1000", ',"approved":true'),
    credit_with("1000", ',"amount_minor":2000'),
    credit_with("1000", ',"cohort":"cohort-1-1"'),
    credit_with("1000", ',"\\u0000":1'),
    note_with("a\\u0000b"),
    note_with("a\\ud800b"),
    note_with("a\\u202eb"),
    note_with("a" * 100_000),
    raw_call("annotate_account", '{"a":' * 10_000),
    call("issue_credit", subject="customer:../c-1", amount_minor=1000, currency="USD"),
    call("finish", statements="everything is done"),
    call("list_affected_accounts", incident="../x"),
]
"""Each of them is answered with `invalid_arguments`, and nothing else comes of it."""


async def test_no_malformed_call_becomes_a_proposal_and_the_others_of_its_plan_are_carried_out(
    agent: Agent,
) -> None:
    """Bad JSON, lax types, unknown fields, control characters: one error each, and the good call beside them runs."""
    agent.model.turns = [LIST, turn(*WRONG, credit(subject=SUBJECT)), DONE]
    run, _ = await agent.started()
    results = (await agent.plans(run))[1]["results"]
    assert {results[str(i)]["error"] for i in range(1, len(WRONG) + 1)} == {"invalid_arguments"}
    assert [(o["subject"], o["tool"], o["amount_minor"]) for o in await agent.operations()] == [
        (SUBJECT, "issue_credit", 1000)
    ]
    assert [o["call"] for o in await agent.outcomes(run, 2)] == [len(WRONG) + 1]


NAMED_ERRORS = {
    "unknown_tool": call("delete_customer", subject=SUBJECT),
    "unknown_cohort": credit(cohort="cohort-9-9"),
    "not_found": call("list_affected_accounts", incident="outage-0000"),
    "not_in_cohort": call("read_account", subject=OUTSIDE),
}


@pytest.mark.parametrize("code", NAMED_ERRORS)
async def test_what_does_not_exist_is_an_answer_to_the_model_and_no_operation(
    agent: Agent, code: str
) -> None:
    """An invented tool, cohort or incident, and a subject of somebody else, each has its code (F59)."""
    agent.model.turns = [turn(NAMED_ERRORS[code]), DONE]
    run, end = await agent.started()
    assert end.status == "INCOMPLETE"
    assert (await agent.plans(run))[0]["results"]["1"]["error"] == code
    assert await agent.operations() == []


async def test_an_undo_tool_does_not_exist_for_a_model(agent: Agent) -> None:
    """Tools for recovery mandates are not merely hidden: a model that knows one's name gets `unknown_tool`."""
    agent.model.turns = [turn(call("reverse_credit", subject=SUBJECT), Call("x", "bad\x00name", "{}")), DONE]
    run, _ = await agent.started()
    results = (await agent.plans(run))[0]["results"]
    assert [results[i]["error"] for i in ("1", "2")] == ["unknown_tool"] * 2


async def test_a_subject_outside_the_cohort_is_neither_read_nor_sent_to(agent: Agent) -> None:
    """A read about somebody else makes no call at all; a credit for them is denied and kept as a denial."""
    agent.model.turns = [turn(call("read_account", subject=OUTSIDE)), DONE]
    await agent.started()
    assert agent.bench.transport.calls == 0
    agent.model.turns, agent.model.asked = [turn(credit(subject=OUTSIDE), credit(subject=SUBJECT)), DONE], []
    await agent.started()
    denied, allowed = await agent.operations()
    assert (denied["subject"], denied["closed"]) == (OUTSIDE, "denied")
    assert "not_in_cohort" in {reason["code"] for reason in denied["reasons"]}
    assert (allowed["subject"], allowed["verdict"]) == (SUBJECT, "allow")


@pytest.mark.parametrize(("subject", "state"), [(SUBJECT, "SETTLED"), (OUTSIDE, "CLOSED")])
async def test_nine_identical_calls_are_one_operation_and_nine_answers(
    agent: Agent, subject: str, state: str
) -> None:
    """Allowed or denied, a call that is repeated within a plan meets the first one's operation (F57)."""
    agent.model.turns = [turn(*[credit(subject=subject) for _ in range(9)]), DONE]
    run, _ = await agent.started()
    await agent.finished(run)
    assert [o["state"] for o in await agent.operations()] == [state]
    assert Counter(o["outcome"] for o in await agent.outcomes(run, 1)) == {"operation": 1, "same": 8}
    answers = [message for message in agent.model.asked[-1] if message["role"] == "tool"]
    assert len({answer["tool_call_id"] for answer in answers}) == len(answers) == 9
    assert len(agent.records()["credits"]) == (1 if state == "SETTLED" else 0)


async def test_identical_calls_of_one_plan_do_not_count_as_a_repeated_denial(agent: Agent) -> None:
    """A model that says the same thing twice in one breath is answered once and asked again."""
    agent.model.turns = [turn(credit(subject=OUTSIDE), credit(subject=OUTSIDE)), DONE]
    _, end = await agent.started()
    assert (end.status, len(agent.model.asked)) == ("INCOMPLETE", 2)


async def test_two_amounts_for_one_customer_in_one_plan_are_a_conflict_and_one_operation(
    agent: Agent,
) -> None:
    """The first one stands; the other is kept as a conflict for a person."""
    agent.model.turns = [turn(credit(subject=SUBJECT), credit(2000, subject=SUBJECT)), DONE]
    run, _ = await agent.started()
    outcomes = {(o["call"], o["outcome"], o["code"]) for o in await agent.outcomes(run, 1)}
    assert outcomes == {(1, "operation", None), (2, "conflict", "other_intent_under_a_live_key")}


async def test_a_turn_cut_short_carries_out_none_of_its_calls(agent: Agent) -> None:
    """A call that the model could not finish writing is not a call, even where its text is whole."""
    agent.model.turns = [Reply("", (credit(subject=SUBJECT),), 10, truncated=True), DONE]
    run, end = await agent.started()
    assert end.status == "INCOMPLETE"
    plan = (await agent.plans(run))[0]
    assert (plan["calls"], plan["content"], await agent.operations()) == ([], "(cut short)", [])


async def test_a_model_that_only_talks_ends_the_run_by_name(agent: Agent) -> None:
    """Two turns without any call are the same plan twice."""
    agent.model.turns = [turn(content="I have credited everybody.\x00\ud800")]
    _, end = await agent.started()
    assert (end.status, end.reason.partition(":")[0], len(agent.model.asked)) == (
        "BLOCKED",
        "repeated_plan",
        2,
    )


async def test_whatever_a_model_returns_is_bounded_before_it_is_kept(agent: Agent) -> None:
    """A thousand calls, endless text and absurd token counts fill neither the ledger nor a column."""
    agent.model.turns = [
        Reply("x" * 1_000_000, tuple(annotate(subject=SUBJECT) for _ in range(1000)), -5),
        DONE,
    ]
    run, _ = await agent.started()
    plan = (await agent.plans(run))[0]
    assert (len(plan["calls"]), len(plan["content"]), plan["tokens"]) == (32, 20_000, 0)


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": {"b": [null, "x", true]}}', "{}"])
def test_an_exact_json_object_passes_unchanged(text: str) -> None:
    """Nothing is filled in and nothing is repaired."""
    assert json.loads(checked_json(text)) == json.loads(text)


@pytest.mark.parametrize(
    "text", ['{"a": 0.5}', '{"a": {"b": 1, "b": 1}}', '{"a": Infinity}', "7", "[" * 100_000]
)
def test_an_inexact_text_is_a_value_error(text: str) -> None:
    """Fractions, names that stand twice, no-numbers, other values than objects, and endless nesting."""
    with pytest.raises(ValueError, match=r"whole number|twice|not a JSON object|nested too deeply"):
        checked_json(text)
