"""The accounts service: its records, and the tools that list and read accounts.

Keeps names and e-mail addresses out of every row, so that none reaches the model or a journal.
"""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import Field, StringConstraints

from remit.tools.actions import Json, Purpose, Strict, subject_id
from remit.tools.answers import (
    BATCH,
    Count,
    Listing,
    Paged,
    Record,
    Text,
    ask,
    batches,
    distinct,
    of_kind,
    unusable,
)
from remit.tools.contracts import Arguments, ReadContract, ReadTool
from remit.tools.errors import Refused
from remit.tools.transport import Response, Transport

Customer = Annotated[str, StringConstraints(pattern=r"^customer:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]


Reference = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,400}$")]
"""The reference of the effect that an undo takes back."""


class CustomerArguments(Arguments):
    """Base of the arguments of tools that land on a customer, and on nothing else."""

    subject: Customer | None = Field(default=None, description="One customer, for example customer:c-1.")


class Note(Record):
    """A note on an account. `reference` is None where an employee wrote it."""

    text: Text
    actor: Text
    reference: Text | None
    at: Text


class Account(Record):
    """One customer's account as the accounts service answers it."""

    id: Text
    name: Text
    email: Text
    plan: Text
    renewal_date: Text
    notes: list[Note]
    affected_by: list[Text]
    version: Count

    @property
    def subject(self) -> str:
        return f"customer:{self.id}"

    @property
    def etag(self) -> str:
        return f'"{self.version}"'


class AccountBatch(Listing):
    accounts: list[Account]
    missing: list[Text]


class Page(Listing):
    accounts: list[Account]
    next: Text | None


class Change(Record):
    """One changed field of one update; the fields of one update share its version."""

    account: Text
    version: Count
    field: Text
    old: Text | None
    new: Text | None
    actor: Text
    reference: Text | None
    at: Text


class History(Listing):
    changes: list[Change]


class HistoryPage(Paged):
    changes: list[Change]


class Incident(Record):
    id: Text


async def accounts_of(transport: Transport, subjects: Sequence[str], seconds: float) -> dict[str, Account]:
    """By subject, those that exist; one call per 100. Raises what `ask` raises, for a gap in it too."""
    known: dict[str, Account] = {}
    call = "POST /accounts/batch"
    for ids in batches(distinct([subject_id(subject) for subject in subjects])):
        answer = await ask(
            transport, "accounts", call, AccountBatch, seconds=seconds, body={"ids": list(ids)}
        )
        told = {account.id for account in answer.accounts} | set(answer.missing)
        if not told.issuperset(ids):
            raise unusable("accounts", call, Response(200, None), "incomplete")
        known |= {account.subject: account for account in answer.accounts}
    return known


class IncidentArguments(Strict):
    """Which incident, by the company's own id."""

    incident: Annotated[Purpose, Field(description="The incident's id, for example outage-1.")]


class ListAffectedAccounts(ReadTool):
    """The cohort of an incident, read to its end or not at all: half a cohort looks like a whole one."""

    contract: ClassVar[ReadContract] = ReadContract(
        name="list_affected_accounts",
        version="1",
        summary="Lists all customers whom an incident affected, with their plan and renewal date.",
        receiver="accounts",
        credential="accounts",
        authority="accounts:read",
        fields=("plan", "renewal_date"),
        pii=("name", "email"),
        most_subjects=10_000,
        timeout=5.0,
    )
    arguments: ClassVar[type[Strict]] = IncidentArguments

    async def read(self, transport: Transport, arguments: Strict) -> list[dict[str, Json]]:
        """Rows `{subject, plan, renewal_date}`. Refused for an unknown incident and for too many accounts."""
        incident = of_kind(IncidentArguments, arguments).incident
        seconds, most = self.contract.timeout, self.contract.most_subjects
        # The list answers an unknown incident with no accounts, as if nobody had been affected.
        known = f"GET /incidents/{incident}"
        await ask(transport, "accounts", known, Incident, seconds=seconds, unknown="not_found")
        rows: dict[str, dict[str, Json]] = {}
        first = f"GET /accounts?affected_by={incident}&limit={BATCH}"
        call = first
        while True:
            page = await ask(transport, "accounts", call, Page, seconds=seconds)
            before = len(rows)
            rows |= {account.subject: self._row(account) for account in page.accounts}
            if len(rows) > most:
                raise Refused(
                    f"{incident} affects more than {most} accounts. Choose a smaller cohort.",
                    code="too_many_subjects",
                )
            if page.next is None:
                return list(rows.values())
            if len(rows) == before:
                raise unusable("accounts", call, Response(200, None), "incomplete")
            call = f"{first}&after={quote(page.next, safe='')}"

    @staticmethod
    def _row(account: Account) -> dict[str, Json]:
        return {"subject": account.subject, "plan": account.plan, "renewal_date": account.renewal_date}


class AccountArguments(Strict):
    """Which customer."""

    subject: Annotated[Customer, Field(description="One customer, for example customer:c-1.")]


MOST_NOTES = 10
"""The newest ones: what a decision about one incident needs, and a bound on what reaches the model."""


class ReadAccount(ReadTool):
    """One account without name and e-mail address, also where a note's text repeats them."""

    contract: ClassVar[ReadContract] = ReadContract(
        name="read_account",
        version="1",
        summary="Reads one customer's plan, renewal date, incidents and newest notes.",
        receiver="accounts",
        credential="accounts",
        authority="accounts:read",
        fields=("plan", "renewal_date", "affected_by", "notes"),
        pii=("name", "email"),
        most_subjects=1,
        timeout=5.0,
    )
    arguments: ClassVar[type[Strict]] = AccountArguments

    async def read(self, transport: Transport, arguments: Strict) -> list[dict[str, Json]]:
        """One row, notes as `[{text, reference, at}]`, oldest first. Refused for an unknown customer."""
        subject = of_kind(AccountArguments, arguments).subject
        account = (await accounts_of(transport, [subject], self.contract.timeout)).get(subject)
        if account is None:
            raise Refused(
                f"There is no account of {subject}. Take a subject from a listed cohort.", code="not_found"
            )
        return [
            {
                "subject": account.subject,
                "plan": account.plan,
                "renewal_date": account.renewal_date,
                "affected_by": list(account.affected_by),
                "notes": [
                    {"text": _without_pii(note.text, account), "reference": note.reference, "at": note.at}
                    for note in account.notes[-MOST_NOTES:]
                ],
            }
        ]


def _without_pii(text: str, account: Account) -> str:
    for mark, secret in (("[name]", account.name), ("[email]", account.email)):
        if secret:
            text = re.sub(re.escape(secret), mark, text, flags=re.IGNORECASE)
    return text
