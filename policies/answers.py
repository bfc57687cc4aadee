"""What goes to an engine and what counts as its answer: both are checked here, for every engine alike.

Keeps I10: whatever is not an exact, complete answer becomes NoAnswer, and no switch makes it anything else.
"""

import json
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from remit.policies.silence import no_answer
from remit.tools.actions import Json
from remit.tools.mandates import Mandate
from remit.tools.questions import Answer, Decision, Question
from remit.tools.states import Verdict

_DECISIONS = TypeAdapter(tuple[Decision, ...])
_MAX_EXACT = 2**53 - 1


def checked_question(question: Question) -> str:
    """The question as JSON, if schema, mandate and ids hold. Raises NoAnswer (policy_question)."""
    try:
        text = question.model_dump_json()
        same = Question.model_validate_json(text) == question
        mandate = Mandate.model_validate_json(json.dumps(question.context.mandate))
    except (ValidationError, TypeError, ValueError) as error:
        raise no_answer("policy_question", f"the question is not valid ({_first(error)})") from error
    if not same or not all(_exact(one.resource.properties.snapshot) for one in question.evaluations):
        raise no_answer("policy_question", "the question holds values that JSON does not carry exactly")
    if mandate.hash != question.context.mandate_hash:
        raise no_answer("policy_question", "the question's mandate is not the one that its hash names")
    unique([one.id for one in question.evaluations])
    return text


def read_answer(question: Question, result: Json, *, engine: str, revision: str, decision_id: str) -> Answer:
    """The answer, if `result` is exactly one complete decision per action, in order. Else raises NoAnswer."""
    try:
        # Through JSON: only there do strict models take a list for a tuple, and still nothing else.
        decisions = _DECISIONS.validate_json(json.dumps(result, allow_nan=False))
    except ValidationError as error:
        extra = any(one["type"] == "extra_forbidden" for one in error.errors())
        code = "policy_extra_field" if extra else "policy_shape"
        raise no_answer(code, f"the decisions have another shape ({_first(error)})") from error
    except (TypeError, ValueError) as error:
        raise no_answer("policy_shape", f"the decisions have another shape ({error})") from error
    if not decisions:
        # What the policy says where it has no data to judge by: the other half of its bundle is missing.
        raise no_answer("policy_bundle", "the policy judged no action, as it does without its data")
    if [one.id for one in decisions] != [one.id for one in question.evaluations]:
        raise no_answer("policy_ids", "the decisions are not one per action, in the order of the question")
    for decision in decisions:
        _complete(decision)
    return Answer(decisions=decisions, engine=engine, revision=revision, decision_id=decision_id)


def _complete(decision: Decision) -> None:
    """A decision that could be followed by mistake is none: no reason, no approver, no limit to reserve."""
    must = decision.obligations
    asks = bool(must.approvers) and must.quorum >= 1 and must.decide_within >= 1
    # A voice that can never be heard would keep an approval open until it expires.
    asks = asks and set(must.quorum_of) <= set(must.approvers) and sum(must.quorum_of.values()) <= must.quorum
    asks_nobody = not must.approvers and must.quorum == 0 and not must.quorum_of and must.on_expiry is None
    fits = {
        Verdict.DENY: True,
        Verdict.ALLOW: asks_nobody and bool(must.volume),
        Verdict.NEEDS_APPROVAL: asks and bool(must.volume),
    }
    if not decision.reasons or not fits[decision.verdict]:
        raise no_answer("policy_shape", f"the decision for {decision.id} is incomplete")


def unique(ids: Sequence[str]) -> None:
    """Decisions are told apart by id alone. Raises NoAnswer (policy_question) where two actions share one."""
    if len(set(ids)) != len(ids):
        raise no_answer("policy_question", "the question names an action twice")


def _exact(value: Json) -> bool:
    match value:
        case None | bool() | str():
            return True
        case int():
            return abs(value) <= _MAX_EXACT
        case list():
            return all(map(_exact, value))
        case dict():
            return all(isinstance(name, str) and _exact(item) for name, item in value.items())
        case _:
            return False


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
