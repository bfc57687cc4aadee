"""Why a decision is as it is, in words: every reason by its code, the matrix, the thresholds, and who may approve.

Keeps explanations honest: they are made from the stored decision and the stored question, and what the policy's data
add is said only where the data at hand are those of the very revision that decided.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from remit.policies.data import Cell, Effect, Settings
from remit.tools.actions import Json
from remit.tools.mandates import Mandate
from remit.tools.questions import Decision, Evaluation

WORDS: Mapping[str, str] = {
    "already_given": "Somebody else gave {detail} the same for the same reason, or nobody looked whether one did.",
    "amount_not_exact": "The amount is not the one that the mandate fixes for this step.",
    "ask_above_amount": "The whole proposal, with what is already out, moves more money than may go without a person: "
    "{detail}.",
    "ask_above_count": "The whole proposal, with what is already out, has more actions than may go without a person: "
    "{detail}.",
    "auto_budget": "The whole proposal is more than the automatic budget has left in its window: {detail}.",
    "beyond_role_ceiling": "The role of a grantor may not delegate as much: {detail}.",
    "currency_not_exact": "The currency is not the one that the mandate fixes for this step.",
    "field_not_delegated": "It writes a field that the step does not name, that is not the effect's, or none at all: "
    "{detail}.",
    "frozen": "A freeze is in force over it. {detail}",
    "malformed": "A value has the wrong type, or the proposal does not count the step: {detail}.",
    "mandate_not_live": "The mandate does not hold now. {detail}",
    "matrix_allow": "The matrix lets this go by itself: {detail}.",
    "matrix_high": "The matrix asks a person about this: {detail}.",
    "never_listed": "The mandate's never-list names the effect or a field of it: {detail}.",
    "not_in_cohort": "{detail} is not in the mandate's frozen cohort.",
    "not_in_mandate": "The mandate has no such step with this effect, or no limit for it: {detail}.",
    "order_of_steps": "What must come first is neither completed nor can it still complete. {detail}",
    "other_tool_may_act": "The ledger refused it: {detail}.",
    "promise_not_delegated": "The receiver declares another promise for this template than the step may make.",
    "rejected_by_a_person": "The ledger refused it: {detail}.",
    "rejected_before": "A person rejected an earlier revision under this key, so only a person says yes: {detail}.",
    "stopped": "A stop is in force over it. {detail}",
    "subject_limit": "{detail} would get more than policy lets one subject have under one purpose.",
    "subject_missing": "The system of record does not know {detail}.",
    "supervised": "This effect is under supervision, so a person is asked every time: {detail}.",
    "template_not_delegated": "The template is not the one that the step names.",
    "unknown_effect": "The policy's data have no such effect: {detail}.",
    "wrong_agent": "Another agent than the mandate's asked. {detail}",
}
"""One sentence for each code that policy or ledger gives; a test compares them with the Rego and the SQL."""

_CELL = re.compile(r"^(reversible|compensable|irreversible), (low|medium|high) consequence")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Above which something needs a person: so many actions, or so much of a currency (minor units)."""

    whose: str
    count: int | None = None
    amount_minor: int | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision taken apart. `cell` is the place in the matrix that decided, None where the matrix did not."""

    verdict: str
    reasons: list[dict[str, str]]
    cell: dict[str, Json] | None
    declared: dict[str, str]
    at_least: dict[str, str] | None
    thresholds: list[Threshold] = field(default_factory=list)
    autonomy: str | None = None
    obligations: dict[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Stable keys."""
        return asdict(self)


def reasons_in_words(reasons: list[dict[str, str]]) -> list[dict[str, str]]:
    """Each reason with its sentence; a code that nobody knows is told as it is."""
    return [
        {**one, "words": WORDS.get(one["code"], "{detail}").format(detail=one.get("detail", ""))}
        for one in reasons
    ]


def explain(decision: Decision, asked: Evaluation, mandate: Mandate, settings: Settings | None) -> Explained:
    """The decision in its parts; `settings` are those of the revision that decided, or None where they are gone."""
    properties = asked.action.properties
    effect = settings.effects.get(asked.action.name) if settings is not None else None
    at_least = effect.at_least.model_dump() if effect is not None else None
    return Explained(
        verdict=decision.verdict.value,
        reasons=reasons_in_words([one.model_dump() for one in decision.reasons]),
        cell=_cell(decision, settings),
        declared={"reversibility": properties.reversibility, "consequence": properties.consequence},
        at_least=at_least,
        thresholds=[*_of_mandate(mandate), *_of_policy(effect)],
        autonomy=effect.autonomy if effect is not None else None,
        obligations=decision.obligations.model_dump(mode="json"),
    )


def _cell(decision: Decision, settings: Settings | None) -> dict[str, Json] | None:
    """By the policy's own words, so that no second copy of its arithmetic can disagree with it."""
    places = [
        _CELL.match(one.detail) for one in decision.reasons if one.code in ("matrix_allow", "matrix_high")
    ]
    found = next((place for place in places if place is not None), None)
    if found is None:
        return None
    row, column = found.groups()
    asks: Cell | None = None
    if settings is not None:
        asks = {str(name): cells for name, cells in settings.matrix.items()}[row][column]  # type: ignore[index]
    return {"row": row, "column": column, "asks": asks.model_dump() if asks is not None else None}


def _of_mandate(mandate: Mandate) -> list[Threshold]:
    above = mandate.ask_above
    found = [Threshold("mandate", count=above.count)] if above.count is not None else []
    if above.money is not None:
        found.append(
            Threshold("mandate", amount_minor=above.money.amount_minor, currency=above.money.currency)
        )
    return found


def _of_policy(effect: Effect | None) -> list[Threshold]:
    if effect is None:
        return []
    bounds = effect.bounds
    found = [Threshold("policy", count=bounds.count)] if bounds is not None else []
    amounts = bounds.amounts.items() if bounds is not None else ()
    return [
        *found,
        *(Threshold("policy", amount_minor=amount, currency=currency) for currency, amount in amounts),
        *(
            Threshold("policy, one action", amount_minor=amount, currency=currency)
            for currency, amount in effect.high_above.items()
        ),
    ]
