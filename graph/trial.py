"""What a mandate would allow, before anybody grants it: real reads, the real policy, and nothing that is kept.

Keeps I2 from the side of whoever delegates: the same actions are judged as a run would propose, over the same cohort.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.graph import actions
from remit.graph.deps import Deps
from remit.graph.judging import totals_now
from remit.policies import Judged, ask_all, load_policy
from remit.tools.actions import Json, operation_key, reference
from remit.tools.contracts import Sought, WriteTool
from remit.tools.mandates import Mandate, Step
from remit.tools.questions import BATCH, Agent, Context, Evaluation, Link, Required, Total
from remit.tools.states import Reversibility, Verdict

_ROWS = [row.value for row in Reversibility]


@dataclass(frozen=True, slots=True)
class StepTrial:
    """One step over the whole cohort, in numbers of subjects. `hold` are allowed and wait `hold_seconds` first."""

    step: str
    effect: str
    tool: str | None
    reversibility: str
    """The stricter of the tool's contract and the policy."""
    allow: int = 0
    hold: int = 0
    needs_approval: int = 0
    deny: int = 0
    there_already: int = 0
    """Keys that an earlier run took: they are not proposed again."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many actions each code stands behind; the codes of allowed ones are left out."""
    details: dict[str, str] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    """One subject by reason code."""
    approvers: tuple[str, ...] = ()
    quorum: int = 0
    hold_seconds: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    """What would go out where it is not denied, minor units by currency."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What would come of a mandate. `no_return` is the first step that nothing can take back."""

    subjects: int
    steps: tuple[StepTrial, ...]
    no_return: str | None
    early: dict[str, list[str]]
    """Irreversible steps by the steps that ask a person and that they do not wait for."""
    overlaps: list[dict[str, Any]]
    """Other live mandates for the same effect and subjects: {purpose, hash, effect, subjects}."""


async def try_mandate(deps: Deps, mandate: Mandate, person: str, role: str, subjects: Sequence[str]) -> Trial:
    """Judge each step for each subject as if `person` had granted it as `role`.

    Raises NotSent or OutcomeUnknown where a receiver cannot be read, NoAnswer where policy gives no answer.
    """
    taken = await _taken(deps, mandate, subjects)
    tools = {step.name: _tool(deps, step.effect) for step in mandate.steps}
    asked: list[Evaluation] = []
    for step in mandate.steps:
        tool = tools[step.name]
        fresh = [one for one in subjects if operation_key(mandate.purpose, step.name, one) not in taken]
        if tool is not None:
            asked += await _evaluations(deps, mandate, step, tool, fresh)
    judged = (
        await _judge(deps, mandate, asked, Link(part="grantor", person=person, role=role)) if asked else {}
    )
    counted = {
        step.name: Counter(operation_key(mandate.purpose, step.name, one) in taken for one in subjects)
        for step in mandate.steps
    }
    steps = tuple(
        _summed(step, tools[step.name], subjects, judged, counted[step.name][True]) for step in mandate.steps
    )
    overlaps = await deps.database.rows(
        "overlapping_mandates",
        purpose=mandate.purpose,
        effects=sorted({step.effect for step in mandate.steps}),
        subjects=list(subjects),
    )
    lost = [one.step for one in steps if one.reversibility == Reversibility.IRREVERSIBLE]
    return Trial(len(subjects), steps, lost[0] if lost else None, _early(mandate, steps), overlaps)


async def _taken(deps: Deps, mandate: Mandate, subjects: Sequence[str]) -> set[str]:
    keys = [operation_key(mandate.purpose, step.name, one) for step in mandate.steps for one in subjects]
    rows = await deps.database.rows("key_standing", keys=keys)
    return {row["key"] for row in rows if row["state"] != "CLOSED"}


def _tool(deps: Deps, effect: str) -> WriteTool | None:
    """The path that a careful agent takes: one whose receiver enforces keys before one whose does not."""
    tools = [tool for tool in deps.catalogue.tools_of(effect) if tool.contract.for_agents]
    return min(tools, key=lambda tool: not tool.contract.receiver_enforces_key, default=None)


async def _evaluations(
    deps: Deps, mandate: Mandate, step: Step, tool: WriteTool, subjects: Sequence[str]
) -> list[Evaluation]:
    asked: list[Evaluation] = []
    for start in range(0, len(subjects), BATCH):
        sought = [
            Sought(
                reference(deps.ledger.installation, operation_key(mandate.purpose, step.name, one)),
                one,
                _intent(mandate, step, one),
            )
            for one in subjects[start : start + BATCH]
        ]
        snapshots = await tool.snapshot_many(deps.transport, sought)
        totals = await totals_now(deps, mandate, [one.subject for one in sought])
        asked += [
            actions.evaluation(
                f"{step.name} {one.subject}",
                tool.contract,
                step.name,
                subject=one.subject,
                intent=one.intent,
                snapshot=snapshots[one.reference].values,
                in_cohort=True,
                rejected_before=False,
                barred=None,
                # Nothing has come before anything yet; in a run it would be proposed first.
                requires=[Required(step=name, fact="NOT_SENT", live=True) for name in step.after],
                given=totals.given(step.effect, one.subject),
            )
            for one in sought
        ]
    return asked


def _intent(mandate: Mandate, step: Step, subject: str) -> dict[str, Json]:
    """All that a step fixes; what the model would choose (a note's text) decides nothing."""
    money = {} if step.exactly is None else step.exactly.model_dump()
    template = {} if step.template is None else {"template": step.template}
    fields = {"fields": dict.fromkeys(step.fields, "")} if step.fields else {}
    return {"subject": subject, "reason": mandate.purpose, **money, **template, **fields}


async def _judge(
    deps: Deps, mandate: Mandate, asked: Sequence[Evaluation], grantor: Link
) -> dict[str, Judged]:
    chain = (
        grantor,
        Link(part="requester", person=grantor.person, role="requester"),
        Link(part="owner", person=grantor.person, role="owner"),
    )
    totals = await totals_now(deps, mandate, ())
    context = Context(
        now=int((await deps.ledger.company_now()).timestamp()),
        environment=deps.ledger.environment,  # type: ignore[arg-type]  # the database's own word
        mandate_hash=mandate.hash,
        mandate=mandate.document(),
        revoked=False,
        totals=totals.effects,
        proposal=_proposal(mandate, asked),
        used=totals.used,
    )
    answers = await ask_all(
        deps.policy, Agent(id=mandate.agent, version="trial", chain=chain), context, asked
    )
    return {one.decision.id: one for one in answers}


def _proposal(mandate: Mandate, asked: Sequence[Evaluation]) -> dict[str, Total]:
    counts = Counter(one.action.properties.step for one in asked)
    totals: dict[str, Total] = {}
    for step in mandate.steps:
        count, money = counts[step.name], step.exactly
        amounts = {money.currency: money.amount_minor * count} if money is not None and count else {}
        totals[step.name] = Total(count=count, amounts=amounts)
    return totals


def _summed(
    step: Step, tool: WriteTool | None, subjects: Sequence[str], judged: dict[str, Judged], taken: int
) -> StepTrial:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    details: dict[str, str] = {}
    examples: dict[str, str] = {}
    amounts: dict[str, int] = defaultdict(int)
    last: Judged | None = None
    for subject in subjects:
        one = judged.get(f"{step.name} {subject}")
        if one is None:
            continue
        verdict, obligations = one.decision.verdict, one.decision.obligations
        held = verdict is Verdict.ALLOW and obligations.hold_seconds > 0
        counts["hold" if held else verdict.value] += 1
        if verdict is not Verdict.ALLOW:
            for reason in one.decision.reasons:
                reasons[reason.code] += 1
                details.setdefault(reason.code, reason.detail)
                examples.setdefault(reason.code, subject)
        if verdict is not Verdict.DENY:
            last = one
            if step.exactly is not None:
                amounts[step.exactly.currency] += step.exactly.amount_minor
    return StepTrial(
        step=step.name,
        effect=step.effect,
        tool=None if tool is None else tool.contract.name,
        reversibility=_row(step, tool),
        allow=counts["allow"],
        hold=counts["hold"],
        needs_approval=counts["needs_approval"],
        deny=counts["deny"],
        there_already=taken,
        reasons=dict(reasons),
        details=details,
        examples=examples,
        approvers=() if last is None else last.decision.obligations.approvers,
        quorum=0 if last is None else last.decision.obligations.quorum,
        hold_seconds=0 if last is None else last.decision.obligations.hold_seconds,
        amounts=dict(amounts),
    )


def _row(step: Step, tool: WriteTool | None) -> str:
    floor: str = load_policy().settings.effects[step.effect].at_least.reversibility
    own = floor if tool is None else tool.contract.reversibility.value
    return max(floor, own, key=_ROWS.index)


def _early(mandate: Mandate, steps: Sequence[StepTrial]) -> dict[str, list[str]]:
    asking = {one.step for one in steps if one.needs_approval}
    found: dict[str, list[str]] = {}
    for one in steps:
        if one.reversibility == Reversibility.IRREVERSIBLE:
            missing = sorted(asking - _before(mandate, one.step) - {one.step})
            if missing:
                found[one.step] = missing
    return found


def _before(mandate: Mandate, step: str) -> set[str]:
    direct = set(mandate.step(step).after)
    return direct.union(*(_before(mandate, name) for name in direct))
