"""Reading accounts: whole cohorts or none, and nothing personal in any row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from remit.sandbox.records import dump
from remit.tools.accounts import MOST_NOTES, IncidentArguments, ListAffectedAccounts, ReadAccount
from remit.tools.errors import NotSent, OutcomeUnknown, Refused
from remit.tools.payments import CreditArguments

if TYPE_CHECKING:
    from tests.tools.conftest import Bench, Canned

LIST, READ = ListAffectedAccounts(), ReadAccount()
OUTAGE = LIST.arguments.model_validate({"incident": "outage-0611"})
CUSTOMER = READ.arguments.model_validate({"subject": "customer:c-104"})


class _Small(ListAffectedAccounts):
    contract = ListAffectedAccounts.contract.model_copy(update={"most_subjects": 23})


async def test_all_affected_accounts_are_listed_with_the_contracts_fields(bench: Bench) -> None:
    """The cohort is the company's own, and a row has exactly the subject and the stated fields."""
    rows = await LIST.read(bench.transport, OUTAGE)
    records = dump(bench.world.home)
    affected = next(found["affected"] for found in records["incidents"] if found["id"] == "outage-0611")
    assert [row["subject"] for row in rows] == [f"customer:{name}" for name in affected]
    assert {tuple(row) for row in rows} == {("subject", *LIST.contract.fields)}


async def test_nothing_personal_is_in_any_row(bench: Bench) -> None:
    """Names and addresses stay out, also where an employee wrote them into a note."""
    await bench.world.control.edit("c-104", {"notes": "customer 104 asked, write to c-104@example.test"})
    rows = await LIST.read(bench.transport, OUTAGE) + await READ.read(bench.transport, CUSTOMER)
    written = json.dumps(rows)
    assert "example.test" not in written
    assert "Customer 104" not in written
    assert rows[-1]["notes"][0]["text"] == "[name] asked, write to [email]"


async def test_one_account_is_read_with_its_newest_notes(bench: Bench) -> None:
    """A bounded record: the fields of the contract and the last notes, oldest first."""
    for number in range(MOST_NOTES + 2):
        await bench.world.control.edit("c-104", {"notes": f"note {number}"})
    (row,) = await READ.read(bench.transport, CUSTOMER)
    assert tuple(row) == ("subject", *READ.contract.fields)
    assert (row["plan"], row["affected_by"]) == ("standard", ["outage-0611", "outage-0619"])
    assert [note["text"] for note in row["notes"]] == [f"note {n}" for n in range(2, MOST_NOTES + 2)]


async def test_an_unknown_incident_is_refused_and_not_an_empty_cohort(bench: Bench) -> None:
    """A name with a slip in it does not mean that nobody was affected."""
    with pytest.raises(Refused) as caught:
        await LIST.read(bench.transport, LIST.arguments.model_validate({"incident": "outage-0612"}))
    assert caught.value.code == "not_found"


async def test_an_unknown_customer_is_refused(bench: Bench) -> None:
    """There is no row for an account that does not exist."""
    with pytest.raises(Refused) as caught:
        await READ.read(bench.transport, READ.arguments.model_validate({"subject": "customer:c-999"}))
    assert caught.value.code == "not_found"


async def test_a_cohort_beyond_the_contract_is_refused(bench: Bench) -> None:
    """The bound is on the whole cohort, and no part of it is handed out."""
    with pytest.raises(Refused) as caught:
        await _Small().read(bench.transport, OUTAGE)
    assert caught.value.code == "too_many_subjects"


@pytest.mark.parametrize("kind", ["html", "error_before", "expired_credential", "rate_limit", "reply_lost"])
@pytest.mark.parametrize("route", ["GET /accounts", "GET /incidents/{id}"])
async def test_half_a_cohort_is_never_handed_out(bench: Bench, kind: str, route: str) -> None:
    """A page that fails fails the read."""
    await bench.world.control.add_fault("accounts", kind, route)
    with pytest.raises((NotSent, OutcomeUnknown)):
        await LIST.read(bench.transport, OUTAGE)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("expired_credential", "credential"), ("rate_limit", "rate_limited"), ("html", "unreadable")],
)
async def test_a_failed_read_says_which_gate_it_concerns(bench: Bench, kind: str, code: str) -> None:
    """The code tells a credential from a limit from a broken receiver."""
    await bench.world.control.add_fault("accounts", kind, "POST /accounts/batch", seconds=7)
    with pytest.raises(NotSent) as caught:
        await READ.read(bench.transport, CUSTOMER)
    assert caught.value.code == code
    assert caught.value.details["retry_after"] == ("7" if kind == "rate_limit" else None)


def _account(number: int) -> dict[str, Any]:
    return {
        "id": f"c-{number}",
        "name": "",
        "email": "",
        "plan": "basic",
        "renewal_date": "2027-01-01",
        "notes": [],
        "affected_by": [],
        "version": 1,
    }


@pytest.mark.parametrize("complete", [True, False])
async def test_pages_that_lead_nowhere_end_the_read(canned: Canned, complete: bool) -> None:
    """A receiver whose next page is the same page, or that calls its page incomplete, gives no cohort."""
    page = {"accounts": [_account(1)], "next": "c-1", "as_of": "t", "complete": complete, "id": "outage-0611"}
    transport = await canned(200, json.dumps(page))
    with pytest.raises(NotSent) as caught:
        await LIST.read(transport, OUTAGE)
    assert caught.value.code == "incomplete"
    assert transport.calls <= 3


async def test_a_customer_without_a_name_hides_nothing(canned: Canned) -> None:
    """An empty name or address masks no text."""
    account = {
        **_account(104),
        "notes": [{"text": "called", "actor": "employee", "reference": None, "at": "t"}],
    }
    page = {"accounts": [account], "missing": [], "as_of": "t", "complete": True}
    (row,) = await READ.read(await canned(200, json.dumps(page)), CUSTOMER)
    assert [note["text"] for note in row["notes"]] == ["called"]


async def test_arguments_of_another_tool_are_a_mistake_of_the_caller(bench: Bench) -> None:
    """Each tool takes its own arguments and no look-alike."""
    other = CreditArguments(subject="customer:c-104", amount_minor=1, currency="USD")
    with pytest.raises(TypeError, match="IncidentArguments"):
        await LIST.read(bench.transport, other)
    assert isinstance(OUTAGE, IncidentArguments)
