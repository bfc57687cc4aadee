"""Keys, references, hashes and JSON: one function for each, used by every layer. DESIGN section 3.

Keeps I1 (all retries, re-plans, runs and tool paths meet in one key) and the half of I3 that binds an approval
to exactly what would be sent.
"""

import hashlib
import json
import math
import re
from typing import Annotated, Any

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Json = Any
"""A JSON value: str, int, bool, None, list or dict with string keys. Floats are refused by the hash."""

PURPOSE = r"[a-z0-9][a-z0-9-]{0,62}"
STEP = r"[a-z][a-z0-9_]{0,30}"
SUBJECT = r"[a-z]{1,20}:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"

Purpose = Annotated[str, StringConstraints(pattern=rf"^{PURPOSE}$")]
StepName = Annotated[str, StringConstraints(pattern=rf"^{STEP}$")]
SubjectId = Annotated[str, StringConstraints(pattern=rf"^{SUBJECT}$")]
ActionHash = Annotated[str, StringConstraints(pattern=r"^v1:[0-9a-f]{64}$")]

_MAX_EXACT = 2**53 - 1


class Strict(BaseModel):
    """Base of everything that crosses a border: no unknown fields, no coercion, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Request(Strict):
    """The exact request of an attempt: what is hashed, stored at the first attempt and resent byte for byte."""

    method: str
    path: str
    body: dict[str, Json]


class Action(Strict):
    """The validated, canonical form of one proposal: exactly what would be sent, and what was relied on."""

    purpose: Purpose
    step: StepName
    subject: SubjectId
    effect: str
    tool: str
    tool_version: str
    intent: dict[str, Json]
    request: Request
    relied_on: dict[str, Json] = Field(default_factory=dict)
    mandate_hash: ActionHash

    @property
    def key(self) -> str:
        return operation_key(self.purpose, self.step, self.subject)


def operation_key(purpose: str, step: str, subject: str, n: int = 1) -> str:
    """`purpose/step/subject/n`: neither tool nor amount nor attempt nor run nor time are in it."""
    return f"{purpose}/{step}/{subject}/{n}"


def reference(installation: str, key: str) -> str:
    """What is written into every effect that a receiver can carry it in, and searched for by verification."""
    return f"{installation}:{key}"


def wire_key(installation: str, key: str, generation: int) -> str:
    """The idempotency key: the same over attempts and revisions of one generation."""
    return f"{installation}:{key}#{generation}"


def subject_id(subject: str) -> str:
    """The receiver's own id: `customer:c-104` is `c-104`."""
    return subject.partition(":")[2]


def canonical(value: Json) -> bytes:
    """The one form of a value, RFC 8785: what is hashed, and what is sent. Raises ValueError for what has none."""
    _refuse_inexact(value, "$")
    return rfc8785.dumps(value)


def canonical_hash(value: Json) -> str:
    """`v1:` + SHA-256 over RFC 8785. Raises ValueError for what has no exact JSON form (floats, big integers)."""
    return "v1:" + hashlib.sha256(canonical(value)).hexdigest()


def read_json(raw: str | bytes, *, exact: bool = True) -> Json:
    """The value of a JSON text that has one meaning only. Raises ValueError.

    Refused: a name that stands twice, NaN, infinities and what nests too deeply; with `exact` also everything that has
    no canonical form (fractions, numbers over 2^53, NUL, lone surrogates).
    """
    try:
        value = json.loads(raw, object_pairs_hook=_each_once, parse_constant=_no_number, parse_float=_finite)
        if exact:
            _refuse_inexact(value, "$")
    except RecursionError as error:
        raise ValueError("The JSON is nested too deeply. Write it flatter.") from error
    return value


def intent_hash(intent: dict[str, Json]) -> str:
    """Which business change is meant; another intent under a live key is a conflict that a person sees."""
    return canonical_hash({"intent": intent})


def action_hash(action: Action) -> str:
    """What an approval binds to: the intent, the tool, the request, the mandate and what was relied on."""
    return canonical_hash(
        {
            "intent": action.intent,
            "step": action.step,
            "subject": action.subject,
            "tool": action.tool,
            "tool_version": action.tool_version,
            "request": action.request.model_dump(),
            "mandate": action.mandate_hash,
            "relied_on": action.relied_on,
        }
    )


_SURROGATE = re.compile("[\ud800-\udfff]")


def _refuse_inexact(value: Json, where: str) -> None:
    match value:
        case None | bool():
            return
        case int() if abs(value) <= _MAX_EXACT:
            return
        case str() if "\x00" not in value and not _SURROGATE.search(value):
            return
        case list():
            for index, item in enumerate(value):
                _refuse_inexact(item, f"{where}[{index}]")
        case dict():
            for name, item in value.items():
                _refuse_inexact(name, where)
                _refuse_inexact(item, f"{where}.{name}")
        case _:
            raise ValueError(
                f"{where} holds {value!r}, which has no exact JSON form. "
                "Use text, whole numbers up to 2^53, lists and objects."
            )


def _each_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("A name stands twice in one JSON object. Write each once.")
    return members


def _no_number(literal: str) -> Json:
    raise ValueError(f"{literal[:40]} is no JSON number. Use whole numbers up to 2^53.")


def _finite(literal: str) -> float:
    value = float(literal)
    return value if math.isfinite(value) else _no_number(literal)
