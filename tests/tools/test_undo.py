"""Taking effects back: each undo that a contract names works on the real receiver, and is verified itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remit.sandbox.records import dump
from remit.tools.annotations import AnnotateAccount, RemoveNote
from remit.tools.contracts import Sought, WriteTool
from remit.tools.errors import OutcomeUnknown
from remit.tools.mail import CORRECTION_TEXT, SendCorrection, SendEmail
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit
from remit.tools.states import Seen, Sight

if TYPE_CHECKING:
    from tests.tools.conftest import Bench

REVERSE, UNNOTE, CORRECT = ReverseCredit(), RemoveNote(), SendCorrection()
NOTE, MAIL = AnnotateAccount(), SendEmail()


async def _issued(bench: Bench, tool: WriteTool, *, settled: bool = True) -> tuple[Sought, dict[str, Any]]:
    one = bench.sought(tool, amount_minor=1000, currency="USD")
    assert await bench.send(tool, one) is Seen.ACCEPTED
    if settled:
        await bench.world.control.advance(1)
    return one, (await bench.sighting(tool, one)).records[0]


def _reversal(bench: Bench, undone: Sought, record: str, amount: int = 1000, named: str = "undo") -> Sought:
    return bench.sought(
        REVERSE,
        named=named,
        undoes=undone.reference,
        record=record,
        amount_minor=amount,
        currency="USD",
    )


@pytest.mark.parametrize(
    "tool", [IssueCredit(), IssueCreditLegacy()], ids=lambda tool: str(tool.contract.name)
)
async def test_a_settled_credit_is_reversed(bench: Bench, tool: WriteTool) -> None:
    """The undo of both paths: the reversal is found, and the credit shows that it had its effect."""
    undone, credit = await _issued(bench, tool)
    one = _reversal(bench, undone, credit["id"])
    assert await bench.sight(REVERSE, one) is Sight.ABSENT
    assert (await bench.snapshot(REVERSE, one)).values == {
        "exists": True,
        "matches": True,
        "settled": True,
        "reversible_minor": 1000,
    }
    assert await bench.send(REVERSE, one) is Seen.ACCEPTED
    assert await bench.sight(REVERSE, one) is Sight.EFFECTIVE
    (record,) = dump(bench.world.home)["credits"]
    assert (record["status"], record["reversed_minor"]) == ("reversed", 1000)
    assert await bench.sight(tool, undone) is Sight.EFFECTIVE


async def test_one_key_is_one_reversal_however_often_it_is_sent(bench: Bench) -> None:
    """The receiver enforces the key of an undo as well."""
    undone, credit = await _issued(bench, IssueCredit())
    one = _reversal(bench, undone, credit["id"], 400)
    assert [await bench.send(REVERSE, one) for _ in range(3)] == [Seen.ACCEPTED] * 3
    assert [reversal["amount_minor"] for reversal in dump(bench.world.home)["reversals"]] == [400]
    assert await bench.sight(IssueCredit(), undone) is Sight.EFFECTIVE


async def test_our_own_reversal_does_not_change_what_was_relied_on(bench: Bench) -> None:
    """What this operation reversed is still its premise; what another one reversed is not."""
    undone, credit = await _issued(bench, IssueCredit())
    one = _reversal(bench, undone, credit["id"], 400)
    before = await bench.snapshot(REVERSE, one)
    await bench.send(REVERSE, one)
    assert await bench.snapshot(REVERSE, one) == before
    other = _reversal(bench, undone, credit["id"], 100, named="later")
    await bench.send(REVERSE, other)
    assert (await bench.snapshot(REVERSE, one)).values["reversible_minor"] == 900


async def test_what_cannot_be_reversed_is_refused_and_was_foreseen(bench: Bench) -> None:
    """Queued, exceeded and spent credits: the snapshot says so before, the receiver when asked."""
    undone, credit = await _issued(bench, IssueCredit(), settled=False)
    early = _reversal(bench, undone, credit["id"], named="early")
    assert (await bench.snapshot(REVERSE, early)).values["settled"] is False
    assert await bench.send(REVERSE, early) is Seen.REFUSED
    await bench.world.control.advance(1)
    assert await bench.send(REVERSE, _reversal(bench, undone, credit["id"], 1001, "more")) is Seen.REFUSED
    await bench.world.control.spend(credit["id"])
    spent = _reversal(bench, undone, credit["id"], named="spent")
    assert (await bench.snapshot(REVERSE, spent)).values["reversible_minor"] == 0
    assert await bench.send(REVERSE, spent) is Seen.REFUSED
    assert dump(bench.world.home)["reversals"] == []


async def test_a_record_that_is_not_the_undone_effect_does_not_match(bench: Bench) -> None:
    """The reference, the customer and the currency have to be those of the record."""
    undone, credit = await _issued(bench, IssueCredit())
    foreign = Sought("inst:outage-0611/other/customer:c-104/1", undone.subject, undone.intent)
    for one in (
        _reversal(bench, foreign, credit["id"]),
        _reversal(bench, undone, "cr-unknown"),
        Sought("r1", "customer:c-105", _reversal(bench, undone, credit["id"]).intent),
        Sought("r2", undone.subject, {**_reversal(bench, undone, credit["id"]).intent, "currency": "EUR"}),
    ):
        assert (await bench.snapshot(REVERSE, one)).values["matches"] is False
    assert await bench.send(REVERSE, _reversal(bench, undone, "cr-unknown")) is Seen.REFUSED


async def test_another_reversal_under_the_reference_is_different_and_two_are_multiple(bench: Bench) -> None:
    """Amount and record are those of the intent; a second generation's reversal would be a second effect."""
    undone, credit = await _issued(bench, IssueCredit())
    one = _reversal(bench, undone, credit["id"], 400)
    await bench.send(REVERSE, Sought(one.reference, one.subject, {**one.intent, "amount_minor": 300}))
    assert await bench.sight(REVERSE, one) is Sight.DIFFERENT
    await bench.send(REVERSE, one, generation=2)
    assert await bench.sight(REVERSE, one) is Sight.MULTIPLE


async def test_one_of_two_credits_under_one_reference_is_reversed(bench: Bench) -> None:
    """Where an effect doubled, the record's id says which of the two is taken back."""
    tool = IssueCreditLegacy()
    undone, _ = await _issued(bench, tool)
    await bench.send(tool, undone)
    await bench.world.control.advance(1)
    doubled = await bench.sighting(tool, undone)
    assert doubled.sight is Sight.MULTIPLE
    assert await bench.send(REVERSE, _reversal(bench, undone, doubled.records[1]["id"])) is Seen.ACCEPTED
    assert await bench.sight(tool, undone) is Sight.EFFECTIVE


@pytest.mark.parametrize("service", ["payments", "accounts"])
async def test_an_undo_under_faults_is_verified_like_any_effect(bench: Bench, service: str) -> None:
    """A lost reply leaves it unknown, a failed search unreadable."""
    undone, credit = await _issued(bench, IssueCredit())
    noted = bench.sought(NOTE, named="note", note="Credited.")
    await bench.send(NOTE, noted, etag=(await bench.snapshot(NOTE, noted)).etag)
    tools: dict[str, tuple[WriteTool, Sought, str]] = {
        "payments": (REVERSE, _reversal(bench, undone, credit["id"]), "POST /reversals/search"),
        "accounts": (
            UNNOTE,
            bench.sought(UNNOTE, named="undo", undoes=noted.reference),
            "POST /history/search",
        ),
    }
    tool, one, search = tools[service]
    etag = (await bench.snapshot(tool, one)).etag
    await bench.world.control.add_fault(service, "reply_lost")
    with pytest.raises(OutcomeUnknown):
        await bench.send(tool, one, etag=etag)
    await bench.world.control.add_fault(service, "html", search)
    assert [await bench.sight(tool, one) for _ in range(2)] == [Sight.UNREADABLE, Sight.EFFECTIVE]


async def test_a_note_is_removed_and_the_date_put_back(bench: Bench) -> None:
    """The undo of an annotation takes back exactly what its reference wrote."""
    await bench.world.control.edit("c-104", {"notes": "Called."})
    before = dump(bench.world.home)["accounts"]
    noted = bench.sought(NOTE, named="note", note="Moved.", renewal_date="2027-05-01")
    await bench.send(NOTE, noted, etag=(await bench.snapshot(NOTE, noted)).etag)
    old = next(c["old"] for c in (await bench.sighting(NOTE, noted)).records if c["field"] == "renewal_date")
    one = bench.sought(UNNOTE, named="undo", undoes=noted.reference, renewal_date=old)
    found = await bench.snapshot(UNNOTE, one)
    assert found.values == {"exists": True, "notes": 1, "renewal_date": "2027-05-01"}
    assert await bench.sight(UNNOTE, one) is Sight.ABSENT
    assert await bench.send(UNNOTE, one, etag=found.etag) is Seen.ACCEPTED
    assert await bench.sight(UNNOTE, one) is Sight.EFFECTIVE
    after = dump(bench.world.home)["accounts"]
    assert [{**account, "version": 0} for account in after] == [
        {**account, "version": 0} for account in before
    ]
    assert await bench.sight(NOTE, noted) is Sight.EFFECTIVE


async def test_a_note_is_not_removed_over_a_later_change(bench: Bench) -> None:
    """What an employee changed meanwhile fails the condition, and the date is part of what is relied on."""
    noted = bench.sought(NOTE, named="note", note="Moved.", renewal_date="2027-05-01")
    await bench.send(NOTE, noted, etag=(await bench.snapshot(NOTE, noted)).etag)
    one = bench.sought(UNNOTE, named="undo", undoes=noted.reference, renewal_date="2027-03-04")
    before = await bench.snapshot(UNNOTE, one)
    await bench.world.control.edit("c-104", {"renewal_date": "2027-12-24"})
    assert await bench.send(UNNOTE, one, etag=before.etag) is Seen.PRECONDITION
    assert (await bench.snapshot(UNNOTE, one)).values["renewal_date"] == "2027-12-24"
    assert await bench.sight(UNNOTE, one) is Sight.ABSENT


async def test_a_note_that_is_gone_already_is_not_removed_again(bench: Bench) -> None:
    """The receiver accepts the call and records no change, so the undo stays absent."""
    one = bench.sought(UNNOTE, undoes="inst:outage-0611/note/customer:c-104/1")
    found = await bench.snapshot(UNNOTE, one)
    assert found.values["notes"] == 0
    assert await bench.send(UNNOTE, one, etag=found.etag) is Seen.ACCEPTED
    assert await bench.sight(UNNOTE, one) is Sight.ABSENT
    stranger = bench.sought(UNNOTE, "customer:c-999", undoes="inst:p/s/customer:c-999/1")
    assert (await bench.snapshot(UNNOTE, stranger)).values["exists"] is False


async def test_a_delivered_message_is_corrected(bench: Bench) -> None:
    """The correction is a message of its own, in fixed words, that promises nothing."""
    wrong = bench.sought(MAIL, named="tell", template="free_month")
    await bench.send(MAIL, wrong)
    await bench.world.control.advance(1)
    one = bench.sought(CORRECT, named="undo", undoes=wrong.reference)
    assert (await bench.snapshot(CORRECT, one)).values == {"exists": True, "promise": "none"}
    assert await bench.send(CORRECT, one) is Seen.ACCEPTED
    assert await bench.sight(CORRECT, one) is Sight.PENDING
    await bench.world.control.advance(1)
    assert await bench.sight(CORRECT, one) is Sight.EFFECTIVE
    sent = dump(bench.world.home)["messages"][1]
    assert (sent["template"], sent["values"]) == ("credit_correction", {"correction": CORRECTION_TEXT})


async def test_a_queued_correction_is_withdrawn(bench: Bench) -> None:
    """Until it is delivered, a correction can be kept back like any message."""
    one = bench.sought(CORRECT, undoes="inst:outage-0611/tell/customer:c-104/1")
    await bench.send(CORRECT, one)
    queued = await bench.sighting(CORRECT, one)
    assert await CORRECT.withdraw(bench.transport, queued.records) is Seen.ACCEPTED
    assert await bench.sight(CORRECT, one) is Sight.WITHDRAWN


@pytest.mark.parametrize("tool", [REVERSE, NOTE, UNNOTE], ids=lambda tool: str(tool.contract.name))
async def test_what_is_never_queued_cannot_be_withdrawn(bench: Bench, tool: WriteTool) -> None:
    """A receiver without such a call leaves the outcome of a withdrawal unknown."""
    assert await tool.withdraw(bench.transport, [{"id": "x"}]) is Seen.UNKNOWN
    assert bench.transport.calls == 0
