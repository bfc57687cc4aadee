"""What one answer proves, for each receiver: every documented answer, and UNKNOWN for all others."""

from __future__ import annotations

from typing import Any

import pytest

from remit.tools.actions import Json, Request
from remit.tools.annotations import AnnotateAccount, RemoveNote
from remit.tools.catalogue import credit_catalogue
from remit.tools.contracts import WriteTool
from remit.tools.mail import SendCorrection, SendEmail
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit
from remit.tools.states import Seen
from remit.tools.transport import Response

SUBJECT = "customer:c-104"
REFERENCE = "inst:outage-0611/credit/customer:c-104/1"
UNDONE = "inst:outage-0611/note/customer:c-104/1"
AT = "2026-06-12T09:00:00.000000Z"

INTENTS: dict[type[WriteTool], dict[str, Json]] = {
    IssueCredit: {"amount_minor": 1000, "currency": "USD", "reason": "outage-0611"},
    IssueCreditLegacy: {"amount_minor": 1000, "currency": "USD", "reason": "outage-0611"},
    ReverseCredit: {"amount_minor": 1000, "currency": "USD", "undoes": UNDONE, "record": "cr-1"},
    AnnotateAccount: {"fields": {"notes": "credited", "renewal_date": "2027-03-04"}},
    RemoveNote: {"undoes": UNDONE, "fields": {}},
    SendEmail: {"template": "one_time_credit", "promise": None, "values": {"amount": "10.00 USD"}},
    SendCorrection: {"template": "credit_correction", "promise": None, "values": {"correction": "Sorry."}},
}

CREDIT: dict[str, Json] = {
    "id": "cr-1",
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": REFERENCE,
    "status": "accepted",
    "accepted_at": AT,
    "settled_at": None,
    "reversed_minor": 0,
    "spent": False,
    "path": "credits",
}
REVERSAL: dict[str, Json] = {
    "id": "rv-1",
    "credit": "cr-1",
    "amount_minor": 1000,
    "reference": REFERENCE,
    "status": "settled",
    "at": AT,
}
NOTE: dict[str, Json] = {"text": "credited", "actor": "agent", "reference": REFERENCE, "at": AT}
ACCOUNT: dict[str, Json] = {
    "id": "c-104",
    "name": "Customer 104",
    "email": "c-104@example.test",
    "plan": "basic",
    "renewal_date": "2027-03-04",
    "notes": [NOTE],
    "affected_by": [],
    "version": 2,
}
MESSAGE: dict[str, Json] = {
    "id": "msg-1",
    "customer": "c-104",
    "template": "one_time_credit",
    "promise": "one_time_credit",
    "values": {"amount": "10.00 USD"},
    "reference": REFERENCE,
    "status": "queued",
}
CORRECTED: dict[str, Json] = {
    **MESSAGE,
    "template": "credit_correction",
    "promise": "none",
    "values": {"correction": "Sorry."},
}
LEGACY: dict[str, Json] = {"ok": True, "credit_id": "cr-1"}

CONTENT = [(413, "too_large"), (422, "invalid")]
PAYMENT = [*CONTENT, (422, "amount_invalid"), (422, "customer_unknown"), (422, "currency_unsupported")]
KEYED = [*PAYMENT, (400, "key_required"), (400, "key_malformed")]
REVERSED = [*KEYED, (404, "not_found"), (409, "not_settled"), (409, "spent"), (409, "exceeds")]
MAILED = [*CONTENT, (422, "customer_unknown"), (422, "template_unknown")]
CHANGED = [*CONTENT, (404, "not_found")]

REFUSALS: dict[type[WriteTool], list[tuple[int, str]]] = {
    IssueCredit: KEYED,
    IssueCreditLegacy: PAYMENT,
    ReverseCredit: REVERSED,
    AnnotateAccount: CHANGED,
    RemoveNote: CHANGED,
    SendEmail: MAILED,
    SendCorrection: MAILED,
}
ACCEPTANCES: dict[type[WriteTool], tuple[int, dict[str, Json]]] = {
    IssueCredit: (202, CREDIT),
    IssueCreditLegacy: (200, LEGACY),
    ReverseCredit: (202, REVERSAL),
    AnnotateAccount: (200, ACCOUNT),
    RemoveNote: (200, ACCOUNT),
    SendEmail: (202, MESSAGE),
    SendCorrection: (202, CORRECTED),
}
TOOLS = list(INTENTS)


def _request(tool: type[WriteTool]) -> Request:
    return tool().request(SUBJECT, {"subject": SUBJECT, **INTENTS[tool]}, REFERENCE)


def _seen(tool: type[WriteTool], status: int, body: Json) -> Seen:
    return tool().classify(Response(status, body), _request(tool))


def _problem(status: int, code: str) -> dict[str, Json]:
    return {"type": f"urn:x:{code}", "title": code, "status": status, "detail": "No.", "code": code}


def test_every_writing_tool_stands_in_these_tables() -> None:
    """A tool that is added is judged here as well."""
    assert {type(tool) for tool in credit_catalogue().writes()} == set(TOOLS)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_documented_acceptance_is_accepted(tool: type[WriteTool]) -> None:
    """Only the documented status with the documented body that speaks of this request."""
    assert _seen(tool, *ACCEPTANCES[tool]) is Seen.ACCEPTED


@pytest.mark.parametrize(
    ("tool", "status", "code"),
    [(tool, status, code) for tool, refusals in REFUSALS.items() for status, code in refusals],
)
def test_a_documented_refusal_is_refused(tool: type[WriteTool], status: int, code: str) -> None:
    """A refusal of the content is final."""
    assert _seen(tool, status, _problem(status, code)) is Seen.REFUSED


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (401, _problem(401, "credential_expired"), Seen.CREDENTIAL),
        (403, None, Seen.CREDENTIAL),
        (429, _problem(429, "rate_limited"), Seen.RATE_LIMITED),
        (429, None, Seen.RATE_LIMITED),
    ],
)
def test_what_comes_before_the_content_is_the_same_everywhere(
    tool: type[WriteTool], status: int, body: Json, seen: Seen
) -> None:
    """Credential and rate limit are answered by gateways too, with bodies of their own."""
    assert _seen(tool, status, body) is seen


@pytest.mark.parametrize("tool", [IssueCredit, ReverseCredit])
def test_keys_in_use_and_keys_of_other_content_are_told_apart(tool: type[WriteTool]) -> None:
    """The two conflicts of a key lead to different ends."""
    assert _seen(tool, 409, _problem(409, "key_in_progress")) is Seen.IN_PROGRESS
    assert _seen(tool, 422, _problem(422, "key_reused")) is Seen.KEY_REUSED


@pytest.mark.parametrize("tool", [AnnotateAccount, RemoveNote])
def test_a_version_that_moved_on_is_a_failed_precondition(tool: type[WriteTool]) -> None:
    """412 with its code says that nothing was changed."""
    assert _seen(tool, 412, _problem(412, "version_mismatch")) is Seen.PRECONDITION


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, None),
        (202, None),
        (200, {}),
        (202, {}),
        (202, {"ok": True}),
        (200, []),
        (200, "done"),
        (201, CREDIT),
        (204, None),
        (302, None),
        (400, None),
        (404, None),
        (404, _problem(404, "route_unknown")),
        (408, None),
        (409, None),
        (409, _problem(409, "some_conflict")),
        (412, None),
        (422, None),
        (422, _problem(422, "some_reason")),
        (422, {"code": 7}),
        (422, [{"code": "invalid"}]),
        (500, _problem(500, "internal")),
        (500, _problem(500, "invalid")),
        (502, None),
        (503, None),
        (504, None),
    ],
)
def test_whatever_is_not_documented_is_unknown(tool: type[WriteTool], status: int, body: Json) -> None:
    """HTML, gateways' answers, unknown codes and server errors prove nothing."""
    assert _seen(tool, status, body) is Seen.UNKNOWN


@pytest.mark.parametrize("tool", TOOLS)
def test_a_documented_code_under_another_status_is_unknown(tool: type[WriteTool]) -> None:
    """Status and code belong together."""
    for status, code in REFUSALS[tool]:
        assert _seen(tool, status + 100, _problem(status, code)) is Seen.UNKNOWN


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case dict():
            return {**value, "more": "x"}
        case _:
            return "x"


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (IssueCredit, "customer"),
        (IssueCredit, "amount_minor"),
        (IssueCredit, "currency"),
        (IssueCredit, "reason"),
        (IssueCredit, "reference"),
        (IssueCredit, "status"),
        (IssueCreditLegacy, "ok"),
        (ReverseCredit, "credit"),
        (ReverseCredit, "amount_minor"),
        (ReverseCredit, "reference"),
        (ReverseCredit, "status"),
        (AnnotateAccount, "id"),
        (AnnotateAccount, "renewal_date"),
        (RemoveNote, "id"),
        (SendEmail, "customer"),
        (SendEmail, "template"),
        (SendEmail, "values"),
        (SendEmail, "reference"),
        (SendEmail, "status"),
        (SendCorrection, "values"),
    ],
)
def test_an_acceptance_of_something_else_is_unknown(tool: type[WriteTool], field: str) -> None:
    """An answer whose fields do not echo the request may belong to another one."""
    status, body = ACCEPTANCES[tool]
    assert _seen(tool, status, {**body, field: _other(body[field])}) is Seen.UNKNOWN
    without = {name: value for name, value in body.items() if name != field}
    assert _seen(tool, status, without) is Seen.UNKNOWN


@pytest.mark.parametrize(
    ("tool", "body"),
    [
        (IssueCredit, {**CREDIT, "status": "withdrawn"}),
        (IssueCredit, {**CREDIT, "amount_minor": 1000.0}),
        (IssueCreditLegacy, {**LEGACY, "credit_id": ""}),
        (AnnotateAccount, {**ACCOUNT, "notes": []}),
        (AnnotateAccount, {**ACCOUNT, "notes": [{**NOTE, "text": "other"}]}),
        (AnnotateAccount, {**ACCOUNT, "notes": [{**NOTE, "reference": None}]}),
        (RemoveNote, {**ACCOUNT, "notes": [{**NOTE, "reference": UNDONE}]}),
        (SendEmail, {**MESSAGE, "status": "withdrawn"}),
    ],
)
def test_an_acceptance_that_contradicts_itself_is_unknown(tool: type[WriteTool], body: Json) -> None:
    """The content of an acceptance has to be that of an accepted change."""
    assert _seen(tool, ACCEPTANCES[tool][0], body) is Seen.UNKNOWN


@pytest.mark.parametrize("tool", TOOLS)
def test_a_failure_that_the_receiver_kept_is_its_last_word_where_it_enforces_keys(
    tool: type[WriteTool],
) -> None:
    """A 5xx that comes back as stored ends its key; elsewhere, and for a fresh 5xx, nothing is known."""
    replayed = Response(500, _problem(500, "internal"), {"idempotency-replayed": "true"})
    keyed = tool.contract.receiver_enforces_key
    assert tool().classify(replayed, _request(tool)) is (Seen.STORED_FAILURE if keyed else Seen.UNKNOWN)
    assert _seen(tool, 500, _problem(500, "internal")) is Seen.UNKNOWN
