"""Faults by rule: what each kind does to the effect and to the answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from remit.sandbox import SandboxError
from remit.sandbox.worlds import Reply, World, eventually

CREDIT: dict[str, Any] = {
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "r",
}


async def _issue(world: World, key: str = "k1", **changed: object) -> Reply:
    return await world.ask("payments", "POST", "/credits", {**CREDIT, **changed}, key=key)


async def _credits(world: World) -> list[dict[str, Any]]:
    found = await world.ask("payments", "POST", "/credits/search", {"customers": ["c-104", "c-205"]})
    return list(found.body["credits"])


async def _issued(world: World) -> bool:
    return bool(await _credits(world))


async def _fault(world: World, kind: str, **more: Any) -> dict[str, Any]:
    return await world.control.add_fault("payments", kind, "POST /credits", **more)


async def test_reply_lost_has_the_effect_and_no_answer(world: World) -> None:
    """The connection ends without a byte; the same key then gets the stored answer of the one credit."""
    await _fault(world, "reply_lost")
    with pytest.raises(aiohttp.ClientConnectionError):
        await _issue(world)
    (credit,) = await _credits(world)
    again = await _issue(world)
    assert (again.status, again.body["id"]) == (202, credit["id"])


async def test_reply_lost_after_a_change_of_an_account(world: World) -> None:
    """Every service can lose its answer, also where no key protects the caller."""
    await world.control.add_fault("accounts", "reply_lost", "PATCH /accounts/{id}", match={"id": "c-104"})
    with pytest.raises(aiohttp.ClientConnectionError):
        await world.ask("accounts", "PATCH", "/accounts/c-104", {"changes": {"notes": "n"}})
    assert (await world.ask("accounts", "GET", "/accounts/c-104")).body["version"] == 2


async def test_delay_lets_the_effect_come_after_the_client_has_gone(world: World) -> None:
    """A request that still waits is carried out although nobody listens any more."""
    await _fault(world, "delay", seconds=0.15)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _issue(world)
    assert await _credits(world) == []
    await eventually(lambda: _issued(world))


async def test_delay_after_has_the_effect_before_the_wait(world: World) -> None:
    """The credit is there while the client still waits, and its key is answered at once."""
    await _fault(world, "delay_after", seconds=0.3)
    began = time.monotonic()
    waiting = asyncio.create_task(_issue(world))
    await eventually(lambda: _issued(world))
    again = await _issue(world)
    assert not waiting.done()
    assert (await waiting).body == again.body
    assert time.monotonic() - began >= 0.3


async def test_error_before_has_no_effect_and_is_forgotten(world: World) -> None:
    """The next try under the same key is the first one that counts."""
    await _fault(world, "error_before")
    failed = await _issue(world)
    assert (failed.status, failed.body["code"]) == (500, "internal")
    assert await _credits(world) == []
    assert (await _issue(world)).status == 202


async def test_error_before_can_be_stored_under_the_key(world: World) -> None:
    """Such a failure is the key's final answer, and there is no effect under it ever."""
    await _fault(world, "error_before", stored=True)
    first, second = await _issue(world), await _issue(world)
    assert (first.status, second.status, second.body) == (500, 500, first.body)
    assert await _credits(world) == []


async def test_error_after_has_the_effect(world: World) -> None:
    """The answer lies about the failure; the key gives the truth afterwards."""
    await _fault(world, "error_after")
    assert (await _issue(world)).status == 500
    (credit,) = await _credits(world)
    assert (await _issue(world)).body["id"] == credit["id"]


async def test_error_after_can_be_stored_under_the_key(world: World) -> None:
    """Then the key says 500 for good, although the credit is there."""
    await _fault(world, "error_after", stored=True)
    assert [(await _issue(world)).status for _ in range(2)] == [500, 500]
    assert len(await _credits(world)) == 1


async def test_slow_settle_and_never_settle(world: World) -> None:
    """One settles after its own time, the other not at all but can be withdrawn."""
    await _fault(world, "slow_settle", seconds=100, match={"customer": "c-104"})
    await _fault(world, "never_settle", match={"customer": "c-205"})
    await _issue(world)
    never = (await _issue(world, "k2", customer="c-205", reference="r2")).body
    assert never["settle_at"] is None
    await world.control.advance(99)
    assert [credit["status"] for credit in await _credits(world)] == ["accepted", "accepted"]
    await world.control.advance(1_000_000)
    assert [credit["status"] for credit in await _credits(world)] == ["settled", "accepted"]
    gone = await world.ask("payments", "POST", f"/credits/{never['id']}/withdraw")
    assert gone.body["status"] == "withdrawn"


async def test_mail_can_be_slow_or_never_delivered(world: World) -> None:
    """The same kinds hold a message back."""
    draft = {"customer": "c-104", "template": "one_time_credit", "values": {}}
    await world.control.add_fault("mail", "slow_settle", "POST /messages", seconds=100)
    await world.control.add_fault("mail", "never_settle", "POST /messages", skip=1)
    slow, never = [(await world.ask("mail", "POST", "/messages", draft)).body["id"] for _ in range(2)]
    await world.control.advance(1_000)
    found = (await world.ask("mail", "GET", "/messages")).body["messages"]
    assert {m["id"]: m["status"] for m in found} == {slow: "delivered", never: "queued"}


async def test_late_search_hides_an_effect_from_searches_only(world: World) -> None:
    """The answer claims to be complete; the credit shows by its id and, later, in both searches."""
    await _fault(world, "late_search", seconds=60)
    made = (await _issue(world)).body
    by_reference = ("/credits/search", {"references": ["r"]})
    hidden = (await world.ask("payments", "POST", *by_reference)).body
    assert (hidden["credits"], hidden["complete"]) == ([], True)
    assert (await world.ask("payments", "GET", "/credits")).body["credits"] == []
    assert (await world.ask("payments", "GET", f"/credits/{made['id']}")).status == 200
    await world.control.advance(60)
    assert len((await world.ask("payments", "POST", *by_reference)).body["credits"]) == 1
    assert len(await _credits(world)) == 1


async def test_late_search_holds_for_messages_and_history(world: World) -> None:
    """Each system of record can lag behind its own writes."""
    await world.control.add_fault("mail", "late_search", "POST /messages", seconds=60)
    await world.control.add_fault("accounts", "late_search", "PATCH /accounts/{id}", seconds=60)
    draft = {"customer": "c-104", "template": "one_time_credit", "values": {}, "reference": "r"}
    await world.ask("mail", "POST", "/messages", draft)
    await world.ask("accounts", "PATCH", "/accounts/c-104", {"changes": {"notes": "n"}, "reference": "r"})
    for expected in (0, 1):
        mails = await world.ask("mail", "POST", "/messages/search", {"references": ["r"]})
        changes = await world.ask("accounts", "POST", "/history/search", {"references": ["r"]})
        assert (len(mails.body["messages"]), len(changes.body["changes"])) == (expected, expected)
        await world.control.advance(60)


async def test_lying_ok_answers_success_and_does_nothing(world: World) -> None:
    """No credit, no kept key: only the system of record tells."""
    await _fault(world, "lying_ok")
    lied = await _issue(world)
    assert (lied.status, lied.body["status"]) == (202, "accepted")
    assert await _credits(world) == []
    assert (await world.ask("payments", "GET", f"/credits/{lied.body['id']}")).status == 404
    assert (await _issue(world)).body["id"] != lied.body["id"]


async def test_barriers_keep_the_call_from_its_handler(world: World) -> None:
    """Expired credential, too many calls, a page of a proxy: three answers, and never an effect."""
    for kind in ("expired_credential", "rate_limit", "html"):
        await _fault(world, kind, seconds=7)
    expired, limited, page = [await _issue(world) for _ in range(3)]
    assert (expired.status, expired.body["code"]) == (401, "credential_expired")
    assert (limited.status, limited.body["code"], limited.headers["Retry-After"]) == (
        429,
        "rate_limited",
        "7",
    )
    assert (page.status, page.headers["Content-Type"][:9], page.body) == (200, "text/html", {})
    assert await _credits(world) == []


async def _refused(world: World) -> bool:
    """Whether a new connection to payments is refused."""
    host, port = world.urls["payments"].removeprefix("http://").split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    writer.close()
    await writer.wait_closed()
    return False


async def _answers(world: World) -> bool:
    return not await _refused(world)


async def test_refuse_really_closes_the_port_until_it_is_cleared(world: World) -> None:
    """New connections are refused, kept ones are cut, the other services go on; then the same port answers."""
    assert await _credits(world) == []
    fault = await world.control.add_fault("payments", "refuse", times=None)
    assert await _refused(world)
    with pytest.raises(aiohttp.ClientConnectionError):
        await _issue(world)
    assert (await world.ask("accounts", "GET", "/accounts/c-104")).status == 200
    await world.control.clear_faults(fault["id"])
    assert not await _refused(world)
    assert (await _issue(world)).status == 202


async def test_refuse_ends_by_itself_after_its_seconds(world: World) -> None:
    """The time is real time: the clock of the company does not open a port."""
    await world.control.add_fault("payments", "refuse", seconds=0.2)
    await world.control.advance(3600)
    assert await _refused(world)
    await eventually(lambda: _answers(world))
    assert (await _issue(world)).status == 202


async def test_overlapping_refusals_end_with_the_last(world: World) -> None:
    """One that ends leaves another in force."""
    lasting = await world.control.add_fault("payments", "refuse")
    short = await world.control.add_fault("payments", "refuse", seconds=0)
    await world.control.clear_faults(short["id"])
    assert await _refused(world)
    await world.control.clear_faults(lasting["id"])
    assert not await _refused(world)


async def test_a_rule_hits_what_matches_as_often_as_it_says(world: World) -> None:
    """`match`, `skip` and `times` choose the calls; the hits are counted."""
    await _fault(world, "error_before", match={"customer": "c-104"}, skip=1, times=2)
    statuses = [(await _issue(world, f"a{n}", reference=None)).status for n in range(5)]
    other = await _issue(world, "b", customer="c-205", reference=None)
    assert (statuses, other.status) == ([202, 500, 500, 202, 202], 202)
    (rule,) = await world.control.faults()
    assert rule["hits"] == 2


async def test_a_rule_without_times_hits_always(world: World) -> None:
    """Until it is cleared."""
    await _fault(world, "error_before", times=None)
    assert {(await _issue(world)).status for _ in range(4)} == {500}
    await world.control.clear_faults()
    assert (await _issue(world)).status == 202


async def test_a_match_looks_into_lists_and_parameters(world: World) -> None:
    """A batch that names the customer is hit, and a list by its parameter."""
    await world.control.add_fault("accounts", "error_before", match={"ids": "c-104"}, times=None)
    await world.control.add_fault("accounts", "error_before", "GET /accounts", match={"limit": 5})
    hit = await world.ask("accounts", "POST", "/accounts/batch", {"ids": ["c-101", "c-104"]})
    free = await world.ask("accounts", "POST", "/accounts/batch", {"ids": ["c-101"]})
    assert (hit.status, free.status) == (500, 200)
    assert (await world.ask("accounts", "GET", "/accounts?limit=5")).status == 500
    assert (await world.ask("accounts", "GET", "/accounts?limit=6")).status == 200


async def test_several_kinds_can_hit_one_call(world: World) -> None:
    """A credit that settles slowly and whose answer is lost as well."""
    await _fault(world, "slow_settle", seconds=50, times=None)
    await _fault(world, "reply_lost")
    with pytest.raises(aiohttp.ClientConnectionError):
        await _issue(world)
    await world.control.advance(49)
    assert [credit["status"] for credit in await _credits(world)] == ["accepted"]


async def test_a_refusal_uses_the_rule_up_like_a_success(world: World) -> None:
    """The call was hit; that its content was refused does not give the fault back."""
    await _fault(world, "error_after")
    assert (await _issue(world, customer="c-999")).status == 500
    assert (await _issue(world, "k2")).status == 202


WRONG_RULES: list[dict[str, Any]] = [
    {"service": "control", "kind": "delay", "seconds": 1},
    {"service": "payments", "kind": "explode"},
    {"service": "payments", "kind": "delay"},
    {"service": "payments", "kind": "delay", "seconds": -1},
    {"service": "payments", "kind": "reply_lost", "route": "POST /credit"},
    {"service": "payments", "kind": "reply_lost", "times": 0},
    {"service": "payments", "kind": "reply_lost", "stored": True},
    {"service": "payments", "kind": "refuse", "route": "POST /credits"},
]


@pytest.mark.parametrize("rule", WRONG_RULES, ids=str)
async def test_a_rule_that_could_never_work_is_refused(world: World, rule: dict[str, Any]) -> None:
    """A mistyped route or kind is told at once, not found out by a test that passes for nothing."""
    with pytest.raises(SandboxError, match=r"\.$"):
        await world.control.add_fault(**rule)
    assert await world.control.faults() == []


async def test_clearing_a_fault_that_is_not_there_is_told(world: World) -> None:
    """So is marking an unknown credit as spent."""
    with pytest.raises(SandboxError, match="There is no fault"):
        await world.control.clear_faults(99)
    with pytest.raises(SandboxError, match="There is no credit"):
        await world.control.spend("cr-none")
