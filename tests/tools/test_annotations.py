"""Annotating accounts against the sandbox's accounts service, and never over somebody else's change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from remit.sandbox.records import dump
from remit.tools.annotations import AnnotateAccount
from remit.tools.contracts import Sought
from remit.tools.errors import NotSent, OutcomeUnknown
from remit.tools.states import Seen, Sight

if TYPE_CHECKING:
    from tests.tools.conftest import Bench, Canned

NOTE = AnnotateAccount()
ROUTE = "PATCH /accounts/{id}"


async def _send(bench: Bench, one: Sought) -> Seen:
    return await bench.send(NOTE, one, etag=(await bench.snapshot(NOTE, one)).etag)


def _account(bench: Bench, name: str = "c-104") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in dump(bench.world.home)["accounts"] if one["id"] == name)
    return found


async def test_a_note_is_written_once_and_verified_in_the_history(bench: Bench) -> None:
    """Effective is what the history names under our reference; nothing else of the account moved."""
    before = _account(bench)
    one = bench.sought(NOTE, note="Credited for the outage.")
    assert await bench.sight(NOTE, one) is Sight.ABSENT
    assert await _send(bench, one) is Seen.ACCEPTED
    found = await bench.sighting(NOTE, one)
    assert (found.sight, [change["field"] for change in found.records]) == (Sight.EFFECTIVE, ["notes"])
    after = _account(bench)
    assert [(note["text"], note["reference"]) for note in after["notes"]] == [
        ("Credited for the outage.", one.reference)
    ]
    untouched = ("name", "email", "plan", "renewal_date")
    assert [after[field] for field in untouched] == [before[field] for field in untouched]


async def test_a_note_with_a_date_is_one_change(bench: Bench) -> None:
    """The receiver takes the date beside the note; both have to be in the record."""
    one = bench.sought(NOTE, note="Moved.", renewal_date="2027-05-01")
    assert await _send(bench, one) is Seen.ACCEPTED
    assert await bench.sight(NOTE, one) is Sight.EFFECTIVE
    assert _account(bench)["renewal_date"] == "2027-05-01"


async def test_the_same_note_twice_is_multiple(bench: Bench) -> None:
    """Two updates under one reference are two effects."""
    one = bench.sought(NOTE, note="Credited.")
    assert [await _send(bench, one) for _ in range(2)] == [Seen.ACCEPTED] * 2
    assert await bench.sight(NOTE, one) is Sight.MULTIPLE


async def test_a_repeat_of_the_same_conditional_request_fails_its_condition(bench: Bench) -> None:
    """If-Match lets one of two equal requests through."""
    one = bench.sought(NOTE, note="Credited.")
    etag = (await bench.snapshot(NOTE, one)).etag
    seen = [await bench.send(NOTE, one, etag=etag) for _ in range(2)]
    assert seen == [Seen.ACCEPTED, Seen.PRECONDITION]
    assert await bench.sight(NOTE, one) is Sight.EFFECTIVE


async def test_an_employees_change_is_never_overwritten(bench: Bench) -> None:
    """What somebody changed after the snapshot fails the condition, and is left as it is."""
    one = bench.sought(NOTE, note="Credited.", renewal_date="2027-05-01")
    etag = (await bench.snapshot(NOTE, one)).etag
    await bench.world.control.edit("c-104", {"renewal_date": "2027-12-24"})
    assert await bench.send(NOTE, one, etag=etag) is Seen.PRECONDITION
    assert await bench.sight(NOTE, one) is Sight.ABSENT
    assert _account(bench)["renewal_date"] == "2027-12-24"


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({"notes": "Other."}, "customer:c-104"),
        ({"notes": "Credited.", "renewal_date": "2027-05-01"}, "customer:c-104"),
        ({"notes": "Credited.", "plan": "premium"}, "customer:c-104"),
        ({"renewal_date": "2027-05-01"}, "customer:c-104"),
        ({"notes": "Credited."}, "customer:c-105"),
    ],
)
async def test_another_change_under_the_reference_is_different(
    bench: Bench, fields: dict[str, str], subject: str
) -> None:
    """More, less or other than the intent, or another account: a person looks."""
    one = bench.sought(NOTE, note="Credited.")
    sent = Sought(one.reference, subject, {**one.intent, "fields": fields})
    etag = (await bench.snapshot(NOTE, sent)).etag
    request = NOTE.request(sent.subject, sent.intent, sent.reference)
    answer = await bench.transport.call(
        "accounts",
        request.method,
        request.path,
        credential="accounts",
        seconds=5.0,
        body=request.body,
        headers=NOTE.headers("", etag),
    )
    assert answer.status == 200
    assert await bench.sight(NOTE, one) is Sight.DIFFERENT


async def test_a_field_of_the_intent_that_was_not_written_is_different(bench: Bench) -> None:
    """The note alone does not make a note with a date."""
    both = bench.sought(NOTE, note="Credited.", renewal_date="2027-05-01")
    await _send(
        bench, Sought(both.reference, both.subject, {**both.intent, "fields": {"notes": "Credited."}})
    )
    assert await bench.sight(NOTE, both) is Sight.DIFFERENT


async def test_the_snapshot_has_the_version_and_nothing_of_it_is_relied_on(bench: Bench) -> None:
    """A version is for the condition only: somebody's unrelated change does not make an approval stale."""
    one = bench.sought(NOTE, note="Credited.")
    first = await bench.snapshot(NOTE, one)
    await bench.world.control.edit("c-104", {"notes": "Called."})
    second = await bench.snapshot(NOTE, one)
    assert first.values == second.values == {"exists": True}
    assert (first.etag, second.etag) == ('"1"', '"2"')


async def test_the_version_of_a_batch_is_the_receivers_own_etag(bench: Bench) -> None:
    """The condition is built from the batch read, and is the one that the account itself answers with."""
    one = bench.sought(NOTE, note="Credited.")
    answer = await bench.transport.call(
        "accounts", "GET", "/accounts/c-104", credential="accounts", seconds=5.0
    )
    assert answer.headers["etag"] == (await bench.snapshot(NOTE, one)).etag


async def test_without_a_version_nothing_is_sent(bench: Bench) -> None:
    """An account that does not exist has none, and an unconditional change is not made."""
    one = bench.sought(NOTE, "customer:c-999", note="Credited.")
    found = await bench.snapshot(NOTE, one)
    assert (found.values, found.etag) == ({"exists": False}, None)
    with pytest.raises(NotSent) as caught:
        await bench.send(NOTE, one, etag=found.etag)
    assert caught.value.code == "no_version"


async def test_a_lost_reply_is_unknown_and_the_history_tells(bench: Bench) -> None:
    """The change was made although nobody was told."""
    await bench.world.control.add_fault("accounts", "reply_lost", ROUTE)
    one = bench.sought(NOTE, note="Credited.")
    with pytest.raises(OutcomeUnknown):
        await _send(bench, one)
    assert await bench.sight(NOTE, one) is Sight.EFFECTIVE


async def test_a_lie_is_absent_from_the_history(bench: Bench) -> None:
    """The acceptance shows the note, the record does not."""
    await bench.world.control.add_fault("accounts", "lying_ok", ROUTE)
    one = bench.sought(NOTE, note="Credited.")
    assert await _send(bench, one) is Seen.ACCEPTED
    assert await bench.sight(NOTE, one) is Sight.ABSENT


async def test_a_change_that_is_late_in_the_search_is_absent_until_it_shows(bench: Bench) -> None:
    """`visible_within` covers the history as well."""
    await bench.world.control.add_fault("accounts", "late_search", ROUTE, seconds=2)
    one = bench.sought(NOTE, note="Credited.")
    await _send(bench, one)
    assert await bench.sight(NOTE, one) is Sight.ABSENT
    await bench.world.control.advance(2)
    assert await bench.sight(NOTE, one) is Sight.EFFECTIVE


@pytest.mark.parametrize("kind", ["html", "error_before", "expired_credential", "rate_limit", "reply_lost"])
async def test_a_search_that_fails_is_unreadable(bench: Bench, kind: str) -> None:
    """No failure of the history is ever taken for absence."""
    await bench.world.control.add_fault("accounts", kind, "POST /history/search")
    assert await bench.sight(NOTE, bench.sought(NOTE, note="Credited.")) is Sight.UNREADABLE


@pytest.mark.parametrize(
    "body",
    [
        {"accounts": [], "missing": [], "as_of": "t", "complete": True},
        {"accounts": [], "missing": ["c-105"], "as_of": "t", "complete": True},
        {"accounts": [], "missing": ["c-104"], "as_of": "t", "complete": False},
        {"accounts": [{"id": "c-104"}], "missing": [], "as_of": "t", "complete": True},
        {"accounts": []},
    ],
)
async def test_an_account_left_out_of_a_batch_is_not_missing(canned: Canned, body: dict[str, Any]) -> None:
    """Only an id that the receiver names as missing does not exist; a gap raises."""
    transport = await canned(200, json.dumps(body))
    one = Sought("r", "customer:c-104", {"subject": "customer:c-104", "fields": {"notes": "x"}})
    with pytest.raises(NotSent):
        await NOTE.snapshot_many(transport, [one])
