"""Issuing credits against the sandbox's payments service, by both paths and under faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remit.sandbox.records import dump
from remit.sandbox.worlds import running_world
from remit.tools.contracts import Sought, WriteTool
from remit.tools.errors import NotSent, OutcomeUnknown
from remit.tools.payments import Credit, IssueCredit, IssueCreditLegacy, same_business
from remit.tools.states import Seen, Sight
from remit.tools.transport import Transport

if TYPE_CHECKING:
    from tests.tools.conftest import Bench, Canned

KEYED, LEGACY = IssueCredit(), IssueCreditLegacy()
BOTH = pytest.mark.parametrize("tool", [KEYED, LEGACY], ids=lambda tool: str(tool.contract.name))
ROUTES = {"issue_credit": "POST /credits", "issue_credit_legacy": "POST /legacy/credits"}


def _credit(bench: Bench, tool: WriteTool = KEYED, amount: int = 1000, currency: str = "USD") -> Sought:
    return bench.sought(tool, amount_minor=amount, currency=currency)


def _credits(bench: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dump(bench.world.home)["credits"]
    return found


@BOTH
async def test_a_credit_is_absent_then_pending_then_effective(bench: Bench, tool: WriteTool) -> None:
    """The sight follows the credit from nothing to settled, with the record as evidence."""
    one = _credit(bench, tool)
    assert await bench.sight(tool, one) is Sight.ABSENT
    assert await bench.send(tool, one) is Seen.ACCEPTED
    assert await bench.sight(tool, one) is Sight.PENDING
    await bench.world.control.advance(1)
    found = await bench.sighting(tool, one)
    assert (found.sight, found.complete, len(found.records)) == (Sight.EFFECTIVE, True, 1)
    assert found.as_of == max(found.as_of, found.records[0]["settled_at"])


async def test_one_key_is_one_credit_however_often_it_is_sent(bench: Bench) -> None:
    """The receiver enforces the key: repeats are answered alike, other content is told apart."""
    one = _credit(bench)
    assert [await bench.send(KEYED, one) for _ in range(3)] == [Seen.ACCEPTED] * 3
    dearer = Sought(one.reference, one.subject, {**one.intent, "amount_minor": 2000})
    assert await bench.send(KEYED, dearer) is Seen.KEY_REUSED
    assert [credit["amount_minor"] for credit in _credits(bench)] == [1000]
    assert await bench.sight(KEYED, one) is Sight.PENDING


async def test_without_keys_each_repeat_is_a_credit_more(bench: Bench) -> None:
    """The older path doubles the effect, and verification by either tool says so."""
    one = _credit(bench, LEGACY)
    assert [await bench.send(LEGACY, one) for _ in range(2)] == [Seen.ACCEPTED] * 2
    assert await bench.sight(LEGACY, one) is Sight.MULTIPLE
    assert await bench.sight(KEYED, one) is Sight.MULTIPLE


async def test_both_paths_write_one_reference_and_verify_each_other(bench: Bench) -> None:
    """A credit by the older path is found by the tool of the newer one, and is no difference."""
    one = _credit(bench, KEYED)
    assert (
        LEGACY.intent(
            one.subject,
            LEGACY.arguments.model_validate(
                {"subject": one.subject, "amount_minor": 1000, "currency": "USD"}
            ),
            None,
            "outage-0611",
        )
        == one.intent
    )
    await bench.send(LEGACY, one)
    assert await bench.sight(KEYED, one) is Sight.PENDING
    await bench.send(KEYED, one)
    assert await bench.sight(KEYED, one) is Sight.MULTIPLE


@pytest.mark.parametrize(
    ("amount", "currency", "reason"),
    [(999, "USD", "outage-0611"), (1000, "EUR", "outage-0611"), (1000, "USD", "legacy")],
)
async def test_another_content_under_the_reference_is_different(
    bench: Bench, amount: int, currency: str, reason: str
) -> None:
    """Amount, currency and reason are those of the intent, or a person looks."""
    one = _credit(bench)
    sent = {**one.intent, "amount_minor": amount, "currency": currency, "reason": reason}
    await bench.send(KEYED, Sought(one.reference, one.subject, sent))
    assert await bench.sight(KEYED, one) is Sight.DIFFERENT


async def test_another_customer_under_the_reference_is_different(bench: Bench) -> None:
    """A credit that landed on somebody else is seen as such."""
    one = _credit(bench)
    await bench.send(
        KEYED, Sought(one.reference, "customer:c-105", {**one.intent, "subject": "customer:c-105"})
    )
    assert await bench.sight(KEYED, one) is Sight.DIFFERENT


@BOTH
async def test_a_queued_credit_is_withdrawn_and_a_settled_one_is_not(bench: Bench, tool: WriteTool) -> None:
    """Withdrawal works on the evidence of a sighting, and is itself verified."""
    one = _credit(bench, tool)
    await bench.send(tool, one)
    queued = await bench.sighting(tool, one)
    assert await tool.withdraw(bench.transport, queued.records) is Seen.ACCEPTED
    assert await bench.sight(tool, one) is Sight.WITHDRAWN
    again = Sought(one.reference + "x", one.subject, one.intent)
    await bench.send(tool, again)
    queued = await bench.sighting(tool, again)
    await bench.world.control.advance(1)
    assert await tool.withdraw(bench.transport, queued.records) is Seen.REFUSED
    assert await bench.sight(tool, again) is Sight.EFFECTIVE


async def test_nothing_to_withdraw_is_no_withdrawal(bench: Bench) -> None:
    """Without evidence nothing can be said."""
    assert await KEYED.withdraw(bench.transport, []) is Seen.UNKNOWN


async def test_one_settled_credit_among_the_withdrawn_is_reported(bench: Bench) -> None:
    """Several withdrawals are only accepted together."""
    one = _credit(bench, LEGACY)
    await bench.world.control.add_fault("payments", "slow_settle", "POST /legacy/credits", seconds=3600)
    await bench.send(LEGACY, one)
    await bench.send(LEGACY, one)
    await bench.world.control.advance(1)
    both = await bench.sighting(LEGACY, one)
    assert await LEGACY.withdraw(bench.transport, both.records) is Seen.REFUSED
    assert await bench.sight(LEGACY, one) is Sight.EFFECTIVE


@BOTH
async def test_a_lost_reply_leaves_the_outcome_unknown_and_the_record_tells(
    bench: Bench, tool: WriteTool
) -> None:
    """The sender learns nothing, the system of record knows."""
    await bench.world.control.add_fault("payments", "reply_lost", ROUTES[tool.contract.name])
    one = _credit(bench, tool)
    with pytest.raises(OutcomeUnknown):
        await bench.send(tool, one)
    assert await bench.sight(tool, one) is Sight.PENDING


@BOTH
async def test_a_lie_is_accepted_by_its_words_and_absent_from_the_record(
    bench: Bench, tool: WriteTool
) -> None:
    """An acceptance is no proof; the search is asked."""
    await bench.world.control.add_fault("payments", "lying_ok", ROUTES[tool.contract.name])
    one = _credit(bench, tool)
    assert await bench.send(tool, one) is Seen.ACCEPTED
    assert await bench.sight(tool, one) is Sight.ABSENT


@BOTH
@pytest.mark.parametrize(
    ("kind", "seen", "left"),
    [
        ("html", Seen.UNKNOWN, Sight.ABSENT),
        ("error_before", Seen.UNKNOWN, Sight.ABSENT),
        ("error_after", Seen.UNKNOWN, Sight.PENDING),
        ("expired_credential", Seen.CREDENTIAL, Sight.ABSENT),
        ("rate_limit", Seen.RATE_LIMITED, Sight.ABSENT),
    ],
)
async def test_each_fault_is_seen_as_what_it_proves(
    bench: Bench, tool: WriteTool, kind: str, seen: Seen, left: Sight
) -> None:
    """What the sender sees beside what is in the record."""
    await bench.world.control.add_fault("payments", kind, ROUTES[tool.contract.name])
    one = _credit(bench, tool)
    assert await bench.send(tool, one) is seen
    assert await bench.sight(tool, one) is left


@BOTH
async def test_a_credit_that_is_late_in_the_search_is_absent_until_it_shows(
    bench: Bench, tool: WriteTool
) -> None:
    """Absence before `visible_within` proves nothing, which is why the contract states it."""
    within = tool.contract.visible_within
    assert within is not None
    await bench.world.control.add_fault("payments", "late_search", ROUTES[tool.contract.name], seconds=within)
    one = _credit(bench, tool)
    await bench.send(tool, one)
    assert await bench.sight(tool, one) is Sight.ABSENT
    await bench.world.control.advance(within)
    assert await bench.sight(tool, one) is Sight.EFFECTIVE


@pytest.mark.parametrize("kind", ["html", "expired_credential", "rate_limit", "error_before", "reply_lost"])
async def test_a_search_that_fails_is_unreadable_and_a_snapshot_raises(bench: Bench, kind: str) -> None:
    """No failure of a read is ever taken for absence."""
    await bench.world.control.add_fault("payments", kind, "POST /credits/search", times=2)
    one = _credit(bench)
    found = await bench.sighting(KEYED, one)
    assert (found.sight, found.complete, found.records) == (Sight.UNREADABLE, False, [])
    with pytest.raises((NotSent, OutcomeUnknown)):
        await bench.snapshot(KEYED, one)


async def test_a_refused_connection_is_certainly_not_sent(bench: Bench) -> None:
    """Nothing was written, and verification says that it could not look."""
    await bench.world.control.add_fault("payments", "refuse")
    one = _credit(bench)
    with pytest.raises(NotSent) as caught:
        await bench.send(KEYED, one)
    assert caught.value.code == "not_written"
    found = await bench.sighting(KEYED, one)
    assert (found.sight, found.source) == (Sight.UNREADABLE, "payments: credits by reference (not_written)")
    assert _credits(bench) == []


FOUND: dict[str, Any] = {
    "id": "cr-1",
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "inst:outage-0611/act/customer:c-104/1",
    "status": "settled",
    "accepted_at": "t",
    "settled_at": "t",
    "reversed_minor": 0,
    "spent": False,
    "path": "credits",
}


def _page(**changed: Any) -> str:
    return json.dumps({"credits": [], "as_of": "t", "complete": True, **changed})


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "<html>"),
        (200, ""),
        (200, "[]"),
        (200, "null"),
        (200, "{}"),
        (200, _page(complete=False)),
        (200, _page(complete="true")),
        (200, json.dumps({"credits": [], "as_of": "t"})),
        (200, json.dumps({"credits": [], "complete": True})),
        (200, _page(credits=None)),
        (200, _page(credits=[{**FOUND, "amount_minor": "1000"}])),
        (200, _page(credits=[{**FOUND, "amount_minor": 1000.5}])),
        (200, _page(credits=[{**FOUND, "status": "paused"}])),
        (200, _page(credits=[{**FOUND, "id": "a\x00b"}])),
        (200, _page(credits=[{name: FOUND[name] for name in FOUND if name != "reference"}])),
        (200, "[" * 100_000),
        (206, _page()),
        (304, ""),
        (404, _page()),
        (500, _page()),
    ],
)
async def test_an_undocumented_search_answer_is_unreadable(canned: Canned, status: int, text: str) -> None:
    """Not 200, not JSON, not complete, or without its fields: unreadable for every reference, never absent."""
    transport = await canned(status, text)
    intent = {"subject": "customer:c-104", "amount_minor": 1000, "currency": "USD", "reason": "outage-0611"}
    sought = [Sought(f"{FOUND['reference']}{n}", "customer:c-104", intent) for n in range(2)]
    assert [one.sight for one in await KEYED.verify_many(transport, sought)] == [Sight.UNREADABLE] * 2


async def test_unknown_fields_of_an_answer_are_left_aside(canned: Canned) -> None:
    """A receiver may add fields; they neither break the read nor enter the evidence."""
    transport = await canned(200, _page(credits=[{**FOUND, "colour": "blue"}], more=1))
    intent = {"subject": "customer:c-104", "amount_minor": 1000, "currency": "USD", "reason": "outage-0611"}
    (found,) = await KEYED.verify_many(transport, [Sought(FOUND["reference"], "customer:c-104", intent)])
    assert (found.sight, found.records) == (Sight.EFFECTIVE, [FOUND])


async def test_the_snapshot_counts_other_credits_for_the_same_business(bench: Bench) -> None:
    """Ours, withdrawn ones and other reasons do not count; both paths do."""
    one = _credit(bench)
    assert (await bench.snapshot(KEYED, one)).values == {"exists": True, "others": 0}
    await bench.send(KEYED, one)
    other_reason = Sought("hand:1", one.subject, {**one.intent, "reason": "goodwill"})
    by_hand = Sought("hand:2", one.subject, one.intent)
    by_memo = Sought("desk:outage-0611/by-phone", one.subject, one.intent)
    withdrawn = Sought("hand:4", one.subject, one.intent)
    for sent, tool in ((other_reason, KEYED), (by_hand, KEYED), (by_memo, LEGACY), (withdrawn, KEYED)):
        assert await bench.send(tool, sent) is Seen.ACCEPTED
    queued = await bench.sighting(KEYED, withdrawn)
    assert await KEYED.withdraw(bench.transport, queued.records) is Seen.ACCEPTED
    assert (await bench.snapshot(KEYED, one)).values == {"exists": True, "others": 2}
    assert (await bench.snapshot(LEGACY, one)).values == {"exists": True, "others": 2}


async def test_a_customer_whom_nobody_knows_does_not_exist(bench: Bench) -> None:
    """Everything that is asked for has an entry."""
    one = bench.sought(KEYED, "customer:c-999", amount_minor=1000, currency="USD")
    assert (await bench.snapshot(KEYED, one)).values == {"exists": False, "others": 0}
    assert await bench.send(KEYED, one) is Seen.REFUSED


@pytest.mark.parametrize(
    ("reason", "reference", "same"),
    [
        ("outage-0611", None, True),
        ("legacy", "inst:outage-0611/credit/customer:c-104/1", True),
        ("legacy", "outage-0611/by-phone", True),
        ("legacy", "desk/outage-0611", True),
        ("legacy", "outage-0611", True),
        ("legacy", "outage-06110/credit", False),
        ("legacy", "about outage-0611", False),
        ("legacy", None, False),
    ],
)
def test_the_same_business_is_known_by_reason_or_path(reason: str, reference: str | None, same: bool) -> None:
    """A purpose is a whole segment of a reference; a text that mentions it is not enough."""
    credit = Credit.model_validate({**FOUND, "reason": reason, "reference": reference})
    assert same_business(credit, "outage-0611") is same


@pytest.mark.parametrize(
    ("status", "sight"),
    [("accepted", Sight.PENDING), ("settled", Sight.EFFECTIVE), ("reversed", Sight.EFFECTIVE)],
)
@pytest.mark.parametrize("beside", [(), ("withdrawn",), ("reversed",)])
async def test_a_live_credit_is_judged_whatever_was_taken_back_beside_it(
    canned: Canned, status: str, sight: Sight, beside: tuple[str, ...]
) -> None:
    """A double that was withdrawn or reversed is a matter that is closed; a reversed credit had its effect."""
    listed = [{**FOUND, "status": other, "id": "cr-0"} for other in beside] + [{**FOUND, "status": status}]
    transport = await canned(200, _page(credits=listed))
    intent = {"subject": "customer:c-104", "amount_minor": 1000, "currency": "USD", "reason": "outage-0611"}
    (found,) = await KEYED.verify_many(transport, [Sought(FOUND["reference"], "customer:c-104", intent)])
    assert found.sight is sight


def test_a_key_is_carried_as_a_structured_field_string() -> None:
    """Quoted, with quote and backslash escaped; what is no printable ASCII is never sent."""
    assert KEYED.headers("inst:p/s/customer:c-1/1#1", None) == {
        "Idempotency-Key": '"inst:p/s/customer:c-1/1#1"'
    }
    assert KEYED.headers('a"b\\c', "ignored") == {"Idempotency-Key": '"a\\"b\\\\c"'}
    assert LEGACY.headers("key", "etag") == {}
    for key in ("", "a\nb", "caf\u00e9", "x" * 256):
        with pytest.raises(NotSent) as caught:
            KEYED.headers(key, None)
        assert caught.value.code == "key_unsendable"


async def test_the_tools_work_on_a_company_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The same path over real processes: snapshot, send, verify."""
    async with (
        running_world(tmp_path) as world,
        Transport(world.urls, world.credentials.__getitem__) as transport,
    ):
        said = KEYED.arguments.model_validate(
            {"subject": "customer:c-205", "amount_minor": 5, "currency": "EUR"}
        )
        one = Sought(
            "inst:p/s/customer:c-205/1", "customer:c-205", KEYED.intent("customer:c-205", said, None, "p")
        )
        assert (await KEYED.snapshot_many(transport, [one]))[one.reference].values == {
            "exists": True,
            "others": 0,
        }
        request = KEYED.request(one.subject, one.intent, one.reference)
        answer = await transport.call(
            "payments",
            request.method,
            request.path,
            credential="payments",
            seconds=5.0,
            body=request.body,
            headers=KEYED.headers("k", None),
        )
        assert KEYED.classify(answer, request) is Seen.ACCEPTED
        assert [found.sight for found in await KEYED.verify_many(transport, [one])] == [Sight.PENDING]
