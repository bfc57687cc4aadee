"""Sending e-mail against the sandbox's mail service: no keys, templates that promise, a window to withdraw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remit.sandbox.records import dump
from remit.tools.contracts import Sought
from remit.tools.errors import OutcomeUnknown
from remit.tools.mail import SendEmail, money_text
from remit.tools.mandates import Money, Step
from remit.tools.states import Seen, Sight

if TYPE_CHECKING:
    from tests.tools.conftest import Bench

MAIL = SendEmail()
ROUTE = "POST /messages"
STEP = Step(
    name="tell",
    effect="email.send",
    announces=Money(amount_minor=1000, currency="USD"),
    template="one_time_credit",
    promise="one_time_credit",
    after=("credit",),
)


def _mail(bench: Bench, template: str = "one_time_credit", step: Step | None = STEP) -> Sought:
    return bench.sought(MAIL, template=template, step=step)


async def test_a_message_is_absent_then_queued_then_delivered(bench: Bench) -> None:
    """Queued is pending, delivered is effective."""
    one = _mail(bench)
    assert await bench.sight(MAIL, one) is Sight.ABSENT
    assert await bench.send(MAIL, one) is Seen.ACCEPTED
    assert await bench.sight(MAIL, one) is Sight.PENDING
    await bench.world.control.advance(1)
    assert await bench.sight(MAIL, one) is Sight.EFFECTIVE
    (message,) = dump(bench.world.home)["messages"]
    assert (message["customer"], message["values"]) == ("c-104", {"amount": "10.00 USD"})


def test_the_mandate_fills_the_values_and_the_promise() -> None:
    """Nothing that the model writes is in a message; without a step nothing is promised."""
    said = MAIL.arguments.model_validate({"subject": "customer:c-104", "template": "one_time_credit"})
    assert MAIL.intent("customer:c-104", said, STEP, "outage-0611") == {
        "subject": "customer:c-104",
        "template": "one_time_credit",
        "promise": "one_time_credit",
        "values": {"amount": "10.00 USD"},
    }
    undelegated = MAIL.intent("customer:c-104", said, None, "outage-0611")
    assert (undelegated["promise"], undelegated["values"]) == (None, {})


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (1000, "USD", "10.00 USD"),
        (5, "EUR", "0.05 EUR"),
        (1000, "JPY", "1000 JPY"),
        (1, "KWD", "0.001 KWD"),
        (123_456_789_012, "USD", "1234567890.12 USD"),
    ],
)
def test_an_amount_is_written_with_the_decimals_of_its_currency(
    amount: int, currency: str, text: str
) -> None:
    """Minor units become text without a float on the way."""
    assert money_text(Money(amount_minor=amount, currency=currency)) == text


async def test_the_snapshot_shows_what_the_service_declares(bench: Bench) -> None:
    """The promise is the receiver's own word; an unknown template has none."""
    declared = {
        template: (await bench.snapshot(MAIL, _mail(bench, template))).values
        for template in ("one_time_credit", "free_month", "nonsense")
    }
    assert declared == {
        "one_time_credit": {"exists": True, "promise": "one_time_credit"},
        "free_month": {"exists": True, "promise": "month_extension"},
        "nonsense": {"exists": True, "promise": None},
    }
    stranger = bench.sought(MAIL, "customer:c-999", template="one_time_credit")
    assert (await bench.snapshot(MAIL, stranger)).values["exists"] is False


async def test_two_messages_under_one_reference_are_multiple(bench: Bench) -> None:
    """The service has no keys, so a repeat is a second message."""
    one = _mail(bench)
    assert [await bench.send(MAIL, one) for _ in range(2)] == [Seen.ACCEPTED] * 2
    assert await bench.sight(MAIL, one) is Sight.MULTIPLE


@pytest.mark.parametrize(
    "changed",
    [
        {"template": "free_month"},
        {"values": {"amount": "99.00 USD"}},
        {"values": {}},
        {"subject": "customer:c-105"},
    ],
)
async def test_another_message_under_the_reference_is_different(
    bench: Bench, changed: dict[str, object]
) -> None:
    """Template, values and customer are those of the intent, or a person looks."""
    one = _mail(bench)
    intent = {**one.intent, **changed}
    assert await bench.send(MAIL, Sought(one.reference, str(intent["subject"]), intent)) is Seen.ACCEPTED
    assert await bench.sight(MAIL, one) is Sight.DIFFERENT


async def test_a_message_that_promised_something_else_is_different(bench: Bench) -> None:
    """A template whose promise is not that of the mandate made another promise to the customer."""
    one = _mail(bench, "free_month")
    await bench.send(MAIL, one)
    assert await bench.sight(MAIL, one) is Sight.DIFFERENT
    undelegated = Sought(one.reference, one.subject, {**one.intent, "promise": None})
    assert await bench.sight(MAIL, undelegated) is Sight.PENDING


async def test_a_queued_message_is_withdrawn_and_a_delivered_one_is_not(bench: Bench) -> None:
    """Withdrawal works until delivery, and is verified."""
    one = _mail(bench)
    await bench.send(MAIL, one)
    queued = await bench.sighting(MAIL, one)
    assert await MAIL.withdraw(bench.transport, queued.records) is Seen.ACCEPTED
    assert await bench.sight(MAIL, one) is Sight.WITHDRAWN
    await bench.send(MAIL, one)
    live = [record for record in (await bench.sighting(MAIL, one)).records if record["status"] == "queued"]
    await bench.world.control.advance(1)
    assert await MAIL.withdraw(bench.transport, live) is Seen.REFUSED
    assert await bench.sight(MAIL, one) is Sight.EFFECTIVE


@pytest.mark.parametrize(
    ("kind", "seen", "left"),
    [
        ("html", Seen.UNKNOWN, Sight.ABSENT),
        ("error_before", Seen.UNKNOWN, Sight.ABSENT),
        ("error_after", Seen.UNKNOWN, Sight.PENDING),
        ("lying_ok", Seen.ACCEPTED, Sight.ABSENT),
        ("expired_credential", Seen.CREDENTIAL, Sight.ABSENT),
        ("rate_limit", Seen.RATE_LIMITED, Sight.ABSENT),
    ],
)
async def test_each_fault_is_seen_as_what_it_proves(bench: Bench, kind: str, seen: Seen, left: Sight) -> None:
    """What the sender sees beside what is in the record."""
    await bench.world.control.add_fault("mail", kind, ROUTE)
    one = _mail(bench)
    assert await bench.send(MAIL, one) is seen
    assert await bench.sight(MAIL, one) is left


async def test_a_lost_reply_is_unknown_and_the_search_tells(bench: Bench) -> None:
    """A second send would be a second message, so the search is asked first."""
    await bench.world.control.add_fault("mail", "reply_lost", ROUTE)
    one = _mail(bench)
    with pytest.raises(OutcomeUnknown):
        await bench.send(MAIL, one)
    assert await bench.sight(MAIL, one) is Sight.PENDING


async def test_a_message_that_is_late_in_the_search_is_absent_until_it_shows(bench: Bench) -> None:
    """Absence before `visible_within` proves nothing."""
    await bench.world.control.add_fault("mail", "late_search", ROUTE, seconds=2)
    one = _mail(bench)
    await bench.send(MAIL, one)
    assert await bench.sight(MAIL, one) is Sight.ABSENT
    await bench.world.control.advance(2)
    assert await bench.sight(MAIL, one) is Sight.EFFECTIVE


async def test_templates_that_cannot_be_read_are_no_snapshot(bench: Bench) -> None:
    """A promise that could not be read is not `none`."""
    await bench.world.control.add_fault("mail", "html", "GET /templates")
    with pytest.raises(Exception, match="mail gave no usable answer to GET /templates"):
        await bench.snapshot(MAIL, _mail(bench))


async def test_a_search_that_fails_is_unreadable(bench: Bench) -> None:
    """No failure of the search is ever taken for absence."""
    await bench.world.control.add_fault("mail", "html", "POST /messages/search")
    assert await bench.sight(MAIL, _mail(bench)) is Sight.UNREADABLE


async def test_a_template_or_customer_that_nobody_knows_is_refused(bench: Bench) -> None:
    """The service's own refusals are final."""
    assert await bench.send(MAIL, _mail(bench, "nonsense")) is Seen.REFUSED
    assert await bench.send(MAIL, bench.sought(MAIL, "customer:c-999", template="free_month")) is Seen.REFUSED
