"""The boundary's middle: proposals become operations with a verdict, or a reason why not. DESIGN section 5, authorize.

Keeps I2, I3 and I10: snapshots, hashes and one batched question first; operations, verdicts and gates in one
transaction afterwards; whatever gets no answer waits behind a policy gate and is counted apart from denials.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remit.checkpoints.database import json as jsonb
from remit.graph import actions
from remit.graph.actions import Prepared, Totals, Wanted
from remit.graph.asking import ask
from remit.graph.deps import Deps, RunContext
from remit.tools.actions import Json, intent_hash, reference
from remit.tools.contracts import Snapshot, Sought
from remit.tools.errors import NotSent, OutcomeUnknown
from remit.tools.mandates import Mandate
from remit.tools.ports import FaultPoint
from remit.tools.questions import BATCH, Context

ASK_AGAIN_SECONDS = 5.0
"""How long an operation waits before policy or a receiver is asked again; `remit resume` asks at once."""


MOST_STALE = 5
"""How often one key may go stale within a run before it is left to the model: a record that never stands still."""


@dataclass(slots=True)
class Judging:
    """What one look at the open proposals met: those of a silent receiver stay open, and `silence` says why."""

    receiver_silent: int = 0
    silence: str = ""


async def judge_open(deps: Deps, run: RunContext) -> Judging:
    """Judge every open proposal of the run, in batches. Idempotent: what has an outcome is not looked at again.

    What was closed as stale is opened again first, whoever closed it and whether or not that worker still lives.
    """
    met = Judging()
    await deps.database.rows("reopen_stale", run=run.run_id, token=run.lease.token, most=MOST_STALE)
    steps = [step.name for step in run.mandate.steps]
    proposal: dict[str, Any] | None = None
    looked_at: list[dict[str, Any]] = []
    while not met.receiver_silent:
        rows = await deps.database.rows("open_proposals", run=run.run_id, steps=steps, limit=BATCH)
        if not rows or rows == looked_at:
            # Empty, or another run takes each of these keys at this very moment: the next look tells what they became.
            break
        looked_at = rows
        if proposal is None:
            # Once for all batches, so that all like actions of a proposal ask a person or none does.
            proposal = await _proposal_totals(deps, run)
        await _judge_batch(deps, run, [_wanted(row) for row in rows], proposal, met)
    return met


async def judge_again(deps: Deps, run: RunContext) -> Judging:
    """Ask again where policy had no answer or has changed since. Verdicts change in place; a deny closes."""
    met = Judging()
    after = 0
    while True:
        operations = await deps.ledger.unjudged(run.run_id, after, deps.policy.revision, BATCH)
        if not operations:
            return met
        after = operations[-1].id
        await _rejudge(deps, run, [operation.id for operation in operations], met)


async def ask_people(deps: Deps, run: RunContext) -> None:
    """Ask once about everything that needs a person and was not asked about yet."""
    new_id = "ap-" + secrets.token_hex(4)
    await deps.database.rows("ask_approvals", run=run.run_id, token=run.lease.token, new_id=new_id)


async def close_stale(
    deps: Deps, run: RunContext, ids: Sequence[int], why: str = "what the decision relied on has changed"
) -> None:
    """Close operations whose premises changed; `judge_open` proposes the same intents afresh as new revisions."""
    place = {"run": run.run_id, "token": run.lease.token}
    await deps.database.rows("close_pending", **place, ids=list(ids), closed="stale", detail=why)


async def _proposal_totals(deps: Deps, run: RunContext) -> dict[str, Any]:
    return actions.totals_by(await deps.database.rows("proposal_totals", run=run.run_id), "step")


async def _judge_batch(
    deps: Deps, run: RunContext, wanted: Sequence[Wanted], proposal: dict[str, Any], met: Judging
) -> None:
    standing = await _standing(deps, run, wanted)
    outcomes: list[dict[str, Json]] = []
    fresh: dict[str, Wanted] = {}
    await _fall_back(deps, run, wanted, standing)
    for one in wanted:
        key = one.key(run.purpose)
        outcome = _met_already(run, one, standing.get(key))
        if outcome is not None:
            outcomes.append(outcome)
        else:
            # The same key twice in one batch stays open, and the next look finds the first one in the ledger.
            fresh.setdefault(key, one)
    prepared = await _prepare(deps, run, list(fresh.values()), outcomes, met)
    if prepared:
        await _propose(deps, run, prepared, standing=standing, proposal=proposal, outcomes=outcomes, met=met)
    await _resolve(deps, run, outcomes)


async def _standing(deps: Deps, run: RunContext, wanted: Sequence[Wanted]) -> dict[str, dict[str, Any]]:
    keys = sorted({one.key(run.purpose) for one in wanted})
    return {row["key"]: row for row in await deps.database.rows("key_standing", keys=keys)}


async def _fall_back(
    deps: Deps, run: RunContext, wanted: Sequence[Wanted], standing: dict[str, dict[str, Any]]
) -> None:
    """Close this run's operations whose tool wrote not one byte and whose contract falls back to what is wanted now."""
    given_up: list[int] = []
    for one in wanted:
        row = standing.get(one.key(run.purpose))
        if (
            row is None
            or not row["stuck"]
            or (row["run_id"], row["intent_hash"])
            != (
                run.run_id,
                intent_hash(one.intent),
            )
        ):
            continue
        tool = actions.find_tool(deps.catalogue, row["tool"])
        if tool is not None and tool.contract.fallback == one.tool:
            given_up.append(row["id"])
            row.update(state="CLOSED", closed="superseded")
    if given_up:
        detail = "nothing of it was ever written; the tool that its contract falls back to is tried instead"
        place = {"run": run.run_id, "token": run.lease.token}
        await deps.database.rows("fall_back", **place, ids=given_up, detail=detail)


def _met_already(run: RunContext, one: Wanted, row: dict[str, Any] | None) -> dict[str, Json] | None:
    """The outcome of a proposal whose key is taken, or None when a new revision may be proposed."""
    if row is None:
        return None
    same = row["intent_hash"] == intent_hash(one.intent)
    if row["state"] == "CLOSED":
        if not same or row["run_id"] != run.run_id:
            return None
        if row["closed"] == "refused":
            return _outcome(one, "refused", "refused_before", row["id"])
        # One plan asks one question: identical calls share the first one's answer (F57).
        answered = row["plan"] == one.plan and row["closed"] in {"denied", "rejected"}
        return _outcome(one, "same", "answered_already", row["id"]) if answered else None
    if not same:
        return _outcome(one, "conflict", "other_intent_under_a_live_key", row["id"])
    if row["state"] == "SETTLED":
        return _outcome(one, "done", "completed_already", row["id"])
    return _outcome(one, "same", "proposed_already", row["id"])


def _outcome(one: Wanted, outcome: str | None, code: str | None, operation_id: int | None) -> dict[str, Json]:
    return {
        "plan": one.plan,
        "call": one.call,
        "subject": one.subject,
        "outcome": outcome,
        "code": code,
        "operation_id": operation_id,
    }


async def _prepare(
    deps: Deps, run: RunContext, wanted: Sequence[Wanted], outcomes: list[dict[str, Json]], met: Judging
) -> list[Prepared]:
    prepared: list[Prepared] = []
    for name in sorted({one.tool for one in wanted}):
        mine = [one for one in wanted if one.tool == name]
        tool = actions.find_tool(deps.catalogue, name)
        if tool is None:
            outcomes += [_outcome(one, "refused", "unknown_tool", None) for one in mine]
            continue
        sought = [
            Sought(reference(deps.ledger.installation, o.key(run.purpose)), o.subject, o.intent) for o in mine
        ]
        await deps.database.reach(FaultPoint.BEFORE_PREMISES)
        try:
            snapshots: dict[str, Snapshot] = await tool.snapshot_many(deps.transport, sought)
        except (NotSent, OutcomeUnknown) as error:
            met.receiver_silent += len(mine)
            met.silence = str(error)
            continue
        await deps.database.reach(FaultPoint.AFTER_PREMISES)
        for one, asked in zip(mine, sought, strict=True):
            try:
                prepared.append(
                    actions.prepare(run, deps.ledger.installation, one, tool, snapshots[asked.reference])
                )
            except ValueError:
                outcomes.append(_outcome(one, "refused", "no_exact_form", None))
    return prepared


async def _propose(
    deps: Deps,
    run: RunContext,
    prepared: Sequence[Prepared],
    *,
    standing: dict[str, dict[str, Any]],
    proposal: dict[str, Any],
    outcomes: list[dict[str, Json]],
    met: Judging,
) -> None:
    requires = {p.key: actions.required_keys(run, p.wanted.step, p.wanted.subject) for p in prepared}
    needed = [key for keys in requires.values() for key in keys]
    facts, proposed = await _facts(deps, needed), await _open_keys(deps, run, needed)
    subjects = [p.wanted.subject for p in prepared]
    inside, totals = await _inside(deps, run, subjects), await totals_now(deps, run.mandate, subjects)
    barred = await _barred(
        deps, run, [(p.key, p.contract.name, p.contract.effect, p.wanted.subject) for p in prepared]
    )
    asked = [
        actions.evaluation(
            p.key,
            p.contract,
            p.wanted.step,
            subject=p.wanted.subject,
            intent=p.action.intent,
            snapshot=p.snapshot.values,
            in_cohort=p.wanted.subject in inside,
            rejected_before=bool(standing.get(p.key, {}).get("ever_rejected")),
            barred=barred[p.key],
            requires=actions.required(requires[p.key], facts, proposed),
            given=totals.given(p.contract.effect, p.wanted.subject),
        )
        for p in prepared
    ]
    answer = await ask(deps, run, await _context(deps, run, proposal, totals), asked)
    met.silence = answer.why or met.silence
    rows = [actions.operation_row(run, p, requires[p.key], answer.columns(p.key)) for p in prepared]
    added = await deps.database.rows("propose", run=run.run_id, token=run.lease.token, rows=jsonb(rows))
    ids = {row["key"]: row["operation_id"] for row in added}
    # A key that another run took in between stays open here, and the next look tells what it became.
    outcomes += [_outcome(p.wanted, "operation", None, ids[p.key]) for p in prepared if p.key in ids]


async def _rejudge(deps: Deps, run: RunContext, ids: Sequence[int], met: Judging) -> None:
    rows = await _with_tools(deps, run, await deps.database.rows("question_rows", ids=list(ids)))
    if not rows:
        return
    needed = [key for row in rows for key in row["requires"]]
    facts, proposed = await _facts(deps, needed), await _open_keys(deps, run, needed)
    keys = [row["key"] for row in rows]
    standing = {row["key"]: row for row in await deps.database.rows("key_standing", keys=keys)}
    subjects = [row["subject"] for row in rows]
    inside, totals = await _inside(deps, run, subjects), await totals_now(deps, run.mandate, subjects)
    barred = await _barred(
        deps, run, [(row["key"], row["tool"], row["effect"], row["subject"]) for row in rows]
    )
    asked = [
        actions.evaluation(
            row["key"],
            deps.catalogue.write(row["tool"]).contract,
            row["step"],
            subject=row["subject"],
            intent=row["intent"],
            snapshot=row["snapshot"],
            in_cohort=row["subject"] in inside,
            rejected_before=bool(standing[row["key"]]["ever_rejected"]),
            barred=barred[row["key"]],
            requires=actions.required(row["requires"], facts, proposed),
            given=totals.given(row["effect"], row["subject"]),
        )
        for row in rows
    ]
    answer = await ask(deps, run, await _context(deps, run, await _proposal_totals(deps, run), totals), asked)
    met.silence = answer.why or met.silence
    if not answer.judged:
        await deps.database.rows(
            "policy_silent",
            run=run.run_id,
            token=run.lease.token,
            ids=[row["id"] for row in rows],
            detail=answer.silence,
            seconds=ASK_AGAIN_SECONDS,
        )
        return
    verdicts = [{"id": row["id"], "key": row["key"], **answer.columns(row["key"])} for row in rows]
    await deps.database.rows("judge", run=run.run_id, token=run.lease.token, rows=jsonb(verdicts))


async def totals_now(deps: Deps, mandate: Mandate, subjects: Sequence[str]) -> Totals:
    """What is completed, in flight or unknown under a mandate's purpose, and used of its limits, in one query."""
    effects = sorted({step.effect for step in mandate.steps})
    about = {"purpose": mandate.purpose, "effects": effects, "subjects": sorted(set(subjects))}
    return Totals.of(await deps.database.rows("question_totals", **about))


async def _context(deps: Deps, run: RunContext, proposal: dict[str, Any], totals: Totals) -> Context:
    now = await deps.ledger.company_now()
    return actions.context(run, deps.ledger.environment, int(now.timestamp()), totals, proposal)


async def _facts(deps: Deps, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    if not keys:
        return {}
    return {row["key"]: row for row in await deps.database.rows("facts_of_keys", keys=sorted(set(keys)))}


async def _open_keys(deps: Deps, run: RunContext, keys: Sequence[str]) -> set[str]:
    """Which of these keys are proposed by this run and not judged yet, for whatever reason: they can still complete."""
    if not keys:
        return set()
    rows = await deps.database.rows("open_keys", run=run.run_id, keys=sorted(set(keys)))
    return {row["key"] for row in rows}


async def _inside(deps: Deps, run: RunContext, subjects: Sequence[str]) -> set[str]:
    rows = await deps.database.rows("in_cohort", mandate=run.mandate_hash, subjects=sorted(set(subjects)))
    return {row["subject"] for row in rows}


async def _barred(
    deps: Deps, run: RunContext, asked: Sequence[tuple[str, str, str, str]]
) -> dict[str, str | None]:
    """The kind of the order over each action, by key; `asked` holds key, tool, effect and subject."""
    keys, tools, effects, subjects = (list(column) for column in zip(*asked, strict=True))
    rows = await deps.database.rows(
        "barred", run=run.run_id, keys=keys, tools=tools, effects=effects, subjects=subjects
    )
    return {row["key"]: row["kind"] for row in rows}


async def _resolve(deps: Deps, run: RunContext, outcomes: Sequence[dict[str, Json]]) -> None:
    if outcomes:
        await deps.database.rows(
            "resolve_proposals", run=run.run_id, token=run.lease.token, rows=jsonb(list(outcomes))
        )


async def _with_tools(deps: Deps, run: RunContext, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose tool there still is; an operation of a tool that a deploy took away is closed as stale."""
    known = [row for row in rows if actions.find_tool(deps.catalogue, row["tool"]) is not None]
    gone = [row["id"] for row in rows if row not in known]
    if gone:
        await close_stale(deps, run, gone, "its tool is not in the catalogue any more")
    return known


def _wanted(row: dict[str, Any]) -> Wanted:
    return Wanted(
        step=row["step"],
        subject=row["subject"],
        tool=row["tool"],
        intent=row["intent"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        plan=row["plan"],
        call=row["call"],
    )
