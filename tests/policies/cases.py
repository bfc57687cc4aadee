"""Questions for the policy's tests: one mandate, its three actions, and every value of them open to change."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.policies.revision import HERE
from remit.tools.actions import Json
from remit.tools.mandates import AskAbove, Limit, Mandate, Money, Step, Who
from remit.tools.questions import (
    Agent,
    Context,
    EffectName,
    Evaluation,
    Link,
    Properties,
    Question,
    Required,
    Resource,
    ResourceProperties,
    Total,
)

MANDATES = Path(__file__).parents[2] / "mandates"


def usd(amount_minor: int) -> Money:
    return Money(amount_minor=amount_minor, currency="USD")


CREDIT = Step(name="credit", effect="credit.issue", exactly=usd(1000))
ANNOTATE = Step(name="annotate", effect="account.annotate", fields=("notes",), after=("credit",))
NOTIFY = Step(
    name="notify",
    effect="email.send",
    template="one_time_credit",
    promise="one_time_credit",
    after=("credit",),
)
MANDATE = Mandate(
    purpose="outage-0611",
    why="An outage.",
    agent="credit-agent",
    who=Who(affected_by="outage-0611", at_most=30),
    valid_from=1_000,
    valid_until=2_000,
    steps=(CREDIT, ANNOTATE, NOTIFY),
    never=("subscription.change", "field:renewal_date"),
    ask_above=AskAbove(count=10, money=usd(10_000)),
    limits=(
        Limit(effect="credit.issue", count=30, money=usd(30_000)),
        Limit(effect="account.annotate", count=60),
        Limit(effect="email.send", count=30),
    ),
)
ANOTHER_SUBJECT = Link(part="requester", person="person-2", role="administrator")


def changed(mandate: Mandate, **values: object) -> Mandate:
    """The mandate with other values, checked."""
    return Mandate.model_validate(mandate.model_copy(update=values).__dict__)


def with_step(step: Step, **values: object) -> Mandate:
    """The mandate with other values in one step."""
    other = step.model_copy(update=values)
    return changed(MANDATE, steps=tuple(other if one.name == step.name else one for one in MANDATE.steps))


def with_limit(effect: str, **values: object) -> Mandate:
    """The mandate with other values in one limit."""
    return changed(
        MANDATE,
        limits=tuple(
            one.model_copy(update=values) if one.effect == effect else one for one in MANDATE.limits
        ),
    )


def action(
    step: Step,
    customer: int = 104,
    /,
    *,
    in_cohort: bool = True,
    rejected_before: bool = False,
    barred: Any = None,
    snapshot: Mapping[str, Json] | None = None,
    requires: Sequence[Required] | None = None,
    given: Total | None = None,
    effect: str | None = None,
    **properties: Any,
) -> Evaluation:
    """One action as its step wants it, with other properties where they are given."""
    rows = {"credit.issue": ("compensable", "medium"), "email.send": ("irreversible", "medium")}
    reversibility, consequence = rows.get(step.effect, ("reversible", "low"))
    wanted: dict[str, Any] = {
        "tool": "tool",
        "tool_version": "1",
        "step": step.name,
        "reversibility": reversibility,
        "consequence": consequence,
        "amount_minor": step.exactly.amount_minor if step.exactly else None,
        "currency": step.exactly.currency if step.exactly else None,
        "fields": step.fields,
        "template": step.template,
        "promise": step.promise,
    }
    done = tuple(Required(step=one, fact="COMPLETED", live=False) for one in step.after)
    resource = ResourceProperties(
        in_cohort=in_cohort,
        rejected_before=rejected_before,
        barred=barred,
        snapshot={"exists": True, "others": 0} if snapshot is None else dict(snapshot),
        requires=done if requires is None else tuple(requires),
        given=given or Total(),
    )
    return Evaluation(
        id=f"{step.name}-{customer}",
        action=EffectName(name=effect or step.effect, properties=Properties(**(wanted | properties))),
        resource=Resource(type="customer", id=f"customer:c-{customer}", properties=resource),
    )


def question(
    *actions: Evaluation,
    mandate: Mandate = MANDATE,
    now: int = 1_500,
    revoked: bool = False,
    agent: str = "credit-agent",
    grantors: Sequence[str] = ("support_manager",),
    totals: Mapping[str, Total] | None = None,
    proposal: Mapping[str, Total] | None = None,
    used: Mapping[str, Total] | None = None,
) -> Question:
    """A question about these actions; by default each step proposes five, below every threshold."""
    chain = [Link(part="grantor", person=f"person-{one}", role=one) for one in grantors]
    return Question(
        subject=Agent(id=agent, version="1", chain=(*chain, ANOTHER_SUBJECT)),
        context=Context(
            now=now,
            environment="sandbox",
            mandate_hash=mandate.hash,
            mandate=mandate.document(),
            revoked=revoked,
            totals=dict(totals or {}),
            proposal=proposed(mandate, 5) if proposal is None else dict(proposal),
            used=dict(used or {}),
        ),
        evaluations=actions,
    )


def proposed(mandate: Mandate, count: int) -> dict[str, Total]:
    """The whole proposal: `count` actions of every step, with their money."""
    return {
        step.name: Total(
            count=count,
            amounts={step.exactly.currency: step.exactly.amount_minor * count} if step.exactly else {},
        )
        for step in mandate.steps
    }


def batch(mandate: Mandate, count: int) -> list[Evaluation]:
    """`count` actions that take the mandate's steps in turn."""
    steps = mandate.steps
    return [action(steps[number % len(steps)], 100 + number) for number in range(count)]


def copied(folder: Path) -> Path:
    """A copy of the policy's source and artefacts in `folder`, for a test to change."""
    for part in ("boundary", "bundle", "server"):
        shutil.copytree(HERE / part, folder / part)
    return folder


def with_data(folder: Path, data: Json) -> Path:
    """The copied policy with other data."""
    (folder / "boundary" / "data.json").write_text(json.dumps(data))
    return folder


def policy_data() -> dict[str, Any]:
    """This installation's policy data, to be changed by a test."""
    data: dict[str, Any] = json.loads((HERE / "boundary" / "data.json").read_text())
    return data
