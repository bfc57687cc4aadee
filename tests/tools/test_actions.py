"""Keys, references and hashes: one value, one hash, whoever computes it."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from remit.tools.actions import (
    Action,
    Request,
    action_hash,
    canonical,
    canonical_hash,
    intent_hash,
    operation_key,
    read_json,
    reference,
    wire_key,
)

MANDATE = "v1:" + "0" * 64

ACTION = Action(
    purpose="outage-0611",
    step="credit",
    subject="customer:c-104",
    effect="credit.issue",
    tool="issue_credit",
    tool_version="1",
    intent={"subject": "customer:c-104", "amount_minor": 1000, "currency": "USD"},
    request=Request(method="POST", path="/credits", body={"amount_minor": 1000}),
    relied_on={"exists": True, "others": 0},
    mandate_hash=MANDATE,
)


def _sha(text: str) -> str:
    return "v1:" + hashlib.sha256(text.encode()).hexdigest()


def test_keys_are_sorted_by_utf16_code_units_as_rfc_8785_shows() -> None:
    """The sorting example of RFC 8785, section 3.2.3."""
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    expected = (
        '{"\\r":"Carriage Return","1":"One","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis",'
        '"\u20ac":"Euro Sign","\U0001f600":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )
    assert canonical_hash(value) == _sha(expected)


def test_text_and_literals_are_written_as_rfc_8785_shows() -> None:
    """The example of RFC 8785, section 3.2.2, without its numbers, which are not whole."""
    value = {"string": '\u20ac$\u000f\u000aA\'B"\\\\"/', "literals": [None, True, False]}
    expected = '{"literals":[null,true,false],"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    assert canonical_hash(value) == _sha(expected)


VECTORS: list[tuple[Any, str]] = [
    ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'),
    ({"b": 1, "a": 2, "A": 3, "aa": 4, "": 5}, '{"":5,"A":3,"a":2,"aa":4,"b":1}'),
    ({"10": 1, "9": 2}, '{"10":1,"9":2}'),
    ({"e\u0301": 1, "\u00e9": 2}, '{"e\u0301":1,"\u00e9":2}'),
    (
        "Gutschrift f\u00fcr Kundin \u2116 104 \U0001f44d",
        '"Gutschrift f\u00fcr Kundin \u2116 104 \U0001f44d"',
    ),
    ("\b\t\n\f\r\x01\x1f\x7f\u2028</", '"\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\u2028</"'),
    ([56, {"d": True, "10": None, "1": []}], '[56,{"1":[],"10":null,"d":true}]'),
    ([-0, 0, -1, 10**15], "[0,0,-1,1000000000000000]"),
    ([], "[]"),
]
"""Value and canonical text, by RFC 8785: keys by UTF-16 units, the shortest escapes, nothing normalised."""


@pytest.mark.parametrize(("value", "text"), VECTORS, ids=[text[:20] for _, text in VECTORS])
def test_the_canonical_form_is_that_of_rfc_8785(value: Any, text: str) -> None:
    """Where sorting by code point or escaping beyond ASCII would give another text (F63)."""
    assert canonical(value) == text.encode()
    assert canonical_hash(value) == _sha(text)
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"amount": NaN}',
        '{"amount": Infinity}',
        '{"amount": -Infinity}',
        '{"amount": 1e400}',
        '{"amount": -0.0}',
        '{"amount": 1e-7}',
        '{"amount": 10.00}',
        '{"amount": 1E3}',
        '{"amount": 9007199254740992}',
        '{"amount": 1, "amount": 1}',
        '{"deep": [{"er": {"a": 1, "a": 2}}]}',
        '{"note": "a\\u0000b"}',
        '{"note": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"note": 1',
        "",
        "[" * 100_000,
        "1" * 5_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_exact_is_refused_before_anything_is_hashed(text: str) -> None:
    """A text whose value another reader would take for another value is none (F64)."""
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e400}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_also_where_fractions_are_allowed_a_text_has_one_meaning(text: str) -> None:
    """Receivers may answer with fractions in fields that nobody reads; with two meanings they answer nothing (F64)."""
    assert read_json('{"ratio": 0.5}', exact=False) == {"ratio": 0.5}
    with pytest.raises(ValueError, match=r"twice|no JSON number|nested too deeply"):
        read_json(text, exact=False)


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        float("inf"),
        2**53,
        -(2**53),
        "a\x00b",
        "\ud800",
        {"\udfff": 1},
        {"a\x00": 1},
        {1: "a"},
        (1, 2),
        {1, 2},
        b"bytes",
        {"deep": [{"er": 0.5}]},
    ],
    ids=repr,
)
def test_what_has_no_exact_json_form_is_refused(value: Any) -> None:
    """Floats, big numbers, NUL, lone surrogates and what is no JSON at all have no hash."""
    with pytest.raises(ValueError, match=r"."):
        canonical_hash(value)


def test_the_largest_exact_numbers_are_hashed() -> None:
    """The bound is 2^53 - 1 on both sides."""
    assert canonical_hash([2**53 - 1, 1 - 2**53]) == _sha("[9007199254740991,-9007199254740991]")


def test_true_is_not_one() -> None:
    """Python's True == 1 does not reach the hash."""
    assert canonical_hash({"n": True}) != canonical_hash({"n": 1})


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def _shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(name, _shuffled(item, chance)) for name, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [_shuffled(item, chance) for item in value] if isinstance(value, list) else value


@settings(max_examples=100, deadline=None)
@given(_JSON, st.integers(0, 1000))
def test_the_order_of_keys_does_not_change_the_hash(value: Any, seed: int) -> None:
    """One value has one hash, in whatever order its fields were written."""
    chance = random.Random(seed)  # noqa: S311 - a shuffle that can be repeated
    assert canonical_hash(_shuffled(value, chance)) == canonical_hash(value)


def test_hashes_stay_what_they_were() -> None:
    """Hashes are stored and approved: a change of these values would orphan every approval."""
    assert intent_hash(ACTION.intent) == "v1:15221d8219d9d7ec20b17d86709c9b3ab9dbbb033a968fdf193161cfdadb214c"
    assert action_hash(ACTION) == "v1:40800350f32ecaa6908ab98a3a75bb1ab3278a66546e7795175a3d0e7c723136"


@pytest.mark.parametrize(
    "changed",
    [
        {"intent": {**ACTION.intent, "amount_minor": 1001}},
        {"step": "other"},
        {"subject": "customer:c-105"},
        {"tool": "issue_credit_legacy"},
        {"tool_version": "2"},
        {"request": Request(method="POST", path="/credits", body={"amount_minor": 1001})},
        {"mandate_hash": "v1:" + "1" * 64},
        {"relied_on": {"exists": True, "others": 1}},
    ],
    ids=lambda changed: str(next(iter(changed))),
)
def test_an_approval_binds_to_each_part_of_what_would_be_sent(changed: dict[str, Any]) -> None:
    """Whatever differs in what a person judged gives another action hash."""
    assert action_hash(ACTION.model_copy(update=changed)) != action_hash(ACTION)


def test_the_intent_knows_neither_tool_nor_snapshot() -> None:
    """Another tool path and another premise are the same business change."""
    other = ACTION.model_copy(update={"tool": "issue_credit_legacy", "relied_on": {"others": 7}})
    assert intent_hash(other.intent) == intent_hash(ACTION.intent)
    assert other.key == ACTION.key


def test_key_reference_and_wire_key_have_their_forms() -> None:
    """The reference is the same over generations; the wire key changes with each."""
    key = operation_key("outage-0611", "credit", "customer:c-104")
    assert (key, ACTION.key) == ("outage-0611/credit/customer:c-104/1",) * 2
    assert reference("inst", key) == "inst:outage-0611/credit/customer:c-104/1"
    assert wire_key("inst", key, 2) == "inst:outage-0611/credit/customer:c-104/1#2"


@pytest.mark.parametrize(
    "changed",
    [
        {"purpose": "Outage"},
        {"purpose": "a/b"},
        {"step": "credit/x"},
        {"subject": "c-104"},
        {"subject": "customer:../x"},
        {"mandate_hash": "v2:00"},
        {"tool_version": 1},
        {"purpose": "outage-0611\n"},
        {"purpose": "\u043eutage-0611"},
        {"step": "cr\u0435dit"},
        {"subject": "customer:c-\u0661\u0660\u0664"},
        {"subject": "customer:c-104\u200b"},
        {"subject": "customer:c-104 "},
        {"subject": "\uff43ustomer:c-104"},
        {"unknown": 1},
    ],
    ids=repr,
)
def test_an_action_takes_no_part_of_a_key_that_could_reach_into_another(changed: dict[str, Any]) -> None:
    """Separators, foreign forms, coercion, unknown fields and everything that only looks like ASCII are refused."""
    with pytest.raises(ValidationError):
        Action.model_validate({**ACTION.model_dump(), **changed})
