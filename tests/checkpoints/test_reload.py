"""What was hashed is what comes back: values are JSON primitives, in the ledger and in a checkpoint (F30, F31)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from remit.checkpoints.saver import Unreadable, saver, thread_config
from remit.tools.actions import Action, Request, Strict, action_hash, canonical_hash, intent_hash
from remit.tools.mandates import Mandate
from tests.fixtures import Bench, Tokens, mandate_over

SUBJECT = "customer:c-104"

FOLD = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"), fold=1)
"""The second half past two of the night in which the clock goes back: 01:30 in UTC, where the first is 00:30."""


ACTIONS = ("a-1", "a-2")


class Risk(StrEnum):
    """As a model might nest it."""

    HIGH = "high"


class Judged(Strict):
    """A risk inside a model."""

    risk: Risk


class Held(TypedDict, total=False):
    """The state of the test's graph."""

    value: Any


@dataclass(frozen=True)
class Gone:
    """A class that a later version no longer has."""

    n: int


def as_stored() -> dict[str, Any]:
    """A nested enum, a time in the fold and a tuple of action ids, in the form in which they may be stored."""
    return {
        "judged": Judged(risk=Risk.HIGH).model_dump(mode="json"),
        "at": FOLD.astimezone(UTC).isoformat(),
        "actions": [*ACTIONS],
        "largest": 2**53 - 1,
    }


def graph_over(bench: Bench, value: Any) -> Any:
    """One node that puts the value into the state."""

    def put(state: Held) -> Held:
        return {"value": value}

    graph = StateGraph(Held)
    graph.add_node("put", put)
    graph.add_edge(START, "put")
    graph.add_edge("put", END)
    return graph.compile(checkpointer=saver(bench.database.pool))


async def kept(bench: Bench, tokens: Tokens, value: Any) -> Any:
    """The value after it was written into a checkpoint and read by another saver."""
    lease = await bench.run_over(tokens, [SUBJECT])
    config: RunnableConfig = thread_config(lease.run_id, 1, lease.token, "g")
    await graph_over(bench, value).ainvoke({}, config, durability="sync")
    return (await graph_over(bench, None).aget_state(config)).values["value"]


async def test_stored_values_are_the_same_after_a_checkpoint_and_mean_the_same(
    bench: Bench, tokens: Tokens
) -> None:
    """F31: the same hash before and after, and parsed again they are the enum, the moment and the ids they were."""
    before = as_stored()
    after = await kept(bench, tokens, before)
    assert after == before
    assert canonical_hash(after) == canonical_hash(before)
    assert Judged.model_validate_json(json.dumps(after["judged"])).risk is Risk.HIGH
    assert tuple(after["actions"]) == ACTIONS
    assert datetime.fromisoformat(after["at"]) == FOLD.astimezone(UTC)
    assert datetime.fromisoformat(after["at"]).hour == 1
    assert [type(one) for one in after.values()] == [dict, str, list, int]


@pytest.mark.parametrize(
    "value",
    [FOLD, Judged(risk=Risk.HIGH), Gone(1), {("a-1", "a-2")}, {"risk": Risk.HIGH}],
    ids=["a zoned time", "a model", "a dataclass", "a set of tuples", "a nested enum"],
)
async def test_what_is_no_json_value_never_comes_back_as_something_else(
    bench: Bench, tokens: Tokens, value: Any
) -> None:
    """F30, F31: neither None nor a dict nor a fixed offset in its place, but a thread that cannot be read."""
    with pytest.raises(Unreadable):
        await kept(bench, tokens, value)


@pytest.mark.parametrize(
    "value", [FOLD, Judged(risk=Risk.HIGH), ("a-1",), {1}, 2**53, 1.0, b"x", float("nan")]
)
def test_what_has_no_exact_json_form_has_no_hash(value: Any) -> None:
    """F31: it is refused where the hash is made, so nothing is approved that would be another thing after a reload."""
    with pytest.raises(ValueError, match="no exact JSON form"):
        canonical_hash({"value": value})


async def test_every_hash_is_the_same_after_a_reload(bench: Bench, tokens: Tokens) -> None:
    """F31: intent, action and mandate, computed again from what the database gives back, for each tool."""
    mandate = mandate_over()
    lease = await bench.run_over(tokens, [SUBJECT], mandate)
    rows = {step: bench.row(step, SUBJECT, requires=()) for step in ("credit", "annotate", "notify")}
    for step in rows:
        await bench.propose(lease, step, [SUBJECT])
    stored = {row["step"]: row for row in await bench.sql("SELECT * FROM remit.operations")}
    for operation in await bench.ledger.sendable(lease.run_id, 0, 10):
        step, row = operation.step, stored[operation.step]
        again = Action(
            purpose=row["purpose"],
            step=step,
            subject=operation.subject,
            effect=operation.effect,
            tool=operation.tool,
            tool_version=row["tool_version"],
            intent=operation.intent,
            request=Request.model_validate(operation.request),
            relied_on=operation.relied_on,
            mandate_hash=row["mandate_hash"],
        )
        assert action_hash(again) == row["action_hash"] == rows[step]["action_hash"]
        assert intent_hash(operation.intent) == row["intent_hash"] == rows[step]["intent_hash"]
    granted = await bench.database.row("run", run=lease.run_id)
    assert granted is not None
    assert Mandate.model_validate(granted["document"], strict=False).hash == mandate.hash
