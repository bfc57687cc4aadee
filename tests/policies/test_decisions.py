"""What the compiled policy decides: every reason to deny, every reason to ask, every cell of the matrix."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.policies import EmbeddedEngine, ask_all, read_mandate
from remit.tools.mandates import AskAbove, Mandate
from remit.tools.questions import Agent, Context, Decision, Link, Question, Required, Total, Volume
from remit.tools.states import Verdict

from .cases import (
    ANNOTATE,
    CREDIT,
    MANDATE,
    MANDATES,
    NOTIFY,
    action,
    changed,
    copied,
    policy_data,
    proposed,
    question,
    usd,
    with_data,
    with_limit,
    with_step,
)

CLOSE = CREDIT.model_copy(update={"name": "close", "effect": "account.close"})
CHANGE = ANNOTATE.model_copy(
    update={"name": "change", "effect": "subscription.change", "fields": ("plan",), "after": ()}
)
LOST = Required(step="credit", fact="UNKNOWN", live=False)

DENIED: Mapping[str, Question] = {
    "not_in_mandate: a step that the mandate does not have": question(action(CREDIT, step="extra")),
    "not_in_mandate: a step with another effect": question(action(CREDIT, effect="email.send")),
    "not_in_mandate: an effect without a limit": question(
        action(CREDIT), mandate=changed(MANDATE, limits=MANDATE.limits[1:])
    ),
    "wrong_agent: another agent": question(action(CREDIT), agent="another-agent"),
    "mandate_not_live: too early": question(action(CREDIT), now=999),
    "mandate_not_live: too late": question(action(CREDIT), now=2_000),
    "mandate_not_live: revoked": question(action(CREDIT), revoked=True),
    "not_in_cohort: somebody else": question(action(CREDIT, in_cohort=False)),
    "subject_limit: a fourth credit": question(action(CREDIT, given=Total(count=3))),
    "subject_limit: more money than one may get": question(
        action(CREDIT, given=Total(count=1, amounts={"USD": 19_001}))
    ),
    "never_listed: the effect": question(action(CREDIT), mandate=changed(MANDATE, never=("credit.issue",))),
    "never_listed: the field": question(action(ANNOTATE), mandate=changed(MANDATE, never=("field:notes",))),
    "field_not_delegated: a field beside it": question(action(ANNOTATE, fields=("notes", "renewal_date"))),
    "field_not_delegated: no field at all": question(action(ANNOTATE, fields=())),
    "field_not_delegated: a field of another effect": question(
        action(ANNOTATE, fields=("plan",)), mandate=with_step(ANNOTATE, fields=("plan",))
    ),
    "amount_not_exact: more": question(action(CREDIT, amount_minor=1_001)),
    "amount_not_exact: less": question(action(CREDIT, amount_minor=999)),
    "amount_not_exact: none": question(action(CREDIT, amount_minor=None)),
    "amount_not_exact: money where none moves": question(action(ANNOTATE, amount_minor=1)),
    "currency_not_exact: another": question(action(CREDIT, currency="EUR")),
    "currency_not_exact: none": question(action(CREDIT, currency=None)),
    "currency_not_exact: another in flight": question(
        action(CREDIT), totals={"credit.issue": Total(count=1, amounts={"EUR": 1})}
    ),
    "template_not_delegated: another": question(action(NOTIFY, template="one_month_extension")),
    "template_not_delegated: none": question(action(NOTIFY, template=None)),
    "promise_not_delegated: the receiver declares another": question(
        action(NOTIFY, promise="one_month_extension")
    ),
    "promise_not_delegated: the receiver declares none": question(action(NOTIFY, promise=None)),
    "beyond_role_ceiling: a role that delegates nothing": question(
        action(CREDIT), grantors=("administrator",)
    ),
    "beyond_role_ceiling: a role that nobody knows": question(action(CREDIT), grantors=("visitor",)),
    "beyond_role_ceiling: nobody granted it": question(action(CREDIT), grantors=()),
    "beyond_role_ceiling: one of two grantors may not": question(
        action(CREDIT), grantors=("support_manager", "administrator")
    ),
    "beyond_role_ceiling: too much each": question(
        action(CREDIT, amount_minor=2_001), mandate=with_step(CREDIT, exactly=usd(2_001))
    ),
    "beyond_role_ceiling: too much in total": question(
        action(CREDIT), mandate=with_limit("credit.issue", money=usd(100_001))
    ),
    "beyond_role_ceiling: too many": question(action(CREDIT), mandate=with_limit("credit.issue", count=101)),
    "beyond_role_ceiling: an effect that nobody may delegate": question(
        action(CHANGE), mandate=changed(MANDATE, steps=(CHANGE,))
    ),
    "order_of_steps: what comes first can no longer complete": question(action(NOTIFY, requires=(LOST,))),
    "order_of_steps: what comes first is not there": question(action(NOTIFY, requires=())),
    "already_given: by somebody else": question(action(CREDIT, snapshot={"exists": True, "others": 1})),
    "already_given: nobody looked": question(action(CREDIT, snapshot={"exists": True})),
    "subject_missing: not there": question(action(CREDIT, snapshot={"exists": False, "others": 0})),
    "subject_missing: nobody looked": question(action(CREDIT, snapshot={"others": 0})),
    "unknown_effect: policy has no data": question(action(CLOSE), mandate=changed(MANDATE, steps=(CLOSE,))),
    "malformed: a number as text": question(action(CREDIT, snapshot={"exists": True, "others": "0"})),
    "malformed: a truth as text": question(action(CREDIT, snapshot={"exists": "true", "others": 0})),
    "malformed: a proposal that does not count the step": question(action(CREDIT), proposal={}),
}


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


@pytest.mark.parametrize("case", DENIED)
async def test_each_border_denies_with_its_own_code(embedded: EmbeddedEngine, case: str) -> None:
    """What crosses one border of the mandate or the policy is denied, and the reason names the border."""
    [decision] = (await embedded.ask(DENIED[case])).decisions
    assert decision.verdict is Verdict.DENY
    assert case.partition(":")[0] in codes(decision)


async def test_what_crosses_no_border_is_allowed(embedded: EmbeddedEngine) -> None:
    """The three actions of the mandate as its steps want them pass, each with its reason."""
    answer = await embedded.ask(question(action(CREDIT), action(ANNOTATE), action(NOTIFY)))
    assert [one.verdict for one in answer.decisions] == [Verdict.ALLOW] * 3
    assert [codes(one) for one in answer.decisions] == [{"matrix_allow"}] * 3


async def test_a_deny_obliges_to_nothing_and_hides_no_reason(embedded: EmbeddedEngine) -> None:
    """Two borders crossed at once give two reasons, and nothing for the ledger to see to."""
    [decision] = (await embedded.ask(question(action(CREDIT, in_cohort=False, currency="EUR")))).decisions
    assert codes(decision) == {"not_in_cohort", "currency_not_exact"}
    assert (decision.obligations.volume, decision.obligations.approvers) == ((), ())


FREE = changed(MANDATE, ask_above=AskAbove())
FIRST = with_step(ANNOTATE, after=())

DAILY = "auto_budget:credit.issue/effect/day/USD"

ASKED: Mapping[str, Question] = {
    "auto_budget: more than the day has left in number": question(
        action(CREDIT), used={DAILY: Total(count=396)}
    ),
    "auto_budget: more than the day has left in money": question(
        action(CREDIT), used={DAILY: Total(amounts={"USD": 95_001})}
    ),
    "ask_above_count: the proposal": question(
        action(CREDIT), proposal=proposed(MANDATE, 5) | {"credit": Total(count=11)}
    ),
    "ask_above_count: with what is under way": question(
        action(CREDIT), totals={"credit.issue": Total(count=6)}
    ),
    "ask_above_count: a first step without money": question(
        action(ANNOTATE), mandate=FIRST, proposal=proposed(FIRST, 11)
    ),
    "ask_above_count: beyond what policy leaves to agents": question(
        action(NOTIFY), mandate=FREE, proposal=proposed(FREE, 201)
    ),
    "ask_above_amount: the proposal": question(
        action(CREDIT), proposal={"credit": Total(count=5, amounts={"USD": 10_001})}
    ),
    "ask_above_amount: with what is under way": question(
        action(CREDIT), totals={"credit.issue": Total(amounts={"USD": 5_001})}
    ),
    "ask_above_amount: beyond what policy leaves to agents": question(
        action(CREDIT), mandate=FREE, proposal={"credit": Total(count=5, amounts={"USD": 50_001})}
    ),
    "matrix_high: high by contract": question(action(CREDIT, consequence="high")),
}


@pytest.mark.parametrize("case", ASKED)
async def test_each_threshold_asks_a_person_with_its_own_code(embedded: EmbeddedEngine, case: str) -> None:
    """Above a threshold the action needs approval, for that reason alone."""
    [decision] = (await embedded.ask(ASKED[case])).decisions
    assert decision.verdict is Verdict.NEEDS_APPROVAL
    assert codes(decision) == {case.partition(":")[0]}
    assert decision.obligations.quorum == 1
    assert decision.obligations.decide_within > 0


async def test_exactly_the_threshold_asks_nobody(embedded: EmbeddedEngine) -> None:
    """`Above` means above: ten of ten, and 100.00 of 100.00."""
    [decision] = (await embedded.ask(question(action(CREDIT), proposal=proposed(MANDATE, 10)))).decisions
    assert decision.verdict is Verdict.ALLOW


async def test_an_effect_under_supervision_asks_every_time(policy_folder: Path) -> None:
    """Autonomy is policy data: supervised effects need a person for a single action too."""
    data = policy_data()
    data["remit"]["settings"]["effects"]["account.annotate"]["autonomy"] = "supervised"
    engine = EmbeddedEngine(with_data(policy_folder, data))
    [decision] = (await engine.ask(question(action(ANNOTATE)))).decisions
    assert (decision.verdict, codes(decision)) == (Verdict.NEEDS_APPROVAL, {"supervised"})


MATRIX = [
    ("reversible", "low", (Verdict.ALLOW, 0, False)),
    ("reversible", "medium", (Verdict.ALLOW, 0, False)),
    ("reversible", "high", (Verdict.NEEDS_APPROVAL, 0, False)),
    ("compensable", "low", (Verdict.ALLOW, 0, False)),
    ("compensable", "medium", (Verdict.ALLOW, 0, True)),
    ("compensable", "high", (Verdict.NEEDS_APPROVAL, 0, True)),
    ("irreversible", "low", (Verdict.ALLOW, 0, True)),
    ("irreversible", "medium", (Verdict.ALLOW, 7, True)),
    ("irreversible", "high", (Verdict.NEEDS_APPROVAL, 7, True)),
]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedEngine:
    """The policy with a hold of seven seconds on annotations, so that the matrix shows where a hold applies."""
    data = policy_data()
    data["remit"]["settings"]["effects"]["account.annotate"]["hold_seconds"] = 7
    return EmbeddedEngine(with_data(copied(tmp_path_factory.mktemp("held")), data))


@pytest.mark.parametrize(("row", "column", "expected"), MATRIX)
async def test_every_cell_of_the_matrix(
    held: EmbeddedEngine, row: str, column: str, expected: tuple[Verdict, int, bool]
) -> None:
    """Reversibility and consequence give verdict, hold and verification as DESIGN's table says."""
    asked = question(action(ANNOTATE, reversibility=row, consequence=column))
    [decision] = (await held.ask(asked)).decisions
    must = decision.obligations
    assert (decision.verdict, must.hold_seconds, must.verify) == expected


async def test_policy_raises_what_a_contract_plays_down(embedded: EmbeddedEngine) -> None:
    """A message stays irreversible and is held, whatever its tool's contract claims."""
    asked = question(action(NOTIFY, reversibility="reversible", consequence="low"))
    [decision] = (await embedded.ask(asked)).decisions
    assert (decision.obligations.hold_seconds, decision.obligations.verify) == (5, True)


async def test_every_limit_that_was_compared_is_reserved(embedded: EmbeddedEngine) -> None:
    """Limits and thresholds of mandate and policy come back under names that stay the same."""
    [decision] = (await embedded.ask(question(action(CREDIT)))).decisions
    assert decision.obligations.volume == (
        usd_limit("mandate", "purpose", "ever", 30, 30_000),
        usd_limit("policy", "purpose", "ever", 500, 500_000),
        usd_limit("policy", "effect", "day", 1_000, 1_000_000),
        usd_limit("per_subject", "subject", "ever", 3, 20_000),
    )
    assert decision.obligations.auto_budget == (
        usd_limit("ask_above", "purpose", "ever", 10, 10_000),
        usd_limit("bounds", "purpose", "ever", 200, 50_000),
        usd_limit("auto_budget", "effect", "day", 400, 100_000),
    )


def usd_limit(kind: str, scope: Any, window: Any, count: int, amount_minor: int) -> Volume:
    name = f"{kind}:credit.issue/{scope}/{window}/USD"
    return Volume(
        name=name, scope=scope, window=window, count=count, amount_minor=amount_minor, currency="USD"
    )


async def judged(
    engine: EmbeddedEngine, mandate: Mandate, customers: int
) -> dict[str, set[tuple[str, tuple[str, ...]]]]:
    """Per step: verdict and approvers over a whole campaign."""
    actions = [action(step, number) for step in mandate.steps for number in range(customers)]
    context = Context(
        now=mandate.valid_from,
        environment="sandbox",
        mandate_hash=mandate.hash,
        mandate=mandate.document(),
        revoked=False,
        totals={},
        proposal=proposed(mandate, customers),
    )
    chain = (Link(part="grantor", person="person-1", role="support_manager"),)
    found: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    for one in await ask_all(engine, Agent(id=mandate.agent, version="1", chain=chain), context, actions):
        step = one.decision.id.partition("-")[0]
        found.setdefault(step, set()).add((one.decision.verdict.value, one.decision.obligations.approvers))
    return found


@pytest.mark.parametrize("name", ["outage-0611", "outage-0611-corrected"])
async def test_24_credits_need_one_kind_of_approval(embedded: EmbeddedEngine, name: str) -> None:
    """All credits of the campaign ask the finance lead; notes and messages, which follow them, ask nobody."""
    assert await judged(embedded, read_mandate(MANDATES / f"{name}.yaml"), 24) == {
        "credit": {("needs_approval", ("finance_lead",))},
        "annotate": {("allow", ())},
        "notify": {("allow", ())},
    }


async def test_the_smaller_campaign_asks_nobody(embedded: EmbeddedEngine) -> None:
    """12 credits of 5.00 USD stay below the thresholds of their mandate."""
    found = await judged(embedded, read_mandate(MANDATES / "outage-0619.yaml"), 12)
    assert found == {step: {("allow", ())} for step in ("credit", "annotate", "notify")}
