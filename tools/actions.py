"""Keys, references and hashes: one function for each, used by every layer. DESIGN section 3.

Keeps I1 (all retries, re-plans, runs and tool paths meet in one key) and the half of I3 that binds an approval
to exactly what would be sent.
"""

import hashlib
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


def canonical_hash(value: Json) -> str:
    """`v1:` + SHA-256 over RFC 8785. Raises ValueError for what has no exact JSON form (floats, big integers)."""
    _refuse_inexact(value, "$")
    return "v1:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()


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
