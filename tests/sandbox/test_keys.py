"""Idempotency-Key: one key is one request, and its answer is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.sandbox import keys
from remit.sandbox.calls import Problem
from remit.sandbox.worlds import Reply, World, eventually

CREDIT: dict[str, Any] = {
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "r",
}


async def _issue(world: World, key: str | None = "k1", **changed: object) -> Reply:
    return await world.ask("payments", "POST", "/credits", {**CREDIT, **changed}, key=key)


async def _count(world: World) -> int:
    return len((await world.ask("payments", "GET", "/credits")).body["credits"])


async def test_same_key_and_content_gives_the_same_answer_and_one_credit(world: World) -> None:
    """The replay is marked in a header, its body is the stored one even when the credit has moved on."""
    first = await _issue(world)
    await world.control.advance(5)
    second = await _issue(world)
    assert (second.status, second.body) == (first.status, first.body)
    assert (first.headers.get(keys.REPLAYED), second.headers.get(keys.REPLAYED)) == (None, "true")
    assert await _count(world) == 1


async def test_the_order_of_fields_does_not_make_another_content(world: World) -> None:
    """Content is compared as JSON, not as bytes."""
    first = await _issue(world)
    turned = dict(reversed(CREDIT.items()))
    second = await world.ask("payments", "POST", "/credits", turned, key="k1")
    assert second.body == first.body


async def test_a_stored_refusal_is_answered_again(world: World) -> None:
    """A refusal of the content is as final under its key as a success."""
    first = await _issue(world, customer="c-999")
    second = await _issue(world, customer="c-999")
    assert (second.status, second.body["code"]) == (422, "customer_unknown")
    assert second.body == first.body
    assert second.headers[keys.REPLAYED] == "true"
    assert second.headers["Content-Type"] == "application/problem+json"


async def test_same_key_with_other_content_is_refused(world: World) -> None:
    """Another amount, or another call, under a used key is key_reused and has no effect."""
    made = (await _issue(world)).body
    other = await _issue(world, amount_minor=999)
    assert (other.status, other.body["code"]) == (422, "key_reused")
    await world.control.advance(1)
    path = f"/credits/{made['id']}/reverse"
    elsewhere = await world.ask("payments", "POST", path, {"amount_minor": 1}, key="k1")
    assert elsewhere.body["code"] == "key_reused"
    assert await _count(world) == 1


async def test_a_missing_key_is_refused(world: World) -> None:
    """Nothing is issued without a key, nor under one that is not quoted."""
    missing = await _issue(world, None)
    assert (missing.status, missing.body["code"]) == (400, "key_required")
    bare = await world.ask("payments", "POST", "/credits", CREDIT, headers={"Idempotency-Key": "bare"})
    assert (bare.status, bare.body["code"]) == (400, "key_malformed")
    assert await _count(world) == 0


async def test_a_key_in_progress_is_told_so(world: World) -> None:
    """While the first request is worked on, the second is 409; afterwards it is the stored answer."""
    await world.control.add_fault("payments", "delay", "POST /credits", seconds=0.3)
    first = asyncio.create_task(_issue(world))
    await eventually(lambda: _hit(world))
    during = await _issue(world)
    assert (during.status, during.body["code"]) == (409, "key_in_progress")
    assert (await _issue(world, "k2", reference="other")).status == 202
    assert (await _issue(world)).body["code"] == "key_in_progress"
    done = await first
    assert (await _issue(world)).body == done.body


async def _hit(world: World) -> bool:
    return bool((await world.control.faults())[0]["hits"])


async def test_a_key_is_forgotten_after_its_retention(world: World) -> None:
    """From then on the same key makes a second credit: retention bounds every resend."""
    await world.control.settings(key_retention_seconds=60)
    first = await _issue(world)
    await world.control.advance(59)
    assert (await _issue(world)).body == first.body
    await world.control.advance(1)
    assert (await _issue(world)).body["id"] != first.body["id"]
    assert await _count(world) == 2


@pytest.mark.parametrize(
    ("header", "key"),
    [('"a-1"', "a-1"), ('  "a b"  ', "a b"), (r'"a\"b\\c"', 'a"b\\c')],
)
def test_a_key_is_a_structured_field_string(header: str, key: str) -> None:
    """Quotes are taken off, escapes are resolved (RFC 8941)."""
    assert keys.key_of(header) == key


@pytest.mark.parametrize("header", ["", '""', "a", '"a', 'a"', '"a"b"', '"a\\b"', '"ü"', f'"{"x" * 256}"'])
def test_what_is_no_structured_field_string_is_refused(header: str) -> None:
    """Unquoted, empty, broken, foreign and overlong keys are malformed."""
    with pytest.raises(Problem) as refused:
        keys.key_of(header)
    assert (refused.value.status, refused.value.code) == (400, "key_malformed")
