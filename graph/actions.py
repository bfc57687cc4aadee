"""From wanted changes to exact actions, questions and ledger rows. Pure functions: no database, no receiver.

The one place where the policy's input is built (DESIGN section 7), so that what is judged is what is hashed and sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remit.graph.deps import RunContext
from remit.graph.intake import UNDELEGATED
from remit.policies import Judged
from remit.tools.actions import Action, Json, action_hash, intent_hash, operation_key, reference, subject_id
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Contract, Snapshot, WriteTool
from remit.tools.questions import (
    Context,
    EffectName,
    Evaluation,
    Properties,
    Required,
    Resource,
    ResourceProperties,
    Total,
)
from remit.tools.runner import relied_on


@dataclass(frozen=True, slots=True)
class Wanted:
    """One change that was proposed: enough to build its action once its subject's snapshot is read."""

    step: str
    subject: str
    tool: str
    intent: dict[str, Json]
    amount_minor: int | None
    currency: str | None
    plan: int
    call: int

    def key(self, purpose: str) -> str:
        return operation_key(purpose, self.step, self.subject)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A wanted change as the exact action that would be sent, with its snapshot."""

    wanted: Wanted
    action: Action
    contract: Contract
    snapshot: Snapshot

    @property
    def key(self) -> str:
        return self.action.key


def find_tool(catalogue: Catalogue, name: str) -> WriteTool | None:
    """The writing tool of that name, or None where a deploy took it away meanwhile."""
    return next((tool for tool in catalogue.writes() if tool.contract.name == name), None)


def prepare(
    run: RunContext, installation: str, wanted: Wanted, tool: WriteTool, snapshot: Snapshot
) -> Prepared:
    """The canonical action of one wanted change. Raises ValueError for what has no exact form."""
    key = wanted.key(run.purpose)
    action = Action(
        purpose=run.purpose,
        step=wanted.step,
        subject=wanted.subject,
        effect=tool.contract.effect,
        tool=tool.contract.name,
        tool_version=tool.contract.version,
        intent=wanted.intent,
        request=tool.request(wanted.subject, wanted.intent, reference(installation, key)),
        relied_on=relied_on(tool, snapshot),
        mandate_hash=run.mandate_hash,
    )
    return Prepared(wanted, action, tool.contract, snapshot)


def required_keys(run: RunContext, step: str, subject: str) -> list[str]:
    """The keys that must be COMPLETED before this step of this subject may be sent."""
    if step == UNDELEGATED:
        return []
    return [operation_key(run.purpose, name, subject) for name in run.mandate.step(step).after]


def evaluation(
    id_: str,
    contract: Contract,
    step: str,
    *,
    subject: str,
    intent: dict[str, Json],
    snapshot: dict[str, Json],
    in_cohort: bool,
    rejected_before: bool,
    barred: Any,
    requires: Sequence[Required],
    given: Total,
) -> Evaluation:
    """One action in question: typed fields only, no free text."""
    promise = snapshot.get("promise")
    properties = Properties(
        tool=contract.name,
        tool_version=contract.version,
        step=step,
        reversibility=contract.reversibility.value,
        consequence=contract.consequence.value,
        amount_minor=intent.get("amount_minor"),
        currency=intent.get("currency"),
        fields=tuple(sorted(intent.get("fields", {}))),
        template=intent.get("template"),
        promise=promise if isinstance(promise, str) else None,
    )
    return Evaluation(
        id=id_,
        action=EffectName(name=contract.effect, properties=properties),
        resource=Resource(
            type=subject.partition(":")[0],
            id=subject_id(subject),
            properties=ResourceProperties(
                in_cohort=in_cohort,
                rejected_before=rejected_before,
                barred=barred,
                snapshot=snapshot,
                requires=tuple(requires),
                given=given,
            ),
        ),
    )


def required(keys: Sequence[str], facts: dict[str, dict[str, Any]], proposed: set[str]) -> list[Required]:
    """Where the required steps stand; one that is proposed and not judged yet is live."""
    return [
        Required(
            step=key.split("/")[1],
            fact=facts[key]["fact"] if key in facts else "NOT_SENT",
            live=key in proposed or (key in facts and facts[key]["live"]),
        )
        for key in keys
    ]


@dataclass(frozen=True, slots=True)
class Totals:
    """What is completed, in flight or unknown at the moment of one question; a row each of `question_totals`."""

    effects: dict[str, Total]
    used: dict[str, Total]
    _given: dict[str, Total]

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> "Totals":
        """The rows by their part."""
        effects, used, given = (
            totals_by([row for row in rows if row["part"] == part], "name")
            for part in ("effect", "used", "given")
        )
        return cls(effects, used, given)

    def given(self, effect: str, subject: str) -> Total:
        """What this subject has of this effect."""
        return self._given.get(f"{effect} {subject}", Total())


def context(
    run: RunContext, environment: Any, now: int, totals: Totals, proposal: dict[str, Total]
) -> Context:
    """What holds for every action of the question, from the database and the mandate, never from the model."""
    return Context(
        now=now,
        environment=environment,
        mandate_hash=run.mandate_hash,
        mandate=run.mandate.document(),
        revoked=run.revoked or run.superseded,
        totals=totals.effects,
        proposal=proposal,
        used=totals.used,
    )


def totals_by(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Total]:
    """Rows of {name, currency, count, amount} as totals by name."""
    counts: dict[str, int] = {}
    amounts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts[row[name]] = counts.get(row[name], 0) + row["count"]
        if row["currency"] is not None:
            by_currency = amounts.setdefault(row[name], {})
            by_currency[row["currency"]] = by_currency.get(row["currency"], 0) + row["amount"]
    return {key: Total(count=count, amounts=amounts.get(key, {})) for key, count in counts.items()}


def judged_columns(judged: Judged | None, *, silence: str) -> dict[str, Json]:
    """The columns of a verdict. `judged` None is no answer: nothing is sent, and the gate names the code."""
    if judged is None:
        return {
            "verdict": None,
            "reasons": [],
            "obligations": {},
            "policy_engine": None,
            "policy_revision": None,
            "decision_id": None,
            "closed_detail": silence,
        }
    decision = judged.decision
    return {
        "verdict": decision.verdict.value,
        "reasons": [reason.model_dump() for reason in decision.reasons],
        "obligations": decision.obligations.model_dump(mode="json"),
        "policy_engine": judged.engine,
        "policy_revision": judged.revision,
        "decision_id": judged.decision_id,
        "closed_detail": ", ".join(reason.code for reason in decision.reasons)[:300],
    }


def operation_row(
    run: RunContext, prepared: Prepared, requires: list[str], verdict: dict[str, Json]
) -> dict[str, Json]:
    """One row for `remit.propose`: what would be sent, its hashes, and the verdict on it."""
    action, wanted, contract = prepared.action, prepared.wanted, prepared.contract
    return {
        "key": action.key,
        "purpose": run.purpose,
        "step": wanted.step,
        "subject": wanted.subject,
        "effect": action.effect,
        "tool": action.tool,
        "tool_version": action.tool_version,
        "receivers": list(contract.receivers),
        "plan": wanted.plan,
        "mandate_hash": run.mandate_hash,
        "agent": run.agent.id,
        "agent_version": run.agent.version,
        "intent": action.intent,
        "intent_hash": intent_hash(action.intent),
        "request": action.request.model_dump(),
        "relied_on": action.relied_on,
        "action_hash": action_hash(action),
        "snapshot": prepared.snapshot.values,
        "requires": requires,
        "amount_minor": wanted.amount_minor,
        "currency": wanted.currency,
        "reversibility": contract.reversibility.value,
        "consequence": contract.consequence.value,
        **verdict,
    }
