"""The database's own word on verdicts: no allow without its source, no names that only look alike, silences counted."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from remit.checkpoints.database import json
from remit.tools.errors import LeaseLost
from tests.fixtures import Bench, Tokens

SUBJECT = "customer:c-104"
HASH = "v1:" + "0" * 64


async def proposed(bench: Bench, tokens: Tokens, **changes: Any) -> list[dict[str, Any]]:
    """Proposes one credit whose row has these changes."""
    lease = await bench.run_over(tokens, [SUBJECT])
    rows = [bench.row("credit", SUBJECT) | changes]
    return await bench.database.rows("propose", run=lease.run_id, token=lease.token, rows=json(rows))


@pytest.mark.parametrize("verdict", ["allow", "needs_approval"])
@pytest.mark.parametrize(
    "missing",
    [
        {"policy_engine": None},
        {"policy_engine": ""},
        {"policy_revision": None},
        {"policy_revision": ""},
        {"decision_id": None},
        {"decision_id": ""},
        {"reasons": []},
    ],
    ids=str,
)
async def test_an_allow_for_lack_of_an_answer_cannot_look_like_an_allow(
    bench: Bench, tokens: Tokens, verdict: str, missing: dict[str, Any]
) -> None:
    """Without engine, revision, decision id and a reason the database takes no verdict that lets anything go (F28)."""
    with pytest.raises(psycopg.errors.CheckViolation, match="operations_verdict_has_its_source"):
        await proposed(bench, tokens, verdict=verdict, **missing)
    assert await bench.sql("SELECT id FROM remit.operations") == []


async def test_a_lack_of_an_answer_needs_no_source(bench: Bench, tokens: Tokens) -> None:
    """It waits behind policy, without a verdict."""
    nothing: dict[str, Any] = {
        "policy_engine": None,
        "policy_revision": None,
        "decision_id": None,
        "reasons": [],
    }
    (row,) = await proposed(bench, tokens, verdict=None, closed_detail="policy_timeout", **nothing)
    assert await bench.obstacles([row["operation_id"]]) == ["policy"]


@pytest.mark.parametrize("name", ["effect", "tool", "tool_version"])
@pytest.mark.parametrize("odd", ["issue_cr\u0435dit", "issue credit", "issue\u200b", "issue\n"])
async def test_names_that_only_look_like_others_are_refused(
    bench: Bench, tokens: Tokens, name: str, odd: str
) -> None:
    """A Cyrillic letter, a blank or a sign that nobody sees makes another name that nobody can tell apart."""
    with pytest.raises(psycopg.errors.CheckViolation, match="operations_names_are_ascii"):
        await proposed(bench, tokens, **{name: odd})


async def test_a_question_is_kept_with_the_verdict_or_not_at_all(bench: Bench, tokens: Tokens) -> None:
    """A context that nobody kept fails the proposal as a whole, so no verdict stands without its question."""
    asked = {"context": HASH, "evaluation": {"id": "x"}}
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await proposed(bench, tokens, question=asked)
    assert await bench.sql("SELECT id FROM remit.operations") == []


async def test_two_silences_of_one_code_at_once_are_counted_twice(bench: Bench, tokens: Tokens) -> None:
    """Also where both are the first; and who lost the run counts nothing."""
    lease = await bench.run_over(tokens, [SUBJECT])
    said = {"run": lease.run_id, "code": "policy_timeout", "detail": "late", "actions": 3}
    await asyncio.gather(*(bench.database.rows("count_silence", token=lease.token, **said) for _ in range(4)))
    (row,) = await bench.database.rows("silences", run=lease.run_id)
    assert (row["times"], row["actions"]) == (4, 12)
    with pytest.raises(LeaseLost):
        await bench.database.rows("count_silence", token=lease.token + 1, **said)
