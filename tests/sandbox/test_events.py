"""Events: signed posts about credits and messages, each once its time has passed, and what may go wrong with them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from remit.sandbox import SandboxError, credentials, info, running_world, start
from remit.sandbox.signatures import PREFIX, holder, signed
from remit.sandbox.store import moment
from remit.sandbox.worlds import World, eventually

CREDIT: dict[str, Any] = {
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "inst:outage-0611/credit/customer:c-104/1",
}
MESSAGE: dict[str, Any] = {"customer": "c-104", "template": "one_time_credit", "values": {}, "reference": "m"}
REFERENCE_VECTOR = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""Published with the convention: for the key below and the body ``{"test": 2432232314}``."""
REFERENCE_KEY = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(frozen=True)
class Arrived:
    """One post as the listener got it."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def signature(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.startswith("webhook-")}

    def genuine(self, secret: str) -> bool:
        """Whether its headers are what the secret gives for its id, time and body."""
        at = int(self.headers["webhook-timestamp"])
        return signed(secret, self.headers["webhook-id"], at, self.body) == self.signature


@dataclass
class Listener:
    """Takes posts and answers ``status``; ``together`` is the most that were being answered at one moment."""

    url: str = ""
    status: int = 200
    arrived: list[Arrived] = field(default_factory=list)
    together: int = 0
    _open: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self._open += 1
        self.together = max(self.together, self._open)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.arrived.append(Arrived(request.path, headers, await request.read()))
        await asyncio.sleep(0)
        self._open -= 1
        return web.Response(status=self.status)

    def types(self) -> list[str]:
        return [post.event["type"] for post in self.arrived]


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    app = web.Application()
    app.router.add_post("/{tail:.*}", made.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def told(world: World, listener: Listener) -> World:
    """A world that posts the events of both services to the listener; nothing settles by itself for a minute."""
    await world.control.settings(settle_seconds=60, deliver_seconds=60)
    await _register(world, listener)
    return world


async def _register(world: World, listener: Listener) -> None:
    for service in ("payments", "mail"):
        await world.control.register_webhook(service, f"{listener.url}/{service}")


async def _issue(world: World, key: str = "k1", **changed: object) -> dict[str, Any]:
    return (await world.ask("payments", "POST", "/credits", {**CREDIT, **changed}, key=key)).body


def _arrived(listener: Listener, count: int) -> Callable[[], Awaitable[bool]]:
    async def enough() -> bool:
        return len(listener.arrived) >= count

    return enough


def _ended(world: World, count: int = 1) -> Callable[[], Awaitable[bool]]:
    """Whether so many posts are known and nothing is left to be done for any of them."""

    async def ended() -> bool:
        posts = await world.control.posts()
        return len(posts) == count and all(post["outcome"] not in (None, "held") for post in posts)

    return ended


def _posting() -> int:
    """How many tasks there are that post events."""
    return sum("Deliverer" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_the_signature_is_the_conventions() -> None:
    """The published example of the convention comes out byte for byte, with and without the secret's prefix."""
    for secret in (REFERENCE_KEY, PREFIX + REFERENCE_KEY):
        made = signed(secret, REFERENCE_VECTOR["webhook-id"], 1614265330, b'{"test": 2432232314}')
        assert made == REFERENCE_VECTOR


async def test_a_credit_tells_that_it_was_accepted_and_that_it_settled(
    told: World, listener: Listener
) -> None:
    """Each once, at its own time, with the reference, and signed with the service's own secret when it is posted."""
    credit = await _issue(told)
    await eventually(_arrived(listener, 1))
    await told.control.advance(60)
    await eventually(_arrived(listener, 2))
    accepted, settled = listener.arrived
    assert [post.event for post in listener.arrived] == [
        {
            "id": f"ev-{credit['id']}-{word}",
            "type": f"credit.{word}",
            "reference": CREDIT["reference"],
            "at": at,
        }
        for word, at in (("accepted", credit["accepted_at"]), ("settled", credit["settle_at"]))
    ]
    assert (accepted.path, accepted.headers["content-type"]) == ("/payments", "application/json")
    assert accepted.headers["webhook-id"] == accepted.event["id"]
    assert abs(int(settled.headers["webhook-timestamp"]) - time.time()) < 5
    secrets = credentials(told.home)
    assert accepted.genuine(secrets[holder("payments")])
    assert not accepted.genuine(secrets[holder("mail")])


async def test_no_event_of_a_settlement_comes_before_its_time(told: World, listener: Listener) -> None:
    """Its time is company time: nothing is told while it lies ahead, and a withdrawn credit never settles."""
    first = await _issue(told, "k1", reference="r1")
    await _issue(told, "k2", reference="r2")
    await eventually(_arrived(listener, 2))
    await told.ask("payments", "POST", f"/credits/{first['id']}/withdraw")
    await eventually(_arrived(listener, 3))
    await told.control.advance(59)
    assert listener.types() == ["credit.accepted", "credit.accepted", "credit.withdrawn"]
    await told.control.advance(1)
    await eventually(_ended(told, 4))
    assert [post.event["reference"] for post in listener.arrived] == ["r1", "r2", "r1", "r2"]
    assert listener.types()[3] == "credit.settled"


async def test_a_reversal_and_the_older_path_are_told_too(told: World, listener: Listener) -> None:
    """A reversal without a reference of its own is told under that of its credit; a memo is a reference."""
    await told.control.settings(settle_seconds=0)
    credit = await _issue(told, reference="own")
    for key, reference in (("k2", "undo"), ("k3", None)):
        body = {"amount_minor": 100, "reference": reference}
        await told.ask("payments", "POST", f"/credits/{credit['id']}/reverse", body, key=key)
    old = {"cust": "c-205", "cents": 5, "cur": "USD"}
    await told.ask("payments", "POST", "/legacy/credits", {**old, "memo": "memo"})
    await told.ask("payments", "POST", "/legacy/credits", old)
    await eventually(_ended(told, 8))
    found = sorted((post.event["type"], str(post.event["reference"])) for post in listener.arrived)
    assert found == sorted(
        [(f"credit.{word}", name) for word in ("accepted", "settled") for name in ("own", "memo", "None")]
        + [("credit.reversed", "undo"), ("credit.reversed", "own")]
    )


async def test_a_message_tells_that_it_was_queued_delivered_or_withdrawn(
    told: World, listener: Listener
) -> None:
    """Mail posts to its own URL with its own secret."""
    await told.ask("mail", "POST", "/messages", {**MESSAGE, "reference": "m1"})
    second = await told.ask("mail", "POST", "/messages", {**MESSAGE, "reference": "m2"})
    await told.ask("mail", "POST", f"/messages/{second.body['id']}/withdraw")
    await told.control.advance(60)
    await eventually(_ended(told, 4))
    found = {(post.event["type"], post.event["reference"]) for post in listener.arrived}
    assert found == {
        ("message.queued", "m1"),
        ("message.queued", "m2"),
        ("message.withdrawn", "m2"),
        ("message.delivered", "m1"),
    }
    secret = credentials(told.home)[holder("mail")]
    assert all(post.path == "/mail" and post.genuine(secret) for post in listener.arrived)


async def test_what_had_no_effect_tells_nothing(told: World, listener: Listener) -> None:
    """A refusal, a lie, a 500 without effect and a stored answer given again make no event."""
    for key, kind in (("k1", "lying_ok"), ("k2", "error_before")):
        await told.control.add_fault("payments", kind, "POST /credits")
        await _issue(told, key)
    for key, customer in (("k3", "c-104"), ("k3", "c-104"), ("k4", "c-999")):
        await _issue(told, key, customer=customer)
    await eventually(_ended(told, 1))
    assert listener.types() == ["credit.accepted"]


async def test_without_a_webhook_nothing_is_planned_and_nothing_runs(
    world: World, listener: Listener
) -> None:
    """No task and no row per credit; what happened before the registration is not told afterwards."""
    await _issue(world, "k1", reference="before")
    await world.control.advance(1)
    assert _posting() == 0
    assert await world.control.posts() == []
    await _register(world, listener)
    assert _posting() == 1
    await _issue(world, "k2", reference="after")
    await world.control.advance(1)
    await eventually(_ended(world, 2))
    assert {post.event["reference"] for post in listener.arrived} == {"after"}


async def test_what_settles_after_the_registration_is_told_of_an_earlier_credit(
    world: World, listener: Listener
) -> None:
    """An event belongs to its own time, not to that of the credit."""
    await _issue(world)
    await _register(world, listener)
    await world.control.advance(1)
    await eventually(_ended(world))
    assert listener.types() == ["credit.settled"]


async def test_a_webhook_is_listed_moved_and_removed(told: World, listener: Listener) -> None:
    """One URL a service; after its removal nothing more is posted, and what waited is given up."""
    listener.status = 500
    await _issue(told)
    await eventually(_arrived(listener, 1))
    await told.control.register_webhook("payments", f"{listener.url}/elsewhere")
    listener.status = 200
    await eventually(_ended(told))
    assert listener.arrived[-1].path == "/elsewhere"
    assert [hook["service"] for hook in await told.control.webhooks()] == ["mail", "payments"]
    await told.control.add_fault("payments", "out_of_order", "credit.accepted")
    await _issue(told, "k2")
    await told.control.clear_webhooks("payments")
    await told.control.clear_webhooks()
    assert await told.control.webhooks() == []
    assert _posting() == 0
    assert {post["outcome"] for post in await told.control.posts()} <= {"delivered", "given_up"}
    with pytest.raises(SandboxError, match="has no webhook"):
        await told.control.clear_webhooks("payments")


@pytest.mark.parametrize(
    ("service", "url"), [("accounts", "http://127.0.0.1:1/"), ("payments", "file:///x"), ("mail", "http://")]
)
async def test_a_webhook_that_cannot_work_is_refused(world: World, service: str, url: str) -> None:
    """Only payments and mail have events, and only to an address of HTTP."""
    with pytest.raises(SandboxError, match="must be"):
        await world.control.register_webhook(service, url)


async def test_a_post_that_failed_is_made_again(told: World, listener: Listener) -> None:
    """The same id and body with a fresh signature, until it is answered with success; a credit waits for none of it."""
    listener.status = 503
    await _issue(told)
    await eventually(_arrived(listener, 2))
    listener.status = 204
    await eventually(_ended(told))
    assert len({(post.event["id"], post.body) for post in listener.arrived}) == 1
    (post,) = await told.control.posts()
    assert (post["tries"], post["status"], post["outcome"]) == (len(listener.arrived), 204, "delivered")


async def test_a_post_is_given_up_after_a_few_tries(
    told: World, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody at the address: so many tries and no more, and later events are posted all the same."""
    monkeypatch.setattr("remit.sandbox.outbox.FIRST_RETRY", 0.001)
    await told.control.register_webhook("payments", "http://127.0.0.1:9/")
    await _issue(told)
    await eventually(_ended(told))
    (post,) = await told.control.posts()
    assert (post["tries"], post["status"], post["outcome"]) == (7, None, "given_up")
    await _register(told, listener)
    await told.control.advance(60)
    await eventually(_ended(told, 2))
    assert listener.types() == ["credit.settled"]


async def test_a_duplicate_is_posted_twice_at_once(told: World, listener: Listener) -> None:
    """Two posts with one id are on their way together."""
    await told.control.add_fault("payments", "duplicate", "credit.accepted", match={"reference": "r1"})
    await _issue(told, reference="r1")
    await eventually(_ended(told, 2))
    first, second = listener.arrived
    assert first.event == second.event
    assert listener.together == 2


async def test_out_of_order_comes_after_the_next_event_of_its_effect(told: World, listener: Listener) -> None:
    """Settled is told first and accepted afterwards; other credits keep their order."""
    await told.control.add_fault("payments", "out_of_order", "credit.accepted")
    await _issue(told, "k1", reference="late")
    await _issue(told, "k2", reference="other")
    await eventually(_arrived(listener, 1))
    await told.control.advance(60)
    await eventually(_ended(told, 4))
    order = [(post.event["reference"], post.event["type"]) for post in listener.arrived]
    assert [kind for name, kind in order if name == "late"] == ["credit.settled", "credit.accepted"]
    assert [kind for name, kind in order if name == "other"] == ["credit.accepted", "credit.settled"]


async def test_a_replay_is_the_very_same_post_later(told: World, listener: Listener) -> None:
    """Id, time and signature are those of the first post."""
    await told.control.add_fault("payments", "replay_later", "credit.accepted", seconds=0.2)
    await _issue(told)
    await eventually(_arrived(listener, 1))
    assert len(listener.arrived) == 1
    await eventually(_ended(told, 2))
    first, again = listener.arrived
    assert (first.signature, first.body) == (again.signature, again.body)


async def test_a_forged_event_has_a_wrong_signature_and_one_try(told: World, listener: Listener) -> None:
    """It looks like any other, and no secret of the company made its signature."""
    listener.status = 401
    await told.control.add_fault("mail", "forged")
    await told.ask("mail", "POST", "/messages", MESSAGE)
    await eventually(_ended(told))
    (post,) = listener.arrived
    assert post.event["type"] == "message.queued"
    assert not any(post.genuine(credentials(told.home)[holder(name)]) for name in ("payments", "mail"))
    (known,) = await told.control.posts()
    assert (known["forged"], known["tries"], known["status"]) == (True, 1, 401)


async def test_a_lost_event_is_never_posted(told: World, listener: Listener) -> None:
    """The company believes that it told; only the rule's hits and the outbox know."""
    await told.control.add_fault("payments", "lost", "credit.accepted")
    await _issue(told)
    await eventually(_ended(told))
    await told.control.advance(60)
    await eventually(_ended(told, 2))
    assert listener.types() == ["credit.settled"]
    assert [fault["hits"] for fault in await told.control.faults()] == [1]


@pytest.mark.parametrize(
    ("service", "kind", "route", "seconds", "told_so"),
    [
        ("accounts", "lost", "*", None, "only payments and mail post"),
        ("payments", "lost", "POST /credits", None, "no event 'POST /credits'"),
        ("payments", "lost", "message.queued", None, "Choose one of: credit.accepted"),
        ("payments", "reply_lost", "credit.settled", None, "no route 'credit.settled'"),
        ("mail", "replay_later", "*", None, "needs 'seconds'"),
    ],
)
async def test_a_rule_about_events_names_an_event(
    world: World, *, service: str, kind: str, route: str, seconds: float | None, told_so: str
) -> None:
    """As for calls, a rule that could never hit anything is refused with what would."""
    with pytest.raises(SandboxError, match=told_so):
        await world.control.add_fault(service, kind, route, seconds=seconds)


async def test_a_rule_about_events_hits_no_call_and_the_other_way_round(
    told: World, listener: Listener
) -> None:
    """Both kinds may say '*' without being in each other's way."""
    await told.control.add_fault("payments", "lost")
    await told.control.add_fault("payments", "delay_after", seconds=0)
    await _issue(told)
    await eventually(_ended(told))
    assert [fault["hits"] for fault in await told.control.faults()] == [1, 1]
    assert listener.arrived == []


async def test_secrets_of_events_open_no_service(world: World) -> None:
    """What signs events is no credential of a call."""
    for service in ("payments", "mail"):
        answer = await world.ask(
            service, "GET", f"/{'credits' if service == 'payments' else 'messages'}", holder=holder(service)
        )
        assert answer.status == 401


async def test_events_survive_sigkill_of_the_company(tmp_path: Path, listener: Listener) -> None:
    """What was planned and what happened while it was down is posted by the next process, each under one id."""
    listener.status = 503
    async with running_world(tmp_path) as world:
        await _register(world, listener)
        await world.control.settings(settle_seconds=0.2)
        credit = await _issue(world)
        await eventually(_arrived(listener, 1))
        found = info(world.home)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)

        async def down_and_settled() -> bool:
            return info(world.home) is None and time.time() > moment(credit["settle_at"]) / 1e6

        await eventually(down_and_settled)
        listener.status = 200
        await start(world.home)
        await eventually(_ended(world, 2))
    delivered = [post.event["id"] for post in listener.arrived][-2:]
    assert sorted(delivered) == [f"ev-{credit['id']}-{word}" for word in ("accepted", "settled")]
