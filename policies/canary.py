"""One known allow and one known deny: an engine that gives both has the policy and its data.

Its effect and role stand in the policy data and nowhere else: no tool has that effect, no person that role.
"""

from collections.abc import Awaitable, Callable

from remit.policies.silence import no_answer
from remit.tools.mandates import AskAbove, Limit, Mandate, Step, Who
from remit.tools.questions import (
    Agent,
    Answer,
    Context,
    EffectName,
    Evaluation,
    Link,
    Properties,
    Question,
    Resource,
    ResourceProperties,
    Total,
)
from remit.tools.states import Verdict

_EFFECT, _FIELD, _STEP, _SUBJECT = "canary.touch", "canary", "touch", "canary:one"

_MANDATE = Mandate(
    purpose="canary",
    why="To see that policy answers.",
    agent="canary",
    who=Who(subjects=(_SUBJECT,), at_most=1),
    valid_from=0,
    valid_until=2,
    steps=(Step(name=_STEP, effect=_EFFECT, fields=(_FIELD,)),),
    never=(),
    ask_above=AskAbove(),
    limits=(Limit(effect=_EFFECT, count=1),),
)

EXPECTED = ((Verdict.ALLOW, "matrix_allow"), (Verdict.DENY, "field_not_delegated"))
"""The verdict and a reason of each of the two actions: the first needs the data, the second the mandate."""


def canary_question() -> Question:
    """A question about one action that is allowed and one that writes a field which nobody delegated."""
    return Question(
        subject=Agent(
            id="canary", version="1", chain=(Link(part="grantor", person="canary", role="canary"),)
        ),
        context=Context(
            now=1,
            environment="sandbox",
            mandate_hash=_MANDATE.hash,
            mandate=_MANDATE.document(),
            revoked=False,
            totals={},
            proposal={_STEP: Total(count=1)},
        ),
        evaluations=(_touch("allowed", _FIELD), _touch("denied", "another")),
    )


async def check_canary(ask: Callable[[Question], Awaitable[Answer]]) -> None:
    """Raises NoAnswer (policy_canary for a complete but wrong answer) unless both verdicts are as known."""
    answer = await ask(canary_question())
    for decision, (verdict, code) in zip(answer.decisions, EXPECTED, strict=True):
        if decision.verdict is not verdict or code not in {reason.code for reason in decision.reasons}:
            raise no_answer("policy_canary", f"a known action was not answered with {verdict} ({code})")


def _touch(identity: str, field: str) -> Evaluation:
    properties = Properties(
        tool="canary",
        tool_version="1",
        step=_STEP,
        reversibility="reversible",
        consequence="low",
        fields=(field,),
    )
    resource = ResourceProperties(
        in_cohort=True, rejected_before=False, snapshot={"exists": True}, requires=()
    )
    return Evaluation(
        id=identity,
        action=EffectName(name=_EFFECT, properties=properties),
        resource=Resource(type="canary", id=_SUBJECT, properties=resource),
    )
