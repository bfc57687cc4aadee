"""The tools that write to accounts: annotate one, and take an annotation back.

Keeps I2 (the update call technically takes every field, and only those of the contract are ever named) and I8
(a change is made on the version that was judged, or not at all).
"""

import unicodedata
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from remit.tools.accounts import (
    Account,
    Change,
    CustomerArguments,
    History,
    HistoryPage,
    Reference,
    accounts_of,
)
from remit.tools.actions import Json, Request, subject_id
from remit.tools.answers import Found, Table, ask, by_table, every_page, of_kind, parse, sight_each
from remit.tools.contracts import (
    Arguments,
    Budget,
    Contract,
    Listed,
    Sighting,
    Snapshot,
    Sought,
    Trace,
    Undo,
    WriteTool,
)
from remit.tools.errors import NotSent, Refused
from remit.tools.mandates import Step
from remit.tools.states import Consequence, Reversibility, Seen, Sight
from remit.tools.transport import Response, Transport

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that let a note look other than it is: controls, direction marks, line separators."""

LONGEST_NOTE = 500


def _plain_text(text: str) -> str:
    """NFC, so that one text has one hash however the model spelt its accents."""
    normal = unicodedata.normalize("NFC", text)
    if len(normal) > LONGEST_NOTE or any(unicodedata.category(sign) in _INVISIBLE for sign in normal):
        raise ValueError(f"use plain text on one line, at most {LONGEST_NOTE} characters")
    return normal


def _real_day(text: str) -> str:
    if date.fromisoformat(text).isoformat() != text:
        raise ValueError("write the day as YYYY-MM-DD")
    return text


NoteText = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_NOTE),
    AfterValidator(_plain_text),
]
Day = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_real_day)]


class NoteArguments(CustomerArguments):
    """What a model may say about a note. The mandate's step says whether a date may be named at all."""

    note: NoteText = Field(description="One line of plain text for the account.")
    renewal_date: Day | None = Field(default=None, description="Only where the mandate names it: YYYY-MM-DD.")


class _AccountWrite(WriteTool):
    """What both writing tools of this service share: the condition, the failures, the search."""

    _takes_away: ClassVar[bool]
    """Whether the tool removes a note."""

    _failures: ClassVar[Table] = {
        (404, "not_found"): Seen.REFUSED,
        (412, "version_mismatch"): Seen.PRECONDITION,
        (413, "too_large"): Seen.REFUSED,
        (422, "invalid"): Seen.REFUSED,
    }

    def headers(self, wire_key: str, etag: str | None) -> dict[str, str]:
        if etag is None:
            raise NotSent(
                "There is no version to make this change conditional on. Read the account again first.",
                code="no_version",
            )
        return {"If-Match": etag}

    def classify(self, response: Response, request: Request) -> Seen:
        if response.status != 200:
            return by_table(response, self._failures)
        account = parse(Account, response.body)
        if (
            account is None
            or request.path != f"/accounts/{account.id}"
            or not self._shows(account, request.body)
        ):
            return Seen.UNKNOWN
        return Seen.ACCEPTED

    @abstractmethod
    def _shows(self, account: Account, body: dict[str, Json]) -> bool:
        """Whether the account in an acceptance is one after this very change."""

    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        async def look(references: list[str]) -> Found[Change]:
            answer = await ask(
                transport,
                "accounts",
                "POST /history/search",
                History,
                seconds=self.contract.timeout,
                body={"references": references},
            )
            return Found(answer.as_of, answer.changes)

        source = "accounts: change history by reference"
        return await sight_each(sought, source, look, self._judge, lambda change: change.reference)

    async def enumerate(self, transport: Transport, since: datetime) -> Listed | None:
        """Changes of one account under one reference; notes that were taken away are those of the undo."""
        pages = await every_page(
            transport, "accounts", "/history", HistoryPage, since=since, seconds=self.contract.timeout
        )
        traces = [
            Trace(change.reference, change.model_dump(mode="json"))
            for page in pages
            for change in page.changes
            if change.reference is not None
            and change.field == "notes"
            and (change.new is None) == self._takes_away
        ]
        return Listed("accounts: change history", pages[-1].as_of, traces)

    def _judge(self, one: Sought, changes: list[Change]) -> Sight:
        if not changes:
            return Sight.ABSENT
        if len({(change.account, change.version) for change in changes}) > 1:
            return Sight.MULTIPLE
        if changes[0].account != subject_id(one.subject):
            return Sight.DIFFERENT
        return Sight.EFFECTIVE if self._as_meant(one.intent, changes) else Sight.DIFFERENT

    @abstractmethod
    def _as_meant(self, intent: dict[str, Json], changes: list[Change]) -> bool:
        """Whether the fields of one update are exactly those of the intent."""


class AnnotateAccount(_AccountWrite):
    """Appends one note. The receiver would take every field; only those of `writes` can be named here.

    A renewal date that the account had already leaves no change behind, so such an intent shows as DIFFERENT.
    """

    contract: ClassVar[Contract] = Contract(
        name="annotate_account",
        version="1",
        effect="account.annotate",
        summary="Appends a note to a customer's account.",
        receiver="accounts",
        reads_from=(),
        credential="accounts",
        authority="accounts:write",
        # The update call takes the date beside the note, so policy has to be able to judge it.
        writes=("notes", "renewal_date"),
        records="changes of the accounts service, by the operation's reference",
        for_agents=True,
        retry_safe=False,
        reversibility=Reversibility.REVERSIBLE,
        undo=Undo(
            tool="remove_note",
            owner="support_manager",
            approval="support-manager decides per record",
            test="tests/tools/test_undo.py::test_a_note_is_removed_and_the_date_put_back",
        ),
        consequence=Consequence.LOW,
        receiver_enforces_key=False,
        key_probe=None,
        key_retention=None,
        conditional="if-match",
        relies_on=("exists",),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=6, seconds=3_600.0),
        expires_after=None,
    )
    arguments: ClassVar[type[Arguments]] = NoteArguments
    _takes_away: ClassVar[bool] = False

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        said = of_kind(NoteArguments, arguments)
        fields = {"notes": said.note}
        if said.renewal_date is not None:
            fields["renewal_date"] = said.renewal_date
        return {"subject": subject, "fields": fields}

    def edited(self, intent: dict[str, Json], values: Mapping[str, str]) -> dict[str, Json]:
        fields = {**intent["fields"], **values}
        try:
            said = NoteArguments.model_validate(
                {"subject": intent["subject"], "note": fields.pop("notes"), **fields}
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise Refused(
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}. Correct the value.", code="not_editable"
            ) from error
        return self.intent(intent["subject"], said, None, "")

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        body = {"changes": dict(intent["fields"]), "reference": reference}
        return Request(method="PATCH", path=f"/accounts/{subject_id(subject)}", body=body)

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        known = await accounts_of(transport, [one.subject for one in asked], self.contract.timeout)
        return {
            one.reference: Snapshot({"exists": True}, known[one.subject].etag)
            if one.subject in known
            else Snapshot({"exists": False})
            for one in asked
        }

    def _shows(self, account: Account, body: dict[str, Json]) -> bool:
        changes, reference = body["changes"], body["reference"]
        noted = any(note.reference == reference and note.text == changes["notes"] for note in account.notes)
        return noted and changes.get("renewal_date", account.renewal_date) == account.renewal_date

    def _as_meant(self, intent: dict[str, Json], changes: list[Change]) -> bool:
        written = sorted((change.field, change.new or "") for change in changes)
        return written == sorted(intent["fields"].items())


class RemoveNoteArguments(CustomerArguments):
    """What a recovery mandate says: whose note, and the date to put back where the annotation moved it."""

    undoes: Reference
    renewal_date: Day | None = None


class RemoveNote(_AccountWrite):
    """Takes back what one annotation wrote, found by its reference. Nothing restores the removed note."""

    contract: ClassVar[Contract] = Contract(
        name="remove_note",
        version="1",
        effect="account.unannotate",
        summary="Removes the note that one earlier annotation wrote, and puts its renewal date back.",
        receiver="accounts",
        reads_from=(),
        credential="accounts",
        authority="accounts:write",
        writes=("notes", "renewal_date"),
        records="changes of the accounts service, by the operation's reference",
        for_agents=False,
        retry_safe=False,
        reversibility=Reversibility.IRREVERSIBLE,
        undo=None,
        consequence=Consequence.LOW,
        receiver_enforces_key=False,
        key_probe=None,
        key_retention=None,
        conditional="if-match",
        relies_on=("exists", "notes", "renewal_date"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=6, seconds=3_600.0),
        expires_after=None,
    )
    arguments: ClassVar[type[Arguments]] = RemoveNoteArguments
    _takes_away: ClassVar[bool] = True

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        said = of_kind(RemoveNoteArguments, arguments)
        fields = {} if said.renewal_date is None else {"renewal_date": said.renewal_date}
        return {"subject": subject, "undoes": said.undoes, "fields": fields}

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        changes = {"remove_note": intent["undoes"], **intent["fields"]}
        body = {"changes": changes, "reference": reference}
        return Request(method="PATCH", path=f"/accounts/{subject_id(subject)}", body=body)

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        """`notes` counts those of the reference; with `renewal_date` relied on, no later change is undone."""
        known = await accounts_of(transport, [one.subject for one in asked], self.contract.timeout)
        return {one.reference: self._snapshot(one, known.get(one.subject)) for one in asked}

    @staticmethod
    def _snapshot(one: Sought, account: Account | None) -> Snapshot:
        if account is None:
            return Snapshot({"exists": False, "notes": 0, "renewal_date": None})
        notes = sum(note.reference == one.intent["undoes"] for note in account.notes)
        return Snapshot({"exists": True, "notes": notes, "renewal_date": account.renewal_date}, account.etag)

    def _shows(self, account: Account, body: dict[str, Json]) -> bool:
        changes = body["changes"]
        gone = all(note.reference != changes["remove_note"] for note in account.notes)
        return gone and changes.get("renewal_date", account.renewal_date) == account.renewal_date

    def _as_meant(self, intent: dict[str, Json], changes: list[Change]) -> bool:
        removed = [change for change in changes if change.field == "notes"]
        others = {change.field: change.new for change in changes if change.field != "notes"}
        return bool(removed) and all(change.new is None for change in removed) and others == intent["fields"]
