"""Events from receivers: a real company posts into a real listener; they wake and never prove (F49, I1, I5)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from remit.checkpoints import Database, open_pool
from remit.checkpoints.embedded_access import Urls
from remit.checkpoints.events import LARGEST, WINDOW_SECONDS, Events, Outcome
from remit.console.serve import listening
from remit.sandbox import check
from remit.sandbox.signatures import PREFIX, holder, new_secret, signed
from remit.sandbox.worlds import World
from remit.tools.actions import operation_key, reference
from remit.tools.catalogue import RECEIVERS
from remit.tools.errors import NotSent
from remit.tools.ports import FaultPoint, Lease
from remit.tools.runner import Runner
from tests.checkpoints.serve_process import Order
from tests.fixtures import PURPOSE, Bench, Tokens, eventually

OWN = "customer:c-104"
ROOT = Path(__file__).parents[2]
AT = "2026-11-30T12:00:00.000000Z"
CREDIT = "POST /credits"
GOOD = {"id": "e-1", "type": "credit.settled", "reference": "r", "at": AT}


@dataclass
class Desk:
    """A listener on the ledger of `bench`, the company that posts to it, and a hand that posts what a test wants."""

    bench: Bench
    world: World
    events: Events
    url: str
    secrets: dict[str, str]
    session: aiohttp.ClientSession
    woken: list[float]
    clock: list[float]

    async def raw(self, receiver: str, body: bytes, headers: dict[str, str]) -> int:
        """Posts these bytes and returns the status."""
        async with self.session.post(f"{self.url}/events/{receiver}", data=body, headers=headers) as got:
            answer = await got.json()
            assert set(answer) == {"outcome", "detail"}
            return got.status

    async def post(
        self,
        type_: str,
        about: str | None,
        id_: str = "e-1",
        *,
        receiver: str = "payments",
        secret: str | None = None,
        at: float | None = None,
        **changed: Any,
    ) -> int:
        """Posts an event as its receiver would; `changed` replaces fields of the body."""
        body = json.dumps({"id": id_, "type": type_, "reference": about, "at": AT, **changed}).encode()
        when = int(self.clock[0] if at is None else at)
        return await self.raw(receiver, body, signed(secret or self.secrets[receiver], id_, when, body))

    async def stored(self) -> list[dict[str, Any]]:
        return await self.bench.sql("SELECT * FROM remit.events ORDER BY received_at")

    async def refused(self) -> dict[tuple[str, str], int]:
        """The numbers in the database, by receiver and code."""
        await self.events.write_counts()
        rows = await self.bench.database.rows("refused_events")
        return {(row["receiver"], row["code"]): row["count"] for row in rows}

    def reference(self, step: str = "credit", subject: str = OWN) -> str:
        return reference(self.bench.ledger.installation, operation_key(PURPOSE, step, subject))

    async def arrived(self, *types: str) -> None:
        """Waits until the company has posted exactly these events, and the ledger holds them."""

        async def here() -> bool:
            return sorted(row["type"] for row in await self.stored()) == sorted(types)

        await eventually(here)


@pytest.fixture
async def desk(bench: Bench, world: World) -> AsyncIterator[Desk]:
    """Nothing settles by itself for a minute; the clock that signatures are judged by stands where the test puts it."""
    await world.control.settings(settle_seconds=60, deliver_seconds=60)
    secrets = {name: world.credentials[holder(name)] for name in ("payments", "mail")}
    woken: list[float] = []
    clock = [time.time()]

    def secret_of(receiver: str) -> str:
        if receiver not in secrets:
            raise NotSent(code="credential")
        return secrets[receiver]

    events = Events(bench.database, RECEIVERS, secret_of, now=lambda: clock[0])
    async with (
        listening(events, "127.0.0.1", 0, lambda: woken.append(time.monotonic())) as url,
        aiohttp.ClientSession() as session,
    ):
        for name in secrets:
            await world.control.register_webhook(name, f"{url}/events/{name}")
        yield Desk(bench, world, events, url, secrets, session, woken, clock)
        await world.control.clear_webhooks()


async def sent_credit(desk: Desk, tokens: Tokens) -> tuple[Lease, int]:
    """One credit that the payments service has accepted, seen once, and not to be looked at again for an hour."""
    lease = await desk.bench.run_over(tokens, [OWN])
    (id_,) = await desk.bench.propose(lease, "credit", [OWN])
    await desk.bench.send(lease)
    await desk.arrived("credit.accepted")
    await desk.bench.sweep()
    assert await desk.bench.states([id_]) == ["ACCEPTED"]
    return lease, id_


async def put_off(urls: Urls, ids: list[int]) -> None:
    """Nothing but an event brings these operations up within the hour."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(
            "UPDATE remit.operations SET due_at = clock_timestamp() + interval '1 hour' WHERE id = ANY (%s)",
            [ids],
        )


async def due(bench: Bench, id_: int) -> bool:
    (row,) = await bench.sql(
        "SELECT due_at <= clock_timestamp() AS due FROM remit.operations WHERE id = %s", id_
    )
    return bool(row["due"])


async def moves(bench: Bench, id_: int) -> list[str]:
    """The states that an operation went through, from the journal."""
    rows = await bench.sql(
        "SELECT data ->> 'to' AS state FROM remit.journal WHERE operation_id = %s AND kind LIKE 'operation.%%'"
        " AND data ->> 'from' <> data ->> 'to' ORDER BY id",
        id_,
    )
    return [row["state"] for row in rows]


ONCE = ["SENDING", "ACCEPTED", "SETTLED"]


async def test_an_event_has_the_system_of_record_asked_at_once(
    desk: Desk, tokens: Tokens, ledger_database: Urls
) -> None:
    """F49: put off for an hour, a credit is known to have settled as soon as its event came, by evidence of a read."""
    bench = desk.bench
    _, id_ = await sent_credit(desk, tokens)
    await put_off(ledger_database, [id_])
    await bench.sweep()
    assert await bench.states([id_]) == ["ACCEPTED"]
    await desk.world.control.advance(60)
    await desk.arrived("credit.accepted", "credit.settled")
    assert await due(bench, id_)
    assert await bench.states([id_]) == ["ACCEPTED"]
    await bench.sweep()
    assert await moves(bench, id_) == ONCE
    (evidence,) = await bench.sql("SELECT source FROM remit.evidence WHERE sight = 'effective'")
    assert evidence["source"] == "payments: credits by reference"


async def test_settled_twice_at_once_settles_once(desk: Desk, tokens: Tokens) -> None:
    """F49: two posts of one event on their way together are one row, one wake-up and one transition."""
    await desk.world.control.add_fault("payments", "duplicate", "credit.settled")
    _, id_ = await sent_credit(desk, tokens)
    await desk.world.control.advance(60)
    await desk.arrived("credit.accepted", "credit.settled")

    async def both_answered() -> bool:
        posts = await desk.world.control.posts()
        return [post["status"] for post in posts if post["type"] == "credit.settled"] == [200, 200]

    await eventually(both_answered)
    await desk.bench.sweep()
    await desk.bench.sweep()
    assert await moves(desk.bench, id_) == ONCE
    assert len(desk.woken) == 2
    assert [row["type"] for row in await desk.stored()] == ["credit.accepted", "credit.settled"]


async def test_two_events_of_one_settlement_settle_once(desk: Desk, tokens: Tokens) -> None:
    """A receiver that tells the same under two ids wakes twice and moves once; what is final is not even made due."""
    _, id_ = await sent_credit(desk, tokens)
    await desk.world.control.advance(60)
    await desk.arrived("credit.accepted", "credit.settled")
    await desk.bench.sweep()
    before = await desk.bench.operation(id_)
    assert await desk.post("credit.settled", desk.reference(), "another-id") == 200
    await desk.bench.sweep()
    assert await desk.bench.operation(id_) == before
    assert await moves(desk.bench, id_) == ONCE


async def test_settled_before_accepted_waits_for_the_answer(desk: Desk, tokens: Tokens, world: World) -> None:
    """The event of a settlement overtakes the answer to the call: it moves nothing, and nothing is lost by that."""
    bench = desk.bench
    await world.control.settings(settle_seconds=0)
    await world.control.add_fault("payments", "delay_after", CREDIT, seconds=0.5)
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    sending = asyncio.create_task(bench.send(lease))
    await desk.arrived("credit.accepted", "credit.settled")
    assert await bench.states([id_]) == ["SENDING"]
    assert [row["due"] for row in await desk.stored()] == [False, False]
    await sending
    await bench.sweep()
    assert await moves(bench, id_) == ONCE


async def test_out_of_order_events_never_move_back(desk: Desk, tokens: Tokens, world: World) -> None:
    """F49: 'settled' and then 'accepted' of the same credit: it settles once and stays settled."""
    await world.control.add_fault("payments", "out_of_order", "credit.accepted")
    bench = desk.bench
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.send(lease)
    await world.control.advance(60)
    await desk.arrived("credit.settled", "credit.accepted")
    assert [row["type"] for row in await desk.stored()] == ["credit.settled", "credit.accepted"]
    await bench.sweep()
    assert await moves(bench, id_) == ONCE
    before = await bench.operation(id_)
    assert await desk.post("credit.accepted", desk.reference(), "late") == 200
    await bench.sweep()
    assert await bench.operation(id_) == before


async def test_an_event_proves_nothing(desk: Desk, tokens: Tokens) -> None:
    """Properly signed and untrue: the operation stays what the system of record says it is."""
    bench = desk.bench
    _, id_ = await sent_credit(desk, tokens)
    before = await bench.operation(id_)
    for claim in ("credit.settled", "credit.withdrawn", "credit.reversed", "anything.at_all"):
        assert await desk.post(claim, desk.reference(), f"e-{claim}") == 200
        assert await due(bench, id_)
        await bench.sweep()
        after = await bench.operation(id_)
        assert (after["state"], after["version"]) == ("ACCEPTED", before["version"])
    assert await bench.cases() == []


async def test_a_replay_within_the_window_does_nothing(
    desk: Desk, tokens: Tokens, world: World, ledger_database: Urls
) -> None:
    """The very same post again is answered with success, stores nothing and wakes nobody."""
    await world.control.add_fault("payments", "replay_later", "credit.accepted", seconds=0.4)
    _, id_ = await sent_credit(desk, tokens)
    await put_off(ledger_database, [id_])

    async def replayed() -> bool:
        return [post["status"] for post in await world.control.posts()] == [200, 200]

    await eventually(replayed)
    assert len(await desk.stored()) == len(desk.woken) == 1
    assert not await due(desk.bench, id_)


async def test_a_replay_beyond_the_window_is_refused(desk: Desk) -> None:
    """Five minutes after it was signed a recorded post is worth nothing, whether its event was stored or not."""
    signed_at = desk.clock[0]
    assert await desk.post("credit.settled", "r", "known", at=signed_at) == 200
    desk.clock[0] += WINDOW_SECONDS + 1
    assert await desk.post("credit.settled", "r", "known", at=signed_at) == 401
    assert await desk.post("credit.settled", "r", "unknown", at=signed_at) == 401
    assert [row["id"] for row in await desk.stored()] == ["known"]
    assert await desk.refused() == {("payments", "time"): 2}


def forgeries(desk: Desk, body: bytes) -> dict[str, dict[str, str]]:
    """Headers that are not the receiver's, each in its own way."""
    at, secret = int(desk.clock[0]), desk.secrets["payments"]
    good = signed(secret, "e-1", at, body)
    mine = good["webhook-signature"]
    return {
        "other secret": signed(new_secret(), "e-1", at, body),
        "other receiver": signed(desk.secrets["mail"], "e-1", at, body),
        "other body": signed(secret, "e-1", at, body + b" "),
        "other id": {**signed(secret, "e-2", at, body), "webhook-id": "e-1"},
        "other time": {**signed(secret, "e-1", at - 1, body), "webhook-timestamp": str(at)},
        "other version": {**good, "webhook-signature": mine.replace("v1,", "v2,")},
        "no version": {**good, "webhook-signature": mine.removeprefix("v1,")},
        "cut": {**good, "webhook-signature": mine[:-2]},
        "empty": {**good, "webhook-signature": "v1,"},
        "not ASCII": {**good, "webhook-signature": "v1,ä"},
        "too many": {**good, "webhook-signature": " ".join(["v1,AAAA"] * 10 + [mine])},
        "no signature": {name: value for name, value in good.items() if name != "webhook-signature"},
        "no id": {name: value for name, value in good.items() if name != "webhook-id"},
        "no headers": {},
    }


async def test_a_forged_event_is_refused_and_leaves_a_number(
    desk: Desk, tokens: Tokens, ledger_database: Urls
) -> None:
    """401, no row, no wake-up, nothing due: only how many were refused is kept, and that is no write of its own."""
    _, id_ = await sent_credit(desk, tokens)
    await put_off(ledger_database, [id_])
    rows, statements = await desk.stored(), desk.bench.database.statements
    body = json.dumps({**GOOD, "reference": desk.reference()}).encode()
    forged = forgeries(desk, body)
    answered = {how: await desk.raw("payments", body, headers) for how, headers in forged.items()}
    assert answered == dict.fromkeys(forged, 401)
    assert desk.bench.database.statements == statements
    assert await desk.refused() == {("payments", "signature"): len(forged)}
    assert await desk.stored() == rows
    assert len(desk.woken) == 1
    assert not await due(desk.bench, id_)


async def test_a_forgery_by_the_network_settles_by_the_sweep(
    desk: Desk, tokens: Tokens, world: World
) -> None:
    """Events forged or lost on their way cost time and nothing else: the next look finds what happened."""
    await world.control.add_fault("payments", "forged", "credit.settled")
    lease, id_ = await sent_credit(desk, tokens)
    await world.control.advance(60)

    async def refused() -> bool:
        return [post["status"] for post in await world.control.posts()] == [200, 401]

    await eventually(refused)
    await desk.bench.settled(lease, [id_])
    assert await moves(desk.bench, id_) == ONCE


async def test_a_signature_holds_for_five_minutes_either_way(desk: Desk) -> None:
    """Too old and too far ahead are refused alike, and clocks may differ by less."""
    whole = desk.clock[0] = float(int(desk.clock[0]))
    found = [
        await desk.post("credit.settled", "r", f"e{offset}", at=whole + offset)
        for offset in (-WINDOW_SECONDS - 1, -WINDOW_SECONDS, WINDOW_SECONDS, WINDOW_SECONDS + 1)
    ]
    assert found == [401, 200, 200, 401]
    assert [row["id"] for row in await desk.stored()] == [f"e{-WINDOW_SECONDS}", f"e{WINDOW_SECONDS}"]


async def test_a_time_that_is_none_is_refused(desk: Desk) -> None:
    """Even under the receiver's own signature."""
    body = json.dumps(GOOD).encode()
    for stamp in ("", "now", "-1", "1e9", "\u0663", "9" * 13, "12.5", f"{int(desk.clock[0])} "):
        nonsense: Any = stamp
        headers = signed(desk.secrets["payments"], "e-1", nonsense, body)
        assert await desk.events.take("payments", headers, body) is Outcome.TIME
    assert await desk.stored() == []


async def test_two_signatures_in_one_header_allow_a_change_of_secrets(desk: Desk) -> None:
    """The convention's way of changing a secret: signed with the old and the new, either of which will do."""
    body = json.dumps(GOOD).encode()
    old, own = (
        signed(secret, "e-1", int(desk.clock[0]), body)["webhook-signature"]
        for secret in (new_secret(), desk.secrets["payments"])
    )
    headers = {"webhook-id": "e-1", "webhook-timestamp": str(int(desk.clock[0]))}
    assert await desk.raw("payments", body, {**headers, "webhook-signature": f"{old} {own}"}) == 200


NO_EVENTS = (
    *(json.dumps({name: value for name, value in GOOD.items() if name != left}) for left in GOOD),
    *(
        json.dumps({**GOOD, **wrong})
        for wrong in (
            {"more": 1},
            {"id": "e-2"},
            {"id": 1},
            {"type": "Credit Settled"},
            {"type": "x" * 101},
            {"type": None},
            {"reference": ""},
            {"reference": 5},
            {"reference": "a\x00b"},
            {"reference": "r" * 4_001},
            {"at": "yesterday"},
            {"at": "2026-11-30T12:00:00"},
            {"at": 1764504000},
            {"at": "0001-01-01T00:00:00+14:00"},
            {"at": "9999-12-31T23:59:59-14:00"},
        )
    ),
    *("", "[]", "null", "{", "\xff", '{"id": "\\ud800"}', "[" * 2_000),
)
"""Bodies that are not exactly an event."""


async def test_a_body_that_is_no_event_is_refused(desk: Desk) -> None:
    """Properly signed, and still nothing but a number is kept of it."""
    for body in NO_EVENTS:
        raw = body.encode("latin-1")
        headers = signed(desk.secrets["payments"], "e-1", int(desk.clock[0]), raw)
        assert (body[:80], await desk.raw("payments", raw, headers)) == (body[:80], 400)
    assert await desk.stored() == []
    assert await desk.refused() == {("payments", "body"): len(NO_EVENTS)}


async def test_the_largest_event_fits_and_one_byte_more_does_not(desk: Desk) -> None:
    """The limit is on what is read, before any of it is judged."""
    for more, status in ((0, 200), (1, 413), (LARGEST, 413)):
        raw = json.dumps(GOOD).encode().ljust(LARGEST + more)
        assert (
            await desk.raw("payments", raw, signed(desk.secrets["payments"], "e-1", int(desk.clock[0]), raw))
            == status
        )
    assert await desk.refused() == {("payments", "size"): 2}
    longest = "\U0001f600" * 4_000
    assert await desk.post("credit.settled", longest, "e-2") == 200
    assert [row["reference"] for row in await desk.stored()] == ["r", longest]


async def test_only_known_receivers_with_a_secret_are_heard(desk: Desk) -> None:
    """A name that is no receiver leaves not even a number; one without a secret is asked to try again."""
    assert await desk.post("x.y", "r", receiver="nobody", secret=new_secret()) == 404
    assert await desk.post("x.y", "r", receiver="accounts", secret=new_secret()) == 503
    async with desk.session.get(f"{desk.url}/events/payments") as got:
        assert got.status == 405
    assert await desk.refused() == {("accounts", "secret"): 1}
    assert await desk.stored() == []


async def test_a_secret_is_resolved_at_each_post(desk: Desk) -> None:
    """Changed, it holds from the next post on; one that is too short to keep anybody out lets nobody in."""
    old = desk.secrets["payments"]
    desk.secrets["payments"] = new_secret()
    assert await desk.post("x.y", "r", "e-1", secret=old) == 401
    assert await desk.post("x.y", "r", "e-1") == 200
    for empty in (PREFIX, PREFIX + "AAAA", "no base64!"):
        desk.secrets["payments"] = empty
        assert await desk.post("x.y", "r", "e-2", secret=old) == 503


async def test_an_event_of_another_receiver_may_have_the_same_id(desk: Desk) -> None:
    """Ids are each receiver's own."""
    for receiver in ("payments", "mail"):
        assert await desk.post("x.y", "r", "same", receiver=receiver) == 200
    assert await desk.post("x.z", "other", "same") == 200
    assert [(row["receiver"], row["type"]) for row in await desk.stored()] == [
        ("payments", "x.y"),
        ("mail", "x.y"),
    ]


async def test_many_posts_of_one_event_at_once_are_one_row(desk: Desk, tokens: Tokens) -> None:
    """F49: of twenty on their way together one is stored and nineteen are known."""
    _, id_ = await sent_credit(desk, tokens)
    outcomes = await asyncio.gather(
        *(desk.post("credit.settled", desk.reference(), "many") for _ in range(20))
    )
    assert outcomes == [200] * 20
    assert [row["id"] for row in await desk.stored()].count("many") == 1
    assert len(desk.woken) == 2
    rows = await desk.bench.sql("SELECT operation_id, data FROM remit.journal WHERE kind = 'events.added'")
    assert [row["data"]["id"] for row in rows].count("many") == 1
    assert {row["operation_id"] for row in rows} == {id_}


PATHS = {
    "PENDING": (),
    "SENDING": ("SENDING",),
    "UNKNOWN": ("SENDING", "UNKNOWN"),
    "ACCEPTED": ("SENDING", "ACCEPTED"),
    "SETTLED": ("SENDING", "SETTLED"),
    "CLOSED": ("CLOSED",),
}


@pytest.mark.parametrize("state", PATHS)
async def test_only_what_is_awaited_is_made_due(
    desk: Desk, tokens: Tokens, ledger_database: Urls, state: str
) -> None:
    """UNKNOWN and ACCEPTED have the system of record asked; in any other state an event is kept and changes nothing."""
    lease = await desk.bench.run_over(tokens, [OWN])
    (id_,) = await desk.bench.propose(lease, "credit", [OWN])
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        for step in PATHS[state]:
            await owner.execute(
                "UPDATE remit.operations SET state = %(to)s, version = version + 1, doubt = %(to)s = 'UNKNOWN',"
                " closed = CASE %(to)s WHEN 'CLOSED' THEN 'cancelled' END WHERE id = %(id)s",
                {"to": step, "id": id_},
            )
    if state not in ("SETTLED", "CLOSED"):
        await put_off(ledger_database, [id_])
    before = await desk.bench.operation(id_)
    assert await desk.post("credit.settled", desk.reference()) == 200
    after = await desk.bench.operation(id_)
    awaited = state in ("UNKNOWN", "ACCEPTED")
    assert {**after, "due_at": None} == {**before, "due_at": None}
    assert (after["due_at"] != before["due_at"]) == awaited
    assert [(row["operation_id"], row["due"]) for row in await desk.stored()] == [(id_, awaited)]
    unmatched = await desk.events.unmatched()
    assert [row["state"] for row in unmatched] == ([state] if state in ("PENDING", "CLOSED") else [])


async def test_what_the_ledger_does_not_know_is_kept_and_listed(desk: Desk, world: World) -> None:
    """It may be somebody else's effect: an employee's credit, one without a reference, one of another installation."""
    order = {"customer": "c-104", "amount_minor": 500, "currency": "USD", "reason": "goodwill"}
    await world.ask("payments", "POST", "/credits", {**order, "reference": "ticket-7"}, key="k1")
    await world.ask("payments", "POST", "/credits", order, key="k2")
    elsewhere = reference("remit-other", operation_key(PURPOSE, "credit", OWN))
    assert await desk.post("credit.settled", elsewhere, "e-9") == 200
    await desk.arrived("credit.accepted", "credit.accepted", "credit.settled")
    found = await desk.events.unmatched()
    assert {(row["type"], row["reference"]) for row in found} == {
        ("credit.accepted", "ticket-7"),
        ("credit.accepted", None),
        ("credit.settled", elsewhere),
    }
    assert {(row["receiver"], row["key"], row["state"]) for row in found} == {("payments", None, None)}
    assert len(await desk.events.unmatched(limit=2)) == 2


async def test_a_withdrawal_of_ours_is_nothing_to_list(desk: Desk, tokens: Tokens, world: World) -> None:
    """The event of it closes the operation by evidence; a late event about it is explained by that."""
    _, id_ = await sent_credit(desk, tokens)
    found = await world.ask("payments", "POST", "/credits/search", {"references": [desk.reference()]})
    await world.ask("payments", "POST", f"/credits/{found.body['credits'][0]['id']}/withdraw")
    await desk.arrived("credit.accepted", "credit.withdrawn")
    await desk.bench.sweep()
    row = await desk.bench.operation(id_)
    assert (row["state"], row["closed"]) == ("CLOSED", "withdrawn")
    assert await desk.post("credit.accepted", desk.reference(), "late") == 200
    assert await desk.events.unmatched() == []


async def test_an_event_during_a_look_has_the_next_one_at_once(
    desk: Desk, tokens: Tokens, ledger_database: Urls
) -> None:
    """A look that began before the event read the older truth: what it writes does not put the next look off."""
    bench = desk.bench
    _, id_ = await sent_credit(desk, tokens)

    async def overtaken(point: FaultPoint) -> None:
        if point is FaultPoint.BEFORE_SETTLE and len(await desk.stored()) == 1:
            await desk.world.control.advance(60)
            await desk.arrived("credit.accepted", "credit.settled")

    bench.database.reach = overtaken
    runner = Runner(bench.ledger, bench.catalogue, bench.transport)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.operations SET checks = 9, due_at = clock_timestamp()")
    assert await runner.look(None) == 1
    assert await bench.states([id_]) == ["ACCEPTED"]
    assert await due(bench, id_)
    assert await runner.look(None) == 1
    assert await moves(bench, id_) == ONCE


async def test_a_campaign_under_every_fault_of_events_settles_each_credit_once(
    desk: Desk, tokens: Tokens, world: World, affected: list[str]
) -> None:
    """24 credits whose events are doubled, reversed, replayed, forged and lost: each state moves forward only, once."""
    for kind, skip in (
        ("duplicate", 0),
        ("out_of_order", 3),
        ("replay_later", 6),
        ("forged", 9),
        ("lost", 12),
    ):
        await world.control.add_fault("payments", kind, times=12, skip=skip, seconds=0.1)
    bench = desk.bench
    lease = await bench.run_over(tokens, affected)
    ids = await bench.propose(lease, "credit", affected)
    await bench.send(lease)
    await world.control.advance(60)
    await bench.settled(lease, ids)
    hits = {fault["kind"]: fault["hits"] for fault in await world.control.faults()}
    assert hits == dict.fromkeys(hits, 12)

    async def all_told() -> bool:
        return all(post["outcome"] is not None for post in await world.control.posts())

    await eventually(all_told)
    await bench.sweep()
    assert [await moves(bench, id_) for id_ in ids] == [ONCE] * 24
    assert check(world.home, "outage-0611") == []
    assert await bench.cases() == []
    assert await desk.events.unmatched() == []


async def test_an_event_that_cannot_be_stored_is_asked_for_again(desk: Desk, ledger_database: Urls) -> None:
    """503 where the database is away, and the same post is stored where it is not."""
    async with open_pool(ledger_database.app_url) as pool:
        away = Events(Database(pool), RECEIVERS, desk.secrets.__getitem__)
    body = json.dumps(GOOD).encode()
    headers = signed(desk.secrets["payments"], "e-1", int(desk.clock[0]), body)
    async with (
        listening(away, "127.0.0.1", 0, lambda: None) as url,
        desk.session.post(f"{url}/events/payments", data=body, headers=headers) as got,
    ):
        assert got.status == 503
    assert await desk.stored() == []
    assert await desk.raw("payments", body, headers) == 200


async def test_a_body_that_does_not_come_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that stalls is told to post again, and its connection is free."""
    monkeypatch.setattr("remit.console.serve._READ_SECONDS", 0.1)
    host, port = desk.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /events/payments HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
    answer = await asyncio.wait_for(reader.read(64), 5)
    assert answer.startswith(b"HTTP/1.1 408 ")
    writer.close()
    await writer.wait_closed()


async def test_killed_between_store_and_answer_an_event_is_one_row(
    desk: Desk, tokens: Tokens, world: World, ledger_database: Urls
) -> None:
    """SIGKILL after the commit: the company gets no answer and posts again, and the next process knows the event."""
    order = Order(ledger_database.app_url, desk.secrets)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.checkpoints.serve_process", order.text()),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    await world.control.register_webhook("payments", f"{url}/events/payments")
    lease = await desk.bench.run_over(tokens, [OWN])
    await desk.bench.propose(lease, "credit", [OWN])
    await desk.bench.send(lease)
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    assert len(await desk.stored()) == 1

    async def told() -> bool:
        return [post["outcome"] for post in await world.control.posts()] == ["delivered"]

    async with listening(desk.events, "127.0.0.1", int(url.rpartition(":")[2]), lambda: None):
        await eventually(told)
    (post,) = await world.control.posts()
    assert post["tries"] >= 2
    assert len(await desk.stored()) == 1
    assert len(await desk.bench.sql("SELECT id FROM remit.journal WHERE kind = 'events.added'")) == 1
