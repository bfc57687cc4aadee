"""Messages: queued, withdrawn, delivered; templates and what they promise."""

from __future__ import annotations

from typing import Any

import pytest

from remit.sandbox.worlds import Reply, World

DRAFT: dict[str, Any] = {
    "customer": "c-104",
    "template": "one_time_credit",
    "values": {"amount": "10.00 USD"},
    "reference": "inst:outage-0611/notify/customer:c-104/1",
}


async def _send(world: World, **changed: object) -> Reply:
    return await world.ask("mail", "POST", "/messages", {**DRAFT, **changed})


async def test_templates_say_what_they_promise(world: World) -> None:
    """A one-time credit, a month of extension, and a correction that promises nothing."""
    found = (await world.ask("mail", "GET", "/templates")).body["templates"]
    assert {template["id"]: template["promise"] for template in found} == {
        "credit_correction": "none",
        "free_month": "month_extension",
        "one_time_credit": "one_time_credit",
    }
    assert all(template["subject"] and template["body"] for template in found)


async def test_a_message_is_queued_and_delivered_later(world: World) -> None:
    """It carries its template's promise and its reference; delivery follows after the delay."""
    reply = await _send(world)
    queued = reply.body
    assert reply.status == 202
    assert {name: queued[name] for name in DRAFT} == DRAFT
    assert (queued["status"], queued["promise"], queued["delivered_at"]) == (
        "queued",
        "one_time_credit",
        None,
    )
    await world.control.advance(1)
    delivered = (await world.ask("mail", "GET", f"/messages/{queued['id']}")).body
    assert delivered == {**queued, "status": "delivered", "delivered_at": queued["deliver_at"]}


async def test_the_delivery_delay_is_a_setting(world: World) -> None:
    """With no delay a message is delivered at once."""
    await world.control.settings(deliver_seconds=0)
    assert (await _send(world)).body["status"] == "delivered"


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"template": "none"}, "template_unknown"), ({"customer": "c-999"}, "customer_unknown")],
)
async def test_unknown_templates_and_customers_are_refused(
    world: World, changed: dict[str, object], code: str
) -> None:
    """Neither queues a message."""
    reply = await _send(world, **changed)
    assert (reply.status, reply.body["code"]) == (422, code)
    assert (await world.ask("mail", "GET", "/messages")).body["messages"] == []


async def test_there_is_no_idempotency(world: World) -> None:
    """The same call twice is two messages, and the search by reference shows both."""
    made = [(await _send(world)).body["id"] for _ in range(2)]
    found = (await world.ask("mail", "POST", "/messages/search", {"references": [DRAFT["reference"]]})).body
    assert [message["id"] for message in found["messages"]] == made


async def test_messages_are_listed_since_a_time_in_pages(world: World) -> None:
    """`since` is inclusive, and `next` continues."""
    made = []
    for _ in range(4):
        made.append((await _send(world)).body)
        await world.control.advance(1)
    since = made[1]["queued_at"]
    first = (await world.ask("mail", "GET", f"/messages?since={since}&limit=2")).body
    rest = (await world.ask("mail", "GET", f"/messages?since={since}&limit=2&after={first['next']}")).body
    found = [message["id"] for message in (*first["messages"], *rest["messages"])]
    assert found == [message["id"] for message in made[1:]]


async def test_a_queued_message_can_be_withdrawn_and_a_delivered_one_cannot(world: World) -> None:
    """Withdrawal holds for good; after delivery only a correction helps."""
    first, second = [(await _send(world)).body["id"] for _ in range(2)]
    gone = await world.ask("mail", "POST", f"/messages/{first}/withdraw")
    assert (gone.status, gone.body["status"]) == (200, "withdrawn")
    await world.control.advance(1)
    assert (await world.ask("mail", "POST", f"/messages/{first}/withdraw")).body == gone.body
    late = await world.ask("mail", "POST", f"/messages/{second}/withdraw")
    assert (late.status, late.body["code"]) == (409, "already_delivered")


async def test_an_unknown_message_is_not_found(world: World) -> None:
    """Reading and withdrawing say so alike."""
    assert (await world.ask("mail", "GET", "/messages/msg-none")).body["code"] == "not_found"
    assert (await world.ask("mail", "POST", "/messages/msg-none/withdraw")).body["code"] == "not_found"
