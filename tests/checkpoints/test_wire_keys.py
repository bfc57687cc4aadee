"""What a receiver sees of our keys: one for each operation, the same over its attempts, never a new one too early."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.actions import operation_key
from remit.tools.doors import Met
from remit.tools.mandates import Step
from remit.tools.ports import FaultPoint, Lease
from tests.fixtures import STEPS, Bench, Tokens, eventually, mandate_over, mint_tokens, opened_bench

OWN = "customer:c-104"
CREDIT, LEGACY = "POST /credits", "POST /legacy/credits"


class Queue:
    """Stands before a receiver. It keeps back the first `hold` requests that carry a key, and passes all others on."""

    def __init__(self, url: str, hold: int) -> None:
        self._upstream = urlsplit(url)
        self._hold = hold
        self.keys: list[str] = []
        self.held: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        request = head + await reader.readexactly(int(length[1]) if length else 0)
        key = re.search(rb"(?i)\r\nidempotency-key: ([^\r]+)", head)
        if key is not None:
            self.keys.append(key[1].decode())
        if key is not None and len(self.held) < self._hold:
            self.held.append(request)
            await reader.read()
        else:
            writer.write(await self.passed_on(request))
        writer.close()

    async def passed_on(self, request: bytes) -> bytes:
        """The whole answer of the receiver to one request."""
        assert self._upstream.port is not None
        reader, writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        answer = await reader.read()
        writer.close()
        return answer


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


async def queued(
    stack: AsyncExitStack, urls: Urls, world: World, home: Path, hold: int
) -> tuple[Bench, Queue]:
    """A bench whose way to payments leads through a queue that keeps so many requests back."""
    queue = Queue(world.urls["payments"], hold)
    server = await asyncio.start_server(queue.serve, "127.0.0.1", 0)
    stack.callback(server.close)
    queue.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    through = {**world.urls, "payments": queue.url}
    bench = await stack.enter_async_context(opened_bench(urls.app_url, home, through, world.credentials))
    return bench, queue


def credits_of(bench: Bench) -> list[dict[str, Any]]:
    return [credit for credit in dump(bench.home)["credits"] if credit["customer"] == "c-104"]


async def test_a_first_request_that_lands_after_the_second_is_one_effect(
    stack: AsyncExitStack, ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """Held in a queue, looked for and absent, sent again, settled; then the first lands: the same key, one credit."""
    bench, queue = await queued(stack, ledger_database, world, tmp_path, hold=1)
    lease = await bench.run_over(await mint_tokens(bench.people), [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.send(lease)
    assert (await bench.operation(id_))["fact"] == "UNKNOWN"
    await bench.settled(lease, [id_])
    sights = {row["sight"] for row in await bench.sql("SELECT sight FROM remit.evidence")}
    assert "absent" in sights
    (late,) = queue.held
    answer = await queue.passed_on(late)
    assert answer.startswith(b"HTTP/1.1 202"), answer
    assert b"Idempotency-Replayed: true" in answer
    assert len(set(queue.keys)) == 1 < len(queue.keys)
    assert len(credits_of(bench)) == 1
    await bench.sweep()
    assert (await bench.states([id_]), await bench.cases()) == (["SETTLED"], [])


async def test_all_attempts_carry_our_key_and_no_library_adds_one(
    stack: AsyncExitStack, ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """Three attempts, three requests, one key: it is the operation's, and what leaves is what the ledger says (F44)."""
    bench, queue = await queued(stack, ledger_database, world, tmp_path, hold=2)
    lease = await bench.run_over(await mint_tokens(bench.people), [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.settled(lease, [id_])
    attempts = await bench.database.rows("attempts", id=id_)
    assert queue.keys == [f'"{attempt["wire_key"]}"' for attempt in attempts]
    assert (len(queue.keys), len(set(queue.keys))) == (3, 1)
    assert len(credits_of(bench)) == 1


async def test_each_operation_has_a_key_of_its_own(bench: Bench, tokens: Tokens) -> None:
    """Credit, note and message of one customer never share a key, so none is answered with another's result (F42)."""
    lease = await bench.run_over(tokens, [OWN])
    ids = [
        id_ for step in ("credit", "annotate", "notify") for id_ in await bench.propose(lease, step, [OWN])
    ]
    await bench.settled(lease, ids)
    keys = await bench.sql("SELECT DISTINCT wire_key FROM remit.attempts")
    assert len(keys) == 3


async def test_a_second_named_credit_runs_and_a_repeat_of_the_first_does_not(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """Same customer, day and amount: the step makes the difference. A retry of the first collapses into it (F43)."""
    again = Step(name="credit_again", effect="credit.issue", exactly=STEPS[0].exactly)
    mandate = mandate_over(steps=(*STEPS, again))
    lease = await bench.run_over(tokens, [OWN], mandate)
    await world.control.add_fault("payments", "reply_lost", CREDIT)
    (first,) = await bench.propose(lease, "credit", [OWN], mandate=mandate)
    await bench.settled(lease, [first])
    assert await bench.propose(lease, "credit", [OWN], mandate=mandate) == []
    # Whoever judges the second sees the first in its snapshot.
    seen = {"exists": True, "others": 1}
    said = {"amount_minor": 1000, "currency": "USD"}
    (second,) = await bench.propose(
        lease, "credit_again", [OWN], mandate=mandate, tool="issue_credit", premises=seen, said=said
    )
    await bench.settled(lease, [second])
    assert [credit["amount_minor"] for credit in credits_of(bench)] == [1000, 1000]


async def with_faults(
    stack: AsyncExitStack, urls: Urls, world: World, home: Path, *faults: tuple[str, str]
) -> tuple[Bench, Tokens, int]:
    """A bench after one attempt by the older path, which met these faults between its claim and its end."""

    left = list(faults)

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.AFTER_CLAIM:
            while left:
                kind, route = left.pop(0)
                await world.control.add_fault("payments", kind, route, seconds=1.3)

    opened = opened_bench(urls.app_url, home, world.urls, world.credentials, reach=reach)
    bench = await stack.enter_async_context(opened)
    tokens = await mint_tokens(bench.people)
    lease = await bench.run_over(tokens, [OWN])
    (first,) = await bench.propose(lease, "credit", [OWN], tool="issue_credit_legacy")
    await bench.send(lease)
    return bench, tokens, first


async def run_of(bench: Bench, id_: int) -> Lease:
    (row,) = await bench.sql(
        "SELECT l.run_id, l.token, l.worker FROM remit.leases l JOIN remit.operations o USING (run_id) WHERE o.id = %s",
        id_,
    )
    return Lease(**row)


async def stuck(bench: Bench) -> bool:
    """Whether a fallback may take the key over."""
    row = await bench.database.row("key_standing", keys=[operation_key("outage-0611", "credit", OWN)])
    assert row is not None
    return bool(row["stuck"])


async def test_another_tool_follows_when_not_one_byte_was_written(
    stack: AsyncExitStack, ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """The only attempt met a refused connection: a new revision goes by the other path, and there is one credit."""
    bench, tokens, first = await with_faults(stack, ledger_database, world, tmp_path, ("refuse", "*"))
    lease = await run_of(bench, first)
    assert [a["seen"] for a in await bench.database.rows("attempts", id=first)] == ["not_written"]
    assert await stuck(bench)
    await bench.people.cancel_holds(tokens.support_manager, [first])
    (second,) = await bench.propose(lease, "credit", [OWN])
    await world.control.clear_faults()
    await bench.settled(lease, [second])
    row = await bench.operation(second)
    assert (row["revision"], row["tool"]) == (2, "issue_credit")
    assert [credit["path"] for credit in credits_of(bench)] == ["credits"]


async def test_no_other_tool_follows_what_timed_out_though_its_absence_is_proved(
    stack: AsyncExitStack, ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """What was written may still land, and another tool brings no common key: the new revision is denied by name."""
    faults = (("delay", LEGACY), ("error_before", LEGACY))
    bench, tokens, first = await with_faults(stack, ledger_database, world, tmp_path, *faults)
    lease = await run_of(bench, first)
    assert [a["seen"] for a in await bench.database.rows("attempts", id=first)] == ["unknown"]
    assert await bench.propose(lease, "credit", [OWN]) == [], "the key is live while nobody knows"

    async def proved_absent() -> bool:
        await bench.sweep()
        return await bench.states([first]) == ["PENDING"]

    await eventually(proved_absent)
    await bench.ledger.note("payments", Met.GONE, "a test")
    assert not await stuck(bench), "a closed door is no proof about what was sent before it closed"
    await bench.people.cancel_holds(tokens.support_manager, [first])
    (second,) = await bench.propose(lease, "credit", [OWN])
    row = await bench.operation(second)
    assert (row["closed"], row["closed_detail"]) == ("denied", "other_tool_may_act")
    assert credits_of(bench) == []
