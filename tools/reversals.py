"""The tool that takes a settled credit back: the undo of both paths that issue one.

Keeps I1 for the undo itself (an operation of its own, with a key of its own), and names the one record that
it reverses: where one reference stands on two credits, only a record's id says which of them is meant.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from remit.tools.accounts import CustomerArguments, Reference, accounts_of
from remit.tools.actions import Json, Request, subject_id
from remit.tools.answers import (
    Count,
    Found,
    Listing,
    Record,
    Table,
    Text,
    ask,
    batches,
    distinct,
    echoes,
    of_kind,
    parse,
    sight_each,
)
from remit.tools.contracts import Arguments, Budget, Contract, Probe, Sighting, Snapshot, Sought, WriteTool
from remit.tools.mandates import Step
from remit.tools.payments import (
    KEYED_FAILURES,
    Amount,
    Credit,
    Currency,
    credits_by,
    key_header,
    keyed_failure,
)
from remit.tools.states import Consequence, Reversibility, Seen, Sight
from remit.tools.transport import Response, Transport

RecordId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]


class ReversalArguments(CustomerArguments):
    """What a recovery mandate says: which effect, which record of it, and how much of it is taken back."""

    undoes: Reference
    record: Annotated[
        RecordId, Field(description="The credit's id in the payments service, from the evidence.")
    ]
    amount_minor: Amount
    currency: Currency


class Reversal(Record):
    """One reversal as the payments service answers it."""

    id: Text
    credit: Text
    amount_minor: Count
    reference: Text | None
    status: Literal["settled"]
    at: Text


class Reversals(Listing):
    reversals: list[Reversal]


_FAILURES: Table = {
    **KEYED_FAILURES,
    (404, "not_found"): Seen.REFUSED,
    (409, "not_settled"): Seen.REFUSED,
    (409, "spent"): Seen.REFUSED,
    (409, "exceeds"): Seen.REFUSED,
}


async def _reversals(transport: Transport, references: Sequence[str], seconds: float) -> Found[Reversal]:
    body = {"references": list(references)}
    answer = await ask(transport, "payments", "POST /reversals/search", Reversals, seconds=seconds, body=body)
    return Found(answer.as_of, answer.reversals)


class ReverseCredit(WriteTool):
    """Reverses part or all of one settled credit. Nothing takes that back: a new credit is a new decision."""

    contract: ClassVar[Contract] = Contract(
        name="reverse_credit",
        version="1",
        effect="credit.reverse",
        summary="Takes back part or all of one settled credit that is not spent.",
        receiver="payments",
        reads_from=("accounts",),
        credential="payments",
        authority="credits:reverse",
        writes=("reversals",),
        records="reversals of the payments service, by the operation's reference",
        for_agents=False,
        retry_safe=True,
        reversibility=Reversibility.IRREVERSIBLE,
        undo=None,
        consequence=Consequence.MEDIUM,
        receiver_enforces_key=True,
        key_probe=Probe(
            shown_by="tests/tools/test_undo.py::test_one_key_is_one_reversal_however_often_it_is_sent",
            date="2026-11-30",
        ),
        key_retention=86_400.0,
        conditional=None,
        relies_on=("exists", "matches", "settled", "reversible_minor"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=6, seconds=3_600.0),
        expires_after=None,
    )
    arguments: ClassVar[type[Arguments]] = ReversalArguments

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        said = of_kind(ReversalArguments, arguments)
        return {
            "subject": subject,
            "amount_minor": said.amount_minor,
            "currency": said.currency,
            "undoes": said.undoes,
            "record": said.record,
        }

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        body = {"amount_minor": intent["amount_minor"], "reference": reference}
        return Request(method="POST", path=f"/credits/{intent['record']}/reverse", body=body)

    def headers(self, wire_key: str, etag: str | None) -> dict[str, str]:
        return key_header(wire_key)

    def classify(self, response: Response, request: Request) -> Seen:
        if response.status != 202:
            return keyed_failure(response, _FAILURES)
        reversal = parse(Reversal, response.body)
        if reversal is None or request.path != f"/credits/{reversal.credit}/reverse":
            return Seen.UNKNOWN
        return (
            Seen.ACCEPTED if echoes(reversal, request.body, ("amount_minor", "reference")) else Seen.UNKNOWN
        )

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        """`matches`: the record bears the undone reference, the customer and the currency.

        `reversible_minor` counts what this very operation has reversed already: our own effect is no change.
        """
        seconds = self.contract.timeout
        known = await accounts_of(transport, [one.subject for one in asked], seconds)
        undone: dict[str, Credit] = {}
        ours: list[Reversal] = []
        for references in batches(distinct([one.intent["undoes"] for one in asked])):
            found = await credits_by(transport, "references", references, seconds)
            undone |= {credit.id: credit for credit in found.records}
        for references in batches(distinct([one.reference for one in asked])):
            ours += (await _reversals(transport, references, seconds)).records
        return {
            one.reference: Snapshot({"exists": one.subject in known, **_standing(one, undone, ours)})
            for one in asked
        }

    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        async def look(references: list[str]) -> Found[Reversal]:
            return await _reversals(transport, references, self.contract.timeout)

        source = "payments: reversals by reference"
        return await sight_each(sought, source, look, _judge, lambda reversal: reversal.reference)


def _standing(one: Sought, undone: dict[str, Credit], ours: list[Reversal]) -> dict[str, Json]:
    credit = undone.get(one.intent["record"])
    meant = (one.intent["undoes"], subject_id(one.subject), one.intent["currency"])
    if credit is None or (credit.reference, credit.customer, credit.currency) != meant:
        return {"matches": False, "settled": False, "reversible_minor": 0}
    own = sum(
        reversal.amount_minor
        for reversal in ours
        if (reversal.reference, reversal.credit) == (one.reference, credit.id)
    )
    left = 0 if credit.spent else credit.amount_minor - credit.reversed_minor + own
    return {"matches": True, "settled": credit.status in {"settled", "reversed"}, "reversible_minor": left}


def _judge(one: Sought, reversals: list[Reversal]) -> Sight:
    if not reversals:
        return Sight.ABSENT
    if len(reversals) > 1:
        return Sight.MULTIPLE
    same = (reversals[0].credit, reversals[0].amount_minor) == (
        one.intent["record"],
        one.intent["amount_minor"],
    )
    return Sight.EFFECTIVE if same else Sight.DIFFERENT
