"""Contracts and arguments: what is incomplete does not load, and what is not exact does not enter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from remit.tools.accounts import AccountArguments, IncidentArguments, ListAffectedAccounts
from remit.tools.actions import Strict
from remit.tools.annotations import AnnotateAccount, NoteArguments, RemoveNoteArguments
from remit.tools.catalogue import Finish
from remit.tools.contracts import Contract, ReadContract
from remit.tools.mail import EmailArguments, SendEmail
from remit.tools.payments import CreditArguments, IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReversalArguments
from remit.tools.states import Reversibility

KEYED = IssueCredit.contract
UNKEYED = IssueCreditLegacy.contract


@pytest.mark.parametrize(
    ("base", "changed", "said"),
    [
        (KEYED, {"key_probe": None}, "receiver_enforces_key needs key_probe and key_retention"),
        (KEYED, {"key_retention": None}, "receiver_enforces_key needs key_probe and key_retention"),
        (KEYED, {"undo": None}, "compensable needs an undo"),
        (AnnotateAccount.contract, {"undo": None}, "reversible needs an undo"),
        (UNKEYED, {"retry_safe": True}, "retry_safe is only true where the receiver enforces the key"),
        (KEYED, {"undo": {"tool": "reverse_credit", "owner": "finance-lead", "test": "t"}}, "approval"),
        (KEYED, {"undo": {"tool": "", "owner": "o", "approval": "a", "test": "t"}}, "undo.tool"),
        (KEYED, {"key_probe": {"shown_by": "t", "date": "yesterday"}}, "key_probe.date"),
        (KEYED, {"receiver": "ledger"}, "receiver"),
        (KEYED, {"effect": "credit"}, "effect"),
        (KEYED, {"name": "Issue Credit"}, "name"),
        (KEYED, {"version": "1.0"}, "version"),
        (KEYED, {"writes": ()}, "writes"),
        (KEYED, {"timeout": 0.0}, "timeout"),
        (KEYED, {"visible_within": 604_801.0}, "visible_within"),
        (KEYED, {"concurrency": 0}, "concurrency"),
        (KEYED, {"batch": 101}, "batch"),
        (AnnotateAccount.contract, {"batch": 2}, "batch is 1 where writes are conditional"),
        (KEYED, {"budget": {"attempts": 0, "seconds": 1.0}}, "budget.attempts"),
        (KEYED, {"conditional": "if-none-match"}, "conditional"),
        (KEYED, {"consequence": "tiny"}, "consequence"),
        (KEYED, {"summary": "Credits"}, "summary"),
        (KEYED, {"retries": 3}, "retries"),
    ],
)
def test_an_incomplete_contract_does_not_load(base: Contract, changed: dict[str, Any], said: str) -> None:
    """Each rule of a contract refuses what breaks it, and says which field it is."""
    with pytest.raises(ValidationError, match=said):
        Contract.model_validate_json(json.dumps({**base.model_dump(mode="json"), **changed}))


@pytest.mark.parametrize("missing", sorted(Contract.model_fields.keys() - {"fallback"}))
def test_no_guarantee_is_assumed(missing: str) -> None:
    """Every field of a contract but the fallback has to be stated, also where the answer is None."""
    stated = KEYED.model_dump(mode="json")
    del stated[missing]
    with pytest.raises(ValidationError, match=missing):
        Contract.model_validate_json(json.dumps(stated))


@pytest.mark.parametrize(
    "changed", [{"fields": ()}, {"most_subjects": 0}, {"timeout": 0.0}, {"receiver": "x"}]
)
def test_an_incomplete_contract_of_a_read_does_not_load(changed: dict[str, Any]) -> None:
    """Reads are bounded, and say what they return."""
    stated = {**ListAffectedAccounts.contract.model_dump(mode="json"), **changed}
    with pytest.raises(ValidationError, match=next(iter(changed))):
        ReadContract.model_validate_json(json.dumps(stated))


def test_a_contract_cannot_be_changed() -> None:
    """What was checked is what holds."""
    with pytest.raises(ValidationError, match="frozen"):
        KEYED.retry_safe = False  # type: ignore[misc]  # the point of the test


def test_an_irreversible_effect_needs_no_undo() -> None:
    """Where nothing takes an effect back, the contract may say so."""
    stated = {**SendEmail.contract.model_dump(mode="json"), "undo": None}
    loaded = Contract.model_validate_json(json.dumps(stated))
    assert (loaded.reversibility, loaded.undo) == (Reversibility.IRREVERSIBLE, None)


CREDIT: dict[str, Any] = {"subject": "customer:c-104", "amount_minor": 1000, "currency": "USD"}
NOTE: dict[str, Any] = {"subject": "customer:c-104", "note": "credited"}
MAIL: dict[str, Any] = {"subject": "customer:c-104", "template": "one_time_credit"}
REVERSAL: dict[str, Any] = {**CREDIT, "undoes": "inst:p/s/customer:c-104/1", "record": "cr-1"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (CreditArguments, CREDIT),
        (CreditArguments, {**CREDIT, "subject": None, "cohort": "cohort-1-2"}),
        (CreditArguments, {**CREDIT, "amount_minor": 1_000_000}),
        (NoteArguments, NOTE),
        (NoteArguments, {**NOTE, "renewal_date": "2028-02-29"}),
        (NoteArguments, {**NOTE, "note": "x" * 500}),
        (EmailArguments, MAIL),
        (ReversalArguments, REVERSAL),
        (RemoveNoteArguments, {"subject": "customer:c-104", "undoes": "inst:p/s/customer:c-104/1"}),
        (IncidentArguments, {"incident": "outage-0611"}),
        (AccountArguments, {"subject": "customer:c-104"}),
        (Finish, {"statements": [{"text": "done", "step": "credit", "count": 24}] * 20}),
    ],
)
def test_exact_arguments_enter(kind: type[Strict], said: dict[str, Any]) -> None:
    """The forms that the catalogue describes are taken as they are."""
    assert kind.model_validate_json(json.dumps(said)).model_dump(mode="json", exclude_unset=True) == said


@pytest.mark.parametrize(
    ("kind", "base", "changed"),
    [
        (CreditArguments, CREDIT, {"subject": None}),
        (CreditArguments, CREDIT, {"cohort": "cohort-1-1"}),
        (CreditArguments, CREDIT, {"subject": "incident:outage-0611"}),
        (CreditArguments, CREDIT, {"subject": "customer:../../x"}),
        (CreditArguments, CREDIT, {"subject": "customer:c-104\n"}),
        (CreditArguments, CREDIT, {"subject": None, "cohort": "cohort-all"}),
        (CreditArguments, CREDIT, {"amount_minor": 0}),
        (CreditArguments, CREDIT, {"amount_minor": -1000}),
        (CreditArguments, CREDIT, {"amount_minor": 1_000_001}),
        (CreditArguments, CREDIT, {"amount_minor": 1000.0}),
        (CreditArguments, CREDIT, {"amount_minor": "1000"}),
        (CreditArguments, CREDIT, {"amount_minor": True}),
        (CreditArguments, CREDIT, {"currency": "usd"}),
        (CreditArguments, CREDIT, {"currency": "USDX"}),
        (CreditArguments, CREDIT, {"reason": "goodwill"}),
        (NoteArguments, NOTE, {"note": ""}),
        (NoteArguments, NOTE, {"note": "   "}),
        (NoteArguments, NOTE, {"note": "x" * 501}),
        (NoteArguments, NOTE, {"note": "a\nb"}),
        (NoteArguments, NOTE, {"note": "a\x00b"}),
        (NoteArguments, NOTE, {"note": "a\x1b[2Jb"}),
        (NoteArguments, NOTE, {"note": "a\u202eb"}),
        (NoteArguments, NOTE, {"note": "a\u2028b"}),
        (NoteArguments, NOTE, {"note": "a\u200bb"}),
        (NoteArguments, NOTE, {"renewal_date": "2027-02-29"}),
        (NoteArguments, NOTE, {"renewal_date": "2027-2-1"}),
        (NoteArguments, NOTE, {"renewal_date": "20270301"}),
        (NoteArguments, NOTE, {"plan": "premium"}),
        (EmailArguments, MAIL, {"template": "../x"}),
        (EmailArguments, MAIL, {"template": ""}),
        (EmailArguments, MAIL, {"values": {"amount": "a million"}}),
        (EmailArguments, MAIL, {"text": "Dear customer"}),
        (ReversalArguments, REVERSAL, {"record": "../credits"}),
        (ReversalArguments, REVERSAL, {"undoes": "two words"}),
        (IncidentArguments, {"incident": "outage-0611"}, {"incident": "a&limit=1"}),
        (AccountArguments, {"subject": "customer:c-104"}, {"subject": "c-104"}),
        (Finish, {"statements": []}, {"statements": [{"text": "x"}] * 21}),
        (Finish, {"statements": []}, {"statements": [{"text": "x" * 301}]}),
        (Finish, {"statements": []}, {"statements": [{"text": ""}]}),
        (Finish, {"statements": []}, {"statements": [{"text": "x", "count": -1}]}),
        (Finish, {"statements": []}, {"statements": [{"text": "x", "step": "Credit!"}]}),
        (Finish, {"statements": []}, {"statements": "done"}),
    ],
)
def test_inexact_arguments_do_not_enter(
    kind: type[Strict], base: dict[str, Any], changed: dict[str, Any]
) -> None:
    """No coercion, no unknown field, no second target, no text that would look other than it is."""
    kind.model_validate_json(json.dumps(base))
    with pytest.raises(ValidationError):
        kind.model_validate_json(json.dumps({**base, **changed}))


def test_one_note_has_one_spelling() -> None:
    """Blanks around it and the way in which accents are composed do not make another intent."""
    spelt = [
        NoteArguments(subject="customer:c-104", note=note).note for note in (" caf\u00e9 ", "cafe\u0301")
    ]
    assert spelt == ["caf\u00e9", "caf\u00e9"]
