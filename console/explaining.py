"""`remit policy explain`: why an operation got the verdict that it has, from what was stored when it was judged.

Keeps the past apart from the present: the explanation is of the decision that was made; asking the same question
again is shown beside it, under the revision of today.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from remit.checkpoints.database import Database, Row
from remit.console.render import amounts, many, money, quoted, safe, span
from remit.console.services import Services
from remit.console.viewing import Viewer
from remit.tools.errors import Misconfigured, NoAnswer, Refused

if TYPE_CHECKING:
    from remit.policies.explain import Explained
    from remit.tools.questions import Question

_OPERATION = (
    *("id", "key", "revision", "step", "subject", "effect", "tool", "run_id", "amount_minor", "currency"),
    *("state", "closed", "verdict", "policy_engine", "policy_revision", "decision_id"),
)

_WINDOWS = {"ever": "in all", "hour": "an hour", "day": "a day", "month": "a month"}
_SCOPES = {"purpose": "under the purpose", "effect": "over all purposes", "subject": "for one subject"}


async def explained(services: Services, viewer: Viewer, which: str) -> dict[str, Any]:
    """Everything about the newest decision of an operation; the keys are stable. Raises Refused when there is none."""
    database = viewer.database
    rows = await viewer.named("run", await database.rows("operation", which=which), "run_id")
    if not rows:
        raise Refused(
            f"There is no operation {quoted(which)}. See `remit show RUN`, or give its key.", code="nothing"
        )
    row = rows[-1]
    document: dict[str, Any] = {
        "operation": {name: row[name] for name in _OPERATION},
        "silence": await _silence(database, row),
        "explained": None,
        "question": None,
        "again": None,
    }
    kept = await database.row("question", id=row["id"])
    if row["verdict"] is None:
        return document
    if kept is None:
        return {**document, "explained": _without_question(row)}
    from remit.policies.record import kept_question

    question = kept_question(kept["context_hash"], kept["context"], kept["mandate"], kept["evaluation"])
    document["question"] = {"asked_at": kept["at"], **question.model_dump(mode="json")}
    document["explained"] = _explain(row, question).to_json()
    document["again"] = await _again(services, row, question)
    return document


async def _silence(database: Database, row: Row) -> dict[str, str] | None:
    """Why there is no verdict: the code, what it means and what to do."""
    if row["verdict"] is not None:
        return None
    from remit.policies.silence import SILENCES

    gates = await database.rows("gates", id=row["id"])
    code = next((gate["detail"] for gate in gates if gate["kind"] == "policy"), "")
    known = SILENCES.get(code)
    return {
        "code": code,
        "means": known.means if known is not None else "policy was not asked yet",
        "remedy": known.remedy if known is not None else "Carry the run on: `remit resume`.",
    }


def _decision(row: Row) -> dict[str, Any]:
    return {
        "id": row["key"],
        "verdict": row["verdict"],
        "reasons": row["reasons"],
        "obligations": row["obligations"],
    }


def _without_question(row: Row) -> dict[str, Any]:
    from remit.policies.explain import reasons_in_words

    return {"verdict": row["verdict"], "reasons": reasons_in_words(row["reasons"])}


def _explain(row: Row, question: "Question") -> "Explained":
    import json

    from remit.policies.explain import explain
    from remit.policies.revision import load_policy
    from remit.tools.mandates import Mandate
    from remit.tools.questions import Decision

    policy = load_policy()
    return explain(
        Decision.model_validate_json(json.dumps(_decision(row))),
        question.evaluations[0],
        Mandate.model_validate_json(json.dumps(question.context.mandate)),
        policy.settings if policy.revision == row["policy_revision"] else None,
    )


async def _again(services: Services, row: Row, question: "Question") -> dict[str, Any]:
    """The same question once more, today: it changes nothing and decides nothing."""
    try:
        engine = await services.policy()
        (decision,) = (await engine.ask(question)).decisions
    except (NoAnswer, Misconfigured) as error:
        return {"revision": None, "verdict": None, "reasons": [], "same": None, "error": str(error)}
    answer = decision.model_dump(mode="json")
    return {
        "revision": engine.revision,
        "verdict": answer["verdict"],
        "reasons": answer["reasons"],
        "same": answer == {**_decision(row), "id": answer["id"]},
        "error": None,
    }


def in_words(document: dict[str, Any]) -> Iterator[str]:
    """The document as sentences for a person."""
    operation, why = document["operation"], document["explained"]
    yield f"{operation['key']} revision {operation['revision']}: {operation['effect']} for {operation['subject']}"
    if document["silence"] is not None:
        silence = document["silence"]
        yield (
            f"No verdict ({silence['code'] or 'not asked'}): {silence['means']}. Nothing was sent, and nothing was "
            f"denied. {silence['remedy']}"
        )
        return
    yield (
        f"Verdict: {operation['verdict'].replace('_', ' ')}, by policy {operation['policy_revision']} "
        f"({operation['policy_engine']}, decision {operation['decision_id']})."
    )
    for reason in why["reasons"]:
        yield f"  {reason['code']}: {safe(amounts(reason['words']))}"
    if "declared" not in why:
        return
    yield from _matrix(why)
    yield from _thresholds(why)
    yield from _duties(why)
    yield from _today(document["again"])


def _matrix(why: dict[str, Any]) -> Iterator[str]:
    declared, least, cell = why["declared"], why["at_least"], why["cell"]
    text = f"The tool declares {declared['reversibility']}, {declared['consequence']} consequence"
    if least is not None:
        text += f"; policy counts it as at least {least['reversibility']}, {least['consequence']}"
    yield f"{text}."
    if cell is None:
        yield "The matrix did not decide: a reason above came before it."
        return
    asks = cell["asks"]
    told = "" if asks is None else f": {_cell(asks)}"
    yield f"Matrix, row {cell['row']}, column {cell['column']}{told}."


def _cell(asks: dict[str, Any]) -> str:
    also = [name for name in ("hold", "verify") if asks[name]]
    return " and ".join([str(asks["verdict"]).replace("_", " "), *also])


def _thresholds(why: dict[str, Any]) -> Iterator[str]:
    for one in why["thresholds"]:
        much = (
            many(one["count"], "action")
            if one["count"] is not None
            else money(one["amount_minor"], one["currency"])
        )
        yield f"A person is asked above {much} ({one['whose']})."
    if why["autonomy"] is not None:
        yield f"The effect is {why['autonomy']}."


def _duties(why: dict[str, Any]) -> Iterator[str]:
    must = why["obligations"]
    if must["approvers"]:
        each = ", ".join(f"{count} of {role}" for role, count in must["quorum_of"].items())
        yield (
            f"{many(must['quorum'], 'approval')} of {', '.join(must['approvers'])}"
            f"{f' (at least {each})' if each else ''}, outside the chain of the mandate, within "
            f"{span(must['decide_within'])}; then {span(must['execute_within'])} to carry it out."
        )
    if (later := must["on_expiry"]) is not None:
        yield (
            f"If nobody decides by then, {', '.join(later['approvers'])} is asked for {span(later['decide_within'])}."
        )
    if must["hold_seconds"]:
        yield f"Held for {span(must['hold_seconds'])} before it is sent."
    if must["verify"]:
        yield "Verified at the system of record at once."
    for limit in must["volume"]:
        yield f"Reserved at the claim: {limit['name']}, at most {_most(limit)}."
    for limit in must["auto_budget"]:
        yield f"Without a person: {limit['name']}, at most {_most(limit)}."


def _most(limit: dict[str, Any]) -> str:
    parts = [many(limit["count"], "action")] if limit["count"] is not None else []
    if limit["amount_minor"] is not None:
        parts.append(money(limit["amount_minor"], limit["currency"]))
    return f"{' and '.join(parts) or 'any number'} ({_WINDOWS[limit['window']]}, {_SCOPES[limit['scope']]})"


def _today(again: dict[str, Any]) -> Iterator[str]:
    if again["error"] is not None:
        yield f"Asked again today: no answer. {again['error']}"
    elif again["same"]:
        yield f"Asked again today with the same question, policy {again['revision']} says the same."
    else:
        codes = ", ".join(one["code"] for one in again["reasons"])
        yield (
            f"Asked again today with the same question, policy {again['revision']} says "
            f"{again['verdict'].replace('_', ' ')} ({codes}). That changes nothing by itself."
        )
