"""Credits: accepted, settled, withdrawn, reversed; the older path."""

from __future__ import annotations

from typing import Any

import pytest

from remit.sandbox.worlds import Reply, World

CREDIT: dict[str, Any] = {
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "inst:outage-0611/credit/customer:c-104/1",
}


async def _issue(world: World, key: str = "k1", **changed: object) -> Reply:
    return await world.ask("payments", "POST", "/credits", {**CREDIT, **changed}, key=key)


async def _post(world: World, path: str, body: object = None, key: str | None = None) -> Reply:
    return await world.ask("payments", "POST", path, body, key=key)


async def _get(world: World, credit: str) -> dict[str, Any]:
    return (await world.ask("payments", "GET", f"/credits/{credit}")).body


async def test_a_credit_is_accepted_and_settles_later(world: World) -> None:
    """It is 202 and accepted at first; when its time has come it is settled at that time."""
    reply = await _issue(world)
    accepted = reply.body
    assert reply.status == 202
    assert {name: accepted[name] for name in CREDIT} == CREDIT
    assert (accepted["status"], accepted["settled_at"], accepted["path"]) == ("accepted", None, "credits")
    await world.control.advance(1)
    settled = await _get(world, accepted["id"])
    assert settled == {**accepted, "status": "settled", "settled_at": accepted["settle_at"]}


async def test_the_settle_delay_is_a_setting_for_credits_to_come(world: World) -> None:
    """What was accepted before keeps its time."""
    before = (await _issue(world, "k1")).body
    await world.control.settings(settle_seconds=0)
    after = (await _issue(world, "k2", reference=None)).body
    assert (before["status"], after["status"]) == ("accepted", "settled")
    assert (await _get(world, before["id"]))["settle_at"] == before["settle_at"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"customer": "c-999"}, "customer_unknown"),
        ({"amount_minor": 0}, "amount_invalid"),
        ({"amount_minor": -5}, "amount_invalid"),
        ({"amount_minor": 1_000_001}, "amount_invalid"),
        ({"currency": "XXX"}, "currency_unsupported"),
    ],
)
async def test_content_is_refused_by_name(world: World, changed: dict[str, Any], code: str) -> None:
    """Unknown customer, amount out of range, unsupported currency: each with its code and no credit."""
    reply = await _issue(world, **changed)
    assert (reply.status, reply.body["code"]) == (422, code)
    assert (await world.ask("payments", "GET", "/credits")).body["credits"] == []


async def test_the_largest_amount_is_allowed(world: World) -> None:
    """The bound itself belongs to the range."""
    assert (await _issue(world, amount_minor=1_000_000)).status == 202


async def test_credits_are_found_by_reference_and_by_customer(world: World) -> None:
    """Both searches show credits of both paths."""
    one = (await _issue(world)).body
    memo = {"cust": "c-104", "cents": 1000, "cur": "USD", "memo": CREDIT["reference"]}
    two = (await _post(world, "/legacy/credits", memo)).body["credit_id"]
    other = (await _issue(world, "k2", customer="c-205", reference="other")).body
    by_reference = (await _post(world, "/credits/search", {"references": [CREDIT["reference"]]})).body
    by_customer = (await _post(world, "/credits/search", {"customers": ["c-104", "c-205"]})).body
    assert [credit["id"] for credit in by_reference["credits"]] == [one["id"], two]
    assert [credit["id"] for credit in by_customer["credits"]] == [one["id"], two, other["id"]]


async def test_credits_are_listed_since_a_time_in_pages(world: World) -> None:
    """`since` is inclusive, and `next` continues."""
    made = []
    for number in range(4):
        made.append((await _issue(world, f"k{number}", reference=None)).body)
        await world.control.advance(1)
    since = made[1]["accepted_at"]
    first = (await world.ask("payments", "GET", f"/credits?since={since}&limit=2")).body
    rest = (await world.ask("payments", "GET", f"/credits?since={since}&limit=2&after={first['next']}")).body
    found = [credit["id"] for credit in (*first["credits"], *rest["credits"])]
    assert found == [credit["id"] for credit in made[1:]]
    assert rest["next"] is None


async def test_a_queued_credit_can_be_withdrawn_and_then_never_settles(world: World) -> None:
    """A second withdrawal is answered as the first."""
    made = (await _issue(world)).body
    first = await _post(world, f"/credits/{made['id']}/withdraw")
    assert (first.status, first.body["status"]) == (200, "withdrawn")
    await world.control.advance(60)
    again = await _post(world, f"/credits/{made['id']}/withdraw")
    assert again.body == first.body


async def test_a_settled_credit_cannot_be_withdrawn(world: World) -> None:
    """It says so, and the credit stays."""
    made = (await _issue(world)).body
    await world.control.advance(1)
    reply = await _post(world, f"/credits/{made['id']}/withdraw")
    assert (reply.status, reply.body["code"]) == (409, "already_settled")
    assert (await _get(world, made["id"]))["status"] == "settled"


async def test_a_settled_credit_is_reversed_in_part_and_then_whole(world: World) -> None:
    """In part it stays settled with what was reversed; whole it is reversed; more than whole exceeds."""
    made = (await _issue(world)).body
    await world.control.advance(1)
    path = f"/credits/{made['id']}/reverse"
    part = await _post(world, path, {"amount_minor": 400, "reference": "undo/1"}, "r1")
    assert part.status == 202
    assert (part.body["credit"], part.body["amount_minor"], part.body["status"]) == (
        made["id"],
        400,
        "settled",
    )
    after = await _get(world, made["id"])
    assert (after["status"], after["reversed_minor"]) == ("settled", 400)
    over = await _post(world, path, {"amount_minor": 601, "reference": "undo/2"}, "r2")
    assert (over.status, over.body["code"]) == (409, "exceeds")
    await _post(world, path, {"amount_minor": 600, "reference": "undo/3"}, "r3")
    assert (await _get(world, made["id"]))["status"] == "reversed"
    found = (await _post(world, "/reversals/search", {"references": ["undo/1", "undo/2"]})).body["reversals"]
    assert found == [part.body]


async def test_a_reversal_repeated_under_its_key_happens_once(world: World) -> None:
    """Reversals take keys as credits do."""
    made = (await _issue(world)).body
    await world.control.advance(1)
    body = {"amount_minor": 400, "reference": "undo/1"}
    replies = [await _post(world, f"/credits/{made['id']}/reverse", body, "r1") for _ in range(2)]
    assert replies[0].body == replies[1].body
    assert (await _get(world, made["id"]))["reversed_minor"] == 400


async def test_what_cannot_be_reversed_says_why(world: World) -> None:
    """Not settled, withdrawn, spent, unknown, and an amount of nothing are told apart."""
    made = (await _issue(world)).body
    path, body = f"/credits/{made['id']}/reverse", {"amount_minor": 1, "reference": None}
    assert (await _post(world, path, body, "r1")).body["code"] == "not_settled"
    await world.control.advance(1)
    assert (await _post(world, path, {"amount_minor": 0}, "r2")).body["code"] == "amount_invalid"
    await world.control.spend(made["id"])
    spent = await _post(world, path, body, "r3")
    assert (spent.status, spent.body["code"]) == (409, "spent")
    assert (await _get(world, made["id"]))["spent"] is True
    assert (await _post(world, "/credits/cr-none/reverse", body, "r4")).body["code"] == "not_found"
    queued = (await _issue(world, "k2", reference=None)).body["id"]
    await _post(world, f"/credits/{queued}/withdraw")
    assert (await _post(world, f"/credits/{queued}/reverse", body, "r5")).body["code"] == "not_settled"


async def test_the_older_path_makes_a_new_credit_at_each_call(world: World) -> None:
    """It knows no keys, and it refuses the same contents."""
    order = {"cust": "c-104", "cents": 1000, "cur": "USD", "memo": "ref"}
    made = [(await _post(world, "/legacy/credits", order, "same-key")) for _ in range(2)]
    assert [reply.status for reply in made] == [200, 200]
    assert all(set(reply.body) == {"ok", "credit_id"} and reply.body["ok"] is True for reply in made)
    first, second = [await _get(world, reply.body["credit_id"]) for reply in made]
    assert first["id"] != second["id"]
    assert (first["path"], first["reason"], first["reference"]) == ("legacy", "legacy", "ref")
    refused = await _post(world, "/legacy/credits", {**order, "cust": "c-999"})
    assert (refused.status, refused.body["code"]) == (422, "customer_unknown")


async def test_an_unknown_credit_is_not_found(world: World) -> None:
    """Reading and withdrawing say so alike."""
    assert (await world.ask("payments", "GET", "/credits/cr-none")).body["code"] == "not_found"
    assert (await _post(world, "/credits/cr-none/withdraw")).body["code"] == "not_found"
