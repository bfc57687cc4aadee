"""From the model's text to proposals: strict validation, bulk calls expanded, reads carried out. DESIGN section 5.

Unvalidated model output reaches nothing beyond this file: no default is filled in, nothing is repaired (F56, F57, F60).
Nothing is read while policy gives no answer (I10), and nothing about a subject that the mandate does not name (I2).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from remit.checkpoints.database import json as _jsonb
from remit.graph.deps import Deps, RunContext
from remit.graph.model import clean
from remit.graph.prompts import UNTRUSTED
from remit.tools.actions import Json, read_json
from remit.tools.catalogue import FINISH, Finish
from remit.tools.contracts import Arguments, ReadTool
from remit.tools.errors import Refused
from remit.tools.mandates import Mandate, Step
from remit.tools.ports import FaultPoint

UNDELEGATED = "undelegated"
"""The step of an action whose effect the mandate does not name: policy denies it, and the denial is kept."""

_SAMPLE = 3
_CHUNK = 1_000


@dataclass(slots=True)
class _Taken:
    """What one plan came to: an answer for each call that proposes nothing, the proposals, and the statements."""

    results: dict[str, Json] = field(default_factory=dict)
    reads: int = 0
    """Of the whole run, with this plan's so far."""
    proposals: list[dict[str, Json]] = field(default_factory=list)
    statements: list[dict[str, Json]] = field(default_factory=list)


def checked_json(raw: str) -> str:
    """`raw` again, if it is one JSON object with one exact meaning (see `read_json`). Raises ValueError if not."""
    parsed = read_json(raw)
    if not isinstance(parsed, dict):
        raise ValueError("arguments are not a JSON object")  # noqa: TRY004 - one error for whatever the text holds
    return json.dumps(parsed)


def step_for(mandate: Mandate, effect: str, arguments: Arguments) -> Step | None:
    """The mandate's step for an effect; of several, the one whose fixed values the arguments name."""
    steps = mandate.steps_for(effect)
    said = arguments.model_dump()
    for step in steps:
        if step.template is not None and step.template == said.get("template"):
            return step
        if step.exactly is not None and step.exactly.amount_minor == said.get("amount_minor"):
            return step
    return steps[0] if steps else None


async def take_in(deps: Deps, run: RunContext, number: int, calls: Sequence[dict[str, str]]) -> None:
    """Validate every call of a plan: writes become proposals, reads cohorts, the rest errors for the model.

    Raises NoAnswer, NotSent or OutcomeUnknown when something cannot be read now: then the plan stays as it is, and
    is taken in again later. Idempotent: cohorts, proposals and statements are written once each.
    """
    taken, reading = _Taken(), [tool.contract.name for tool in deps.catalogue.reads()]
    if {call["name"] for call in calls} & {*reading}:
        await deps.policy.check()
        taken.reads = await deps.database.value("reads_before", run=run.run_id, number=number, tools=reading)
    for index, call in enumerate(calls, start=1):
        try:
            answer = await _one(deps, run, (number, index), call, taken)
        except (ValueError, ValidationError) as error:
            answer = {"error": "invalid_arguments", "detail": _first_line(error)}
        except Refused as error:
            answer = {"error": error.code, "detail": clean(str(error))[:300]}
        if answer is not None:
            taken.results[str(index)] = answer
    await _keep(deps, run, number, taken)


async def _keep(deps: Deps, run: RunContext, number: int, taken: _Taken) -> None:
    """The results come last: where they stand, the plan has been taken in as a whole."""
    place = {"run": run.run_id, "token": run.lease.token}
    for start in range(0, len(taken.proposals), _CHUNK):
        rows = _jsonb(taken.proposals[start : start + _CHUNK])
        await deps.database.rows("store_proposals", **place, rows=rows)
    if taken.statements:
        await deps.database.rows("store_statements", **place, plan=number, rows=_jsonb(taken.statements))
    await deps.database.rows("store_results", **place, number=number, results=_jsonb(taken.results))


async def _one(
    deps: Deps, run: RunContext, place: tuple[int, int], call: dict[str, str], taken: _Taken
) -> dict[str, Json] | None:
    """The answer to one call, or None where it became proposals, whose outcomes answer it."""
    said, name = checked_json(call["arguments"]), call["name"]
    if name == FINISH:
        finish = Finish.model_validate_json(said)
        statements = [statement.model_dump() for statement in finish.statements]
        taken.statements += [one for one in statements if one not in taken.statements]
        return {"ok": "statements are kept and compared with the evidence"}
    reading = next((tool for tool in deps.catalogue.reads() if tool.contract.name == name), None)
    if reading is not None:
        taken.reads += 1
        if taken.reads > deps.budget.reads:
            raise Refused(
                f"This run has read {deps.budget.reads} times, and may not read more. Go on with what is known.",
                code="read_budget",
            )
        return await _read(deps, run, f"cohort-{place[0]}-{place[1]}", reading, said)
    tool = next((t for t in deps.catalogue.for_agents() if t.contract.name == name), None)
    if tool is None:
        raise Refused(
            f"There is no tool {name[:100]!r}. Use one of the tools of this conversation.",
            code="unknown_tool",
        )
    arguments = tool.arguments.model_validate_json(said)
    step = step_for(run.mandate, tool.contract.effect, arguments)
    subjects = await _subjects(deps, run, arguments)
    taken.proposals += [
        {
            "plan": place[0],
            "call": place[1],
            "subject": subject,
            "tool": name,
            "step": UNDELEGATED if step is None else step.name,
            "intent": intent,
            "amount_minor": intent.get("amount_minor"),
            "currency": intent.get("currency"),
        }
        for subject, intent in _intents(tool, subjects, arguments, step, run.purpose)
    ]
    return None if subjects else {"error": "empty_cohort"}


def _intents(
    tool: Any, subjects: Sequence[str], arguments: Arguments, step: Step | None, purpose: str
) -> Iterator[tuple[str, dict[str, Json]]]:
    for subject in subjects:
        yield subject, tool.intent(subject, arguments, step, purpose)


async def _subjects(deps: Deps, run: RunContext, arguments: Arguments) -> list[str]:
    if arguments.subject is not None:
        return [arguments.subject]
    row = await deps.database.row("cohort", run=run.run_id, handle=arguments.cohort)
    if row is None:
        raise Refused(
            f"There is no cohort {arguments.cohort!r} in this run. Read it first.", code="unknown_cohort"
        )
    subjects: list[str] = row["subjects"]
    return subjects


async def _read(deps: Deps, run: RunContext, handle: str, tool: ReadTool, said: str) -> dict[str, Json]:
    arguments = tool.arguments.model_validate_json(said)
    kept = await deps.database.row("cohort", run=run.run_id, handle=handle)
    if kept is not None:
        return _shown(handle, len(kept["subjects"]), kept["sample"])
    named = getattr(arguments, "subject", None)
    if named is not None and named not in await _inside(deps, run, [named]):
        raise Refused(
            f"{named} is not one of the mandate's subjects, so nothing was read. Take one of a listed cohort.",
            code="not_in_cohort",
        )
    await deps.database.reach(FaultPoint.BEFORE_READ)
    rows = await tool.read(deps.transport, arguments)
    await deps.database.reach(FaultPoint.AFTER_READ)
    tool.contract.check(rows)
    inside = await _inside(deps, run, [row["subject"] for row in rows])
    shown = [row for row in rows if row["subject"] in inside]
    await deps.database.rows(
        "store_cohort",
        run=run.run_id,
        token=run.lease.token,
        handle=handle,
        tool=tool.contract.name,
        arguments=_jsonb(json.loads(said)),
        subjects=[row["subject"] for row in shown],
        sample=_jsonb(shown[:_SAMPLE]),
    )
    result = _shown(handle, len(shown), shown[:_SAMPLE])
    if len(shown) < len(rows):
        result["outside_the_mandate"] = len(rows) - len(shown)
    return result


def _shown(handle: str, count: int, sample: Json) -> dict[str, Json]:
    """What the model sees of a read. Records hold other people's words, so they stand under a name that says so."""
    return {"cohort": handle, "count": count, UNTRUSTED: sample}


async def _inside(deps: Deps, run: RunContext, subjects: Sequence[str]) -> set[str]:
    rows = await deps.database.rows("in_cohort", mandate=run.mandate_hash, subjects=list(subjects))
    return {row["subject"] for row in rows}


def _first_line(error: Exception) -> str:
    """Cleaned, since it may repeat a name that the model wrote, NUL and all."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        return clean(f"{where[:150]}: {first['msg']}")[:300]
    return clean(str(error).splitlines()[0] if str(error) else type(error).__name__)[:300]
