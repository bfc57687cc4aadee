"""One source, two engines: the compiled module and a real OPA server of the same revision decide alike."""

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from remit.policies import EmbeddedEngine, ServerEngine
from remit.tools.actions import Json
from remit.tools.errors import NoAnswer
from remit.tools.mandates import AskAbove, Mandate, Money
from remit.tools.questions import Answer, Evaluation, Question, Required, Total
from remit.tools.states import Verdict

from .cases import ANNOTATE, CREDIT, MANDATE, NOTIFY, action, changed, question, usd, with_limit, with_step

QUESTIONS = 2_000
BUDGET = "auto_budget:credit.issue/effect/day/USD"
ODD_DOCUMENTS = 160

ODD: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**53, "", "0", "credit.issue", "\u00e9\U0001f600"),
    *([], [1], [None], {}, {"USD": None}),
)


@pytest.mark.slow
async def test_both_engines_decide_alike(embedded: EmbeddedEngine, server: ServerEngine) -> None:
    """2,000 schema-valid questions from one seed: whole answers are equal, but for who gave them and under which id."""
    chance = random.Random(611)  # noqa: S311  # a seed, no secret
    seen: set[str] = set()
    for _ in range(QUESTIONS):
        asked = some_question(chance)
        ours, theirs = await asyncio.gather(embedded.ask(asked), server.ask(asked))
        assert told(ours) == told(theirs)
        seen |= {reason.code for one in ours.decisions for reason in one.reasons}
        seen |= {one.verdict.value for one in ours.decisions}
    assert set(Verdict) <= seen
    assert len(seen) >= 20


def told(answer: Answer) -> Json:
    """Everything that an answer says."""
    return answer.model_dump(mode="json", exclude={"engine", "decision_id"})


async def test_both_engines_treat_odd_documents_alike(embedded: EmbeddedEngine, server: ServerEngine) -> None:
    """Values of the wrong type, which no checked question holds, have one result in both engines."""
    chance = random.Random(619)  # noqa: S311  # a seed, no secret
    for _ in range(ODD_DOCUMENTS):
        document = json.loads(question(action(CREDIT), action(NOTIFY)).model_dump_json())
        place = chance.choice([*places(document)])
        put(document, place, chance.choice(ODD))
        ours = embedded._evaluate(json.dumps(document))
        theirs = (await server._client.decisions(document))["result"]
        assert ours == theirs, place


@pytest.mark.parametrize("part", ["limits", "steps"])
async def test_a_contradictory_mandate_has_no_answer_in_either_engine(
    embedded: EmbeddedEngine, server: ServerEngine, part: str
) -> None:
    """Where one name has two meanings neither engine picks one."""
    twice = {
        "limits": (*MANDATE.limits, MANDATE.limits[0].model_copy(update={"count": 9})),
        "steps": (*MANDATE.steps, CREDIT.model_copy(update={"exactly": usd(999)})),
    }
    asked = question(action(CREDIT), mandate=changed(MANDATE, **{part: twice[part]}))
    with pytest.raises(NoAnswer) as ours:
        await embedded.ask(asked)
    with pytest.raises(NoAnswer) as theirs:
        await server.ask(asked)
    assert (ours.value.code, theirs.value.code) == ("policy_error", "policy_failed")


async def test_the_canary_lives_in_both_engines(embedded: EmbeddedEngine, server: ServerEngine) -> None:
    """The known allow and the known deny come from the compiled module and from the real server."""
    await embedded.check()
    await server.check()


async def test_a_real_server_with_another_revision_gives_no_answer(opa_url: str) -> None:
    """The decisions of another policy are no answer to this one's questions."""
    async with ServerEngine(opa_url, revision="r1-0000000000000000") as engine:
        with pytest.raises(NoAnswer) as refused:
            await engine.ask(question(action(CREDIT)))
    assert refused.value.code == "policy_revision"


def some_question(chance: random.Random) -> Question:
    """A question whose values are mostly right, and sometimes at or beyond a border."""
    mandate = chance.choice([MANDATE, MANDATE, *mandates()])
    actions = [some_action(chance, mandate, number) for number in range(chance.randint(1, 4))]
    return question(
        *actions,
        mandate=mandate,
        now=chance.choice([999, 1_000, 1_500, 1_500, 1_500, 1_999, 2_000]),
        revoked=chance.random() < 0.05,
        agent=chance.choice(["credit-agent"] * 9 + ["another-agent"]),
        grantors=chance.choice(
            [("support_manager",)] * 6 + [("finance_lead",), ("administrator",), (), ("a", "b")]
        ),
        totals=chance.choice([{}, {"credit.issue": some_total(chance)}, {"email.send": some_total(chance)}]),
        proposal={step: some_total(chance) for step in ("credit", "annotate", "notify")},
        used=chance.choice([{}, {}, {BUDGET: Total(count=400, amounts={"USD": chance.randint(0, 100_000)})}]),
    )


def mandates() -> list[Mandate]:
    euro = Money(amount_minor=1_000, currency="EUR")
    return [
        changed(MANDATE, ask_above=AskAbove()),
        changed(MANDATE, ask_above=AskAbove(count=0)),
        changed(MANDATE, ask_above=AskAbove(money=euro)),
        changed(MANDATE, never=("credit.issue", "field:notes")),
        changed(MANDATE, limits=MANDATE.limits[1:]),
        with_step(CREDIT, exactly=euro),
        with_step(CREDIT, exactly=usd(2_001)),
        with_step(CREDIT, after=("annotate",)),
        with_step(ANNOTATE, fields=("notes", "plan"), after=()),
        with_step(NOTIFY, promise=None),
        with_step(NOTIFY, effect="message.post"),
        with_limit("credit.issue", count=101),
    ]


def some_total(chance: random.Random) -> Total:
    amounts = chance.choice([{}, {}, {"USD": 5_000}, {"USD": 10_001}, {"EUR": 1}, {"USD": 1, "EUR": 1}])
    return Total(count=chance.choice([0, 1, 5, 10, 11, 200, 201]), amounts=amounts)


def some_action(chance: random.Random, mandate: Mandate, number: int) -> Evaluation:
    step = chance.choice(mandate.steps)
    odd: dict[str, Any] = chance.choice([
        {}, {}, {}, {}, {"step": "extra"}, {"amount_minor": 999}, {"amount_minor": 0}, {"amount_minor": 10**12},
        {"currency": "EUR"}, {"currency": None}, {"fields": ("notes", "renewal_date")}, {"fields": ()},
        {"template": "other"}, {"promise": "other"}, {"consequence": "high"}, {"reversibility": "irreversible"},
        {"in_cohort": False}, {"rejected_before": True}, {"snapshot": {}}, {"snapshot": {"exists": True, "others": 2}},
        {"snapshot": {"exists": False, "others": 0}}, {"snapshot": {"exists": 1, "others": "0"}},
        {"given": Total(count=chance.randint(0, 4), amounts={"USD": chance.choice([0, 19_000, 19_001])})},
        {"requires": ()}, {"requires": (Required(step="credit", fact="UNKNOWN", live=False),)},
    ])  # fmt: skip
    return action(step, 100 + number, **odd)


def places(document: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value in the document."""
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def put(document: Json, place: tuple[str | int, ...], value: Json) -> None:
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = copy.deepcopy(value)
