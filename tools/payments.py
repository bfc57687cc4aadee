"""The payments service: its records, and the two tools that issue a credit (two paths, one effect).

Keeps I1 where the service allows it: both paths write the same reference, and verification searches over
both.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from remit.tools.accounts import CustomerArguments, accounts_of
from remit.tools.actions import Json, Request, subject_id
from remit.tools.answers import (
    ANYWHERE,
    Count,
    Found,
    Listing,
    Paged,
    Record,
    Table,
    Text,
    ask,
    batches,
    by_table,
    distinct,
    echoes,
    every_page,
    of_kind,
    parse,
    sight_each,
    withdraw_each,
)
from remit.tools.contracts import (
    Arguments,
    Budget,
    Contract,
    Item,
    Listed,
    Probe,
    Sighting,
    Snapshot,
    Sought,
    Trace,
    Undo,
    WriteTool,
)
from remit.tools.errors import NotSent
from remit.tools.mandates import Step
from remit.tools.states import Consequence, Reversibility, Seen, Sight
from remit.tools.transport import Response, Transport

_log = logging.getLogger(__name__)

Amount = Annotated[int, Field(ge=1, le=1_000_000, description="Amount in minor units, for example cents.")]
Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$", description="ISO 4217 code, for example USD.")]


class CreditArguments(CustomerArguments):
    """What a model may say about a credit; the mandate's step fixes what is allowed."""

    amount_minor: Amount
    currency: Currency


class Credit(Record):
    """One credit as the payments service answers it, whichever path it came by."""

    id: Text
    customer: Text
    amount_minor: Count
    currency: Text
    reason: Text
    reference: Text | None
    status: Literal["accepted", "settled", "withdrawn", "reversed"]
    accepted_at: Text
    settled_at: Text | None
    reversed_minor: Count
    spent: bool
    path: Text

    @property
    def live(self) -> bool:
        return self.status in {"accepted", "settled"}


class Credits(Listing):
    credits: list[Credit]


class ItemResult(Record):
    """What a batch call answers for one item."""

    key: Text
    status: Annotated[int, Field(ge=100, le=599)]
    replayed: bool
    body: dict[str, Json]


class BatchResult(Record):
    results: list[ItemResult]


class CreditPage(Paged):
    credits: list[Credit]


class LegacyReceipt(Record):
    ok: Literal[True]
    credit_id: Annotated[str, Field(min_length=1, max_length=200)]


async def credits_by(
    transport: Transport, field: Literal["references", "customers"], wanted: Sequence[str], seconds: float
) -> Found[Credit]:
    """Credits of both paths by reference or by customer, at most 100 wanted. Raises what `ask` raises."""
    body = {field: list(wanted)}
    answer = await ask(transport, "payments", "POST /credits/search", Credits, seconds=seconds, body=body)
    return Found(answer.as_of, answer.credits)


def same_business(credit: Credit, purpose: str) -> bool:
    """Whether a credit was given for this purpose, by whomever: by its reason, or a path in its reference."""
    first, *rest = (credit.reference or "").split("/")
    return credit.reason == purpose or purpose in {first.rpartition(":")[2], *rest}


_SF_STRING = re.compile(r"[ -~]{1,255}")


def key_header(wire_key: str) -> dict[str, str]:
    """The IETF draft's Idempotency-Key: a structured-field string, so quoted and plain ASCII."""
    if not _SF_STRING.fullmatch(wire_key):
        raise NotSent(
            "The key is not 1 to 255 printable ASCII characters. Shorten or rename the installation.",
            code="key_unsendable",
        )
    quoted = wire_key.replace("\\", "\\\\").replace('"', '\\"')
    return {"Idempotency-Key": f'"{quoted}"'}


_CONTENT_REFUSED: Table = {
    (413, "too_large"): Seen.REFUSED,
    (422, "invalid"): Seen.REFUSED,
    (422, "amount_invalid"): Seen.REFUSED,
    (422, "customer_unknown"): Seen.REFUSED,
    (422, "currency_unsupported"): Seen.REFUSED,
}

KEYED_FAILURES: Table = {
    **_CONTENT_REFUSED,
    (400, "key_required"): Seen.REFUSED,
    (400, "key_malformed"): Seen.REFUSED,
    (409, "key_in_progress"): Seen.IN_PROGRESS,
    (422, "key_reused"): Seen.KEY_REUSED,
}
"""What calls with an Idempotency-Key document."""


def keyed_failure(response: Response, table: Table) -> Seen:
    """What a failure of a call with a key proves. A 5xx that comes back as stored is the last word under its key."""
    if response.status >= 500 and response.headers.get("idempotency-replayed") == "true":
        return Seen.STORED_FAILURE
    return by_table(response, table)


_WITHDRAW_FAILURES: Table = {(409, "already_settled"): Seen.REFUSED}


class _CreditTool(WriteTool):
    """What both paths share, which is all that makes them one effect."""

    arguments: ClassVar[type[Arguments]] = CreditArguments

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        said = of_kind(CreditArguments, arguments)
        return {
            "subject": subject,
            "amount_minor": said.amount_minor,
            "currency": said.currency,
            "reason": purpose,
        }

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        """`others`: live credits for the same business that are not ours, by whomever and by either path."""
        seconds = self.contract.timeout
        known = await accounts_of(transport, [one.subject for one in asked], seconds)
        given: dict[str, list[Credit]] = {}
        for customers in batches(distinct([subject_id(one.subject) for one in asked])):
            for credit in (await credits_by(transport, "customers", customers, seconds)).records:
                given.setdefault(credit.customer, []).append(credit)
        snapshots: dict[str, Snapshot] = {}
        for one in asked:
            others = sum(
                credit.live
                and credit.reference != one.reference
                and same_business(credit, one.intent["reason"])
                for credit in given.get(subject_id(one.subject), [])
            )
            snapshots[one.reference] = Snapshot({"exists": one.subject in known, "others": others})
        return snapshots

    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        async def look(references: list[str]) -> Found[Credit]:
            return await credits_by(transport, "references", references, self.contract.timeout)

        source = "payments: credits by reference"
        return await sight_each(sought, source, look, judge_credits, lambda credit: credit.reference)

    async def enumerate(self, transport: Transport, since: datetime) -> Listed | None:
        pages = await every_page(
            transport, "payments", "/credits", CreditPage, since=since, seconds=self.contract.timeout
        )
        traces = [
            Trace(credit.reference, credit.model_dump(mode="json"))
            for page in pages
            for credit in page.credits
            if credit.reference is not None and credit.status != "withdrawn"
        ]
        return Listed("payments: list of credits", pages[-1].as_of, traces)

    async def withdraw(self, transport: Transport, records: list[Json]) -> Seen:
        """ACCEPTED when every credit of the evidence is now withdrawn, REFUSED when one has settled."""

        def judge(name: str, response: Response) -> Seen:
            credit = parse(Credit, response.body) if response.status == 200 else None
            if credit is not None and (credit.id, credit.status) == (name, "withdrawn"):
                return Seen.ACCEPTED
            return by_table(response, _WITHDRAW_FAILURES)

        paths = {record["id"]: f"/credits/{quote(record['id'], safe='')}/withdraw" for record in records}
        return await withdraw_each(transport, "payments", paths, judge, seconds=self.contract.timeout)


def judge_credits(one: Sought, found: list[Credit]) -> Sight:
    """What the credits under one reference prove. A reversed credit had its effect, so it is EFFECTIVE."""
    effects = [credit for credit in found if credit.status != "withdrawn"]
    if not effects:
        return Sight.WITHDRAWN if found else Sight.ABSENT
    live = [credit for credit in effects if credit.live]
    if len(live) > 1:
        return Sight.MULTIPLE
    credit = (live or effects)[0]
    if not _as_meant(credit, one.intent):
        return Sight.DIFFERENT
    return Sight.PENDING if credit.status == "accepted" else Sight.EFFECTIVE


def _as_meant(credit: Credit, intent: Mapping[str, Json]) -> bool:
    # The older path has no field for a reason and writes this word into it.
    reasons = {intent["reason"], "legacy"} if credit.path == "legacy" else {intent["reason"]}
    wanted = (subject_id(intent["subject"]), intent["amount_minor"], intent["currency"])
    return (credit.customer, credit.amount_minor, credit.currency) == wanted and credit.reason in reasons


def said_once(results: Sequence[ItemResult], asked: set[str]) -> dict[str, Response]:
    """By key, the answer for each item that is mentioned once. Two answers for one item contradict each other, or say
    that it was done twice; either way only the records tell. What was not asked for is left aside."""
    mentioned = Counter(result.key for result in results)
    strange = sorted(mentioned.keys() - asked)
    if strange:
        _log.warning("payments answered for %d items that it was not asked about", len(strange))
    return {
        result.key: Response(
            result.status, result.body, {"idempotency-replayed": "true"} if result.replayed else {}
        )
        for result in results
        if mentioned[result.key] == 1 and result.key in asked
    }


_UNDO = Undo(
    tool="reverse_credit",
    owner="finance_lead",
    approval="finance-lead decides per record",
    test="tests/tools/test_undo.py::test_a_settled_credit_is_reversed",
)


class IssueCredit(_CreditTool):
    """The path whose receiver enforces the key."""

    contract: ClassVar[Contract] = Contract(
        name="issue_credit",
        version="1",
        effect="credit.issue",
        summary="Credits an amount to a customer's account once.",
        receiver="payments",
        reads_from=("accounts",),
        credential="payments",
        authority="credits:write",
        writes=("credits",),
        records="credits of the payments service, by the operation's reference",
        for_agents=True,
        retry_safe=True,
        reversibility=Reversibility.COMPENSABLE,
        undo=_UNDO,
        consequence=Consequence.MEDIUM,
        receiver_enforces_key=True,
        key_probe=Probe(
            shown_by="tests/tools/test_payments.py::test_one_key_is_one_credit_however_often_it_is_sent",
            date="2026-11-30",
        ),
        key_retention=86_400.0,
        conditional=None,
        relies_on=("exists", "others"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=6, seconds=3_600.0),
        expires_after=None,
    )

    def headers(self, wire_key: str, etag: str | None) -> dict[str, str]:
        return key_header(wire_key)

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        body = {
            "customer": subject_id(subject),
            "amount_minor": intent["amount_minor"],
            "currency": intent["currency"],
            "reason": intent["reason"],
            "reference": reference,
        }
        return Request(method="POST", path="/credits", body=body)

    def batch_request(self, items: Sequence[Item]) -> Request:
        for item in items:
            key_header(item.wire_key)
        orders = [{"key": item.wire_key, **item.request.body} for item in items]
        return Request(method="POST", path="/credits/batch", body={"credits": orders})

    def split(self, response: Response, items: Sequence[Item]) -> dict[str, Response]:
        if response.status in ANYWHERE:
            return {item.wire_key: response for item in items}
        answer = parse(BatchResult, response.body) if response.status == 200 else None
        return {} if answer is None else said_once(answer.results, {item.wire_key for item in items})

    def classify(self, response: Response, request: Request) -> Seen:
        if response.status != 202:
            return keyed_failure(response, KEYED_FAILURES)
        credit = parse(Credit, response.body)
        echoed = echoes(credit, request.body, ("customer", "amount_minor", "currency", "reason", "reference"))
        return Seen.ACCEPTED if credit is not None and credit.live and echoed else Seen.UNKNOWN


class IssueCreditLegacy(_CreditTool):
    """The older path: no key, so every call is a credit more. Only it falls back, and to the safer path."""

    contract: ClassVar[Contract] = Contract(
        name="issue_credit_legacy",
        version="1",
        effect="credit.issue",
        summary="Credits an amount by the older path, which enforces no keys.",
        receiver="payments",
        reads_from=("accounts",),
        credential="payments",
        authority="credits:write",
        writes=("credits",),
        records="credits of the payments service, by the operation's reference",
        for_agents=True,
        retry_safe=False,
        reversibility=Reversibility.COMPENSABLE,
        undo=_UNDO,
        consequence=Consequence.MEDIUM,
        receiver_enforces_key=False,
        key_probe=None,
        key_retention=None,
        conditional=None,
        relies_on=("exists", "others"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=3, seconds=3_600.0),
        expires_after=None,
        fallback="issue_credit",
    )

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        body = {
            "cust": subject_id(subject),
            "cents": intent["amount_minor"],
            "cur": intent["currency"],
            "memo": reference,
        }
        return Request(method="POST", path="/legacy/credits", body=body)

    def classify(self, response: Response, request: Request) -> Seen:
        if response.status != 200:
            return by_table(response, _CONTENT_REFUSED)
        return Seen.UNKNOWN if parse(LegacyReceipt, response.body) is None else Seen.ACCEPTED
