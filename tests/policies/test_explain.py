"""`remit policy explain` in parts: each code has its words, and what is told is what was decided and asked."""

import re

import pytest

from remit.policies import EmbeddedEngine, load_policy
from remit.policies.explain import WORDS, explain, reasons_in_words
from remit.policies.record import context_document, kept_question
from remit.policies.revision import HERE, rego_files
from remit.policies.silence import SILENCES
from remit.tools.actions import Json, canonical_hash
from remit.tools.errors import Refused
from remit.tools.questions import Decision, Question

from .cases import CREDIT, MANDATE, NOTIFY, action, proposed, question

ROOT = HERE.parent
GIVEN = re.compile(r'"code": "([a-z_]+)"|_code\(\w+\) := "([a-z_]+)"')
"""A code as a reason has it, or as a function that chooses one gives it."""


def test_every_code_that_policy_or_ledger_gives_has_its_words_and_no_other_has() -> None:
    """A new reason without words, and words without a reason, are found here."""
    ledger = ROOT / "checkpoints" / "migrations" / "0001" / "08_proposing.sql"
    given = {
        code
        for file in (*rego_files(HERE), ledger)
        for found in GIVEN.findall(file.read_text())
        for code in found
        if code
    }
    assert set(WORDS) == given


def test_every_code_is_in_the_readme() -> None:
    """Reasons and lacks of an answer alike: a code that is stored is looked up there."""
    readme = (HERE / "README.md").read_text()
    assert [code for code in (*WORDS, *SILENCES) if f"`{code}`" not in readme] == []


def test_a_code_of_a_later_version_is_told_as_it_is() -> None:
    """An older console shows a newer database's reasons without guessing what they mean."""
    (told,) = reasons_in_words([{"code": "later", "detail": "{more} of it"}])
    assert told["words"] == "{more} of it"


async def decided(engine: EmbeddedEngine, asked: Question) -> Decision:
    return (await engine.ask(asked)).decisions[0]


async def test_an_ask_names_its_thresholds_and_who_may_approve(embedded: EmbeddedEngine) -> None:
    """24 credits where the mandate asks above 10: the threshold of the mandate, those of policy, and the approvers."""
    asked = question(action(CREDIT), proposal=proposed(MANDATE, 24))
    why = explain(await decided(embedded, asked), asked.evaluations[0], MANDATE, load_policy().settings)
    assert (why.verdict, why.cell) == ("needs_approval", None)
    assert {one["code"] for one in why.reasons} == {"ask_above_count", "ask_above_amount"}
    assert all(one["detail"] in one["words"] for one in why.reasons)
    mandates = [
        (one.count, one.amount_minor, one.currency) for one in why.thresholds if one.whose == "mandate"
    ]
    assert mandates == [(10, None, None), (None, 10_000, "USD")]
    assert {one.whose for one in why.thresholds} > {"policy"}
    assert why.obligations["approvers"] == ["finance_lead"]


async def test_an_allow_names_its_place_in_the_matrix_and_what_the_tool_declared(
    embedded: EmbeddedEngine,
) -> None:
    """The row and column are the policy's own, stricter than what the tool declares; so is what the cell asks for."""
    asked = question(action(NOTIFY, reversibility="reversible", consequence="low"))
    why = explain(await decided(embedded, asked), asked.evaluations[0], MANDATE, load_policy().settings)
    assert why.declared == {"reversibility": "reversible", "consequence": "low"}
    assert why.at_least == {"reversibility": "irreversible", "consequence": "medium"}
    assert why.cell == {
        "row": "irreversible",
        "column": "medium",
        "asks": {"verdict": "allow", "hold": True, "verify": True},
    }


async def test_of_another_revision_nothing_is_told_from_the_data_of_this_one(
    embedded: EmbeddedEngine,
) -> None:
    """The reasons and the mandate were stored; the policy's own numbers may have changed since."""
    asked = question(action(NOTIFY))
    why = explain(await decided(embedded, asked), asked.evaluations[0], MANDATE, None)
    assert why.cell == {"row": "irreversible", "column": "medium", "asks": None}
    assert (why.at_least, why.autonomy) == (None, None)
    assert {one.whose for one in why.thresholds} == {"mandate"}


def kept(asked: Question, **changed: Json) -> Question:
    """The question as it comes back from the ledger, with parts of what was kept changed."""
    document = context_document(asked.subject, asked.context)
    parts: dict[str, Json] = {
        "hash_": canonical_hash(document),
        "document": document,
        "mandate": asked.context.mandate,
        "evaluation": asked.evaluations[0].model_dump(mode="json"),
    }
    return kept_question(**(parts | changed))


def test_a_kept_question_is_the_one_that_was_asked() -> None:
    """Nothing is lost on its way through the ledger, and the mandate is not stored again."""
    asked = question(action(CREDIT))
    assert kept(asked) == asked
    assert "mandate" not in context_document(asked.subject, asked.context)["context"]


@pytest.mark.parametrize("changed", [{"document": {"subject": {}, "context": {}}}, {"evaluation": {}}])
def test_a_kept_question_that_was_altered_is_not_explained(changed: dict[str, Json]) -> None:
    """Its hash tells; an explanation of something else would be worse than none."""
    with pytest.raises(Refused, match=r"cannot be read .*Restore the database from a backup"):
        kept(question(action(CREDIT)), **changed)


def test_a_kept_context_that_is_still_valid_but_another_one_is_told_by_its_hash() -> None:
    """A single number of what held then, changed later: nothing but the hash would show it."""
    asked = question(action(CREDIT))
    document = context_document(asked.subject, asked.context)
    document["context"]["now"] += 1
    with pytest.raises(Refused, match="another hash"):
        kept(asked, document=document)
