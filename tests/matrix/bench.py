"""Runs rows of the matrix, several at once, and judges each by the company's own records against the ledger."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.sandbox import dump
from remit.sandbox.world import CUSTOMERS
from remit.sandbox.worlds import World, running_world
from remit.tools.actions import reference
from tests.fixtures import Bench, Tokens, mint_tokens, opened_bench
from tests.matrix.company import arrange, before, count, matrix_catalogue
from tests.matrix.rows import Kind, Row, Signal
from tests.matrix.story import Order, carried_on
from tests.matrix.workers import Forked, Workers, forking

AT_ONCE = 6
"""Rows in flight: most of a row's time is waiting, and two processes of a row are never busy at once."""

_SIGNALS = {
    Signal.KILLED_BEFORE: signal.SIGKILL,
    Signal.KILLED_AFTER: signal.SIGKILL,
    Signal.SUSPENDED: signal.SIGSTOP,
}

_BRIEF = 1.5
"""Seconds of lease and of the window to send in of a worker that is going to be suspended."""

_ROWS = """
SELECT s.id, s.revision, s.state, s.closed, s.fact, s.version, s.attempts, s.tool,
       array(SELECT c.code FROM remit.cases c WHERE c.operation_id = s.id AND c.closed_at IS NULL) AS cases
FROM remit.standing s WHERE s.purpose = %s ORDER BY s.revision"""


@dataclass
class Tally:
    """What all rows came to, for people."""

    rows: int = 0
    kills: int = 0
    suspensions: int = 0
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        told = [("rows", self.rows), ("kills", self.kills), ("suspensions", self.suspensions)]
        told += [(name, number) for name, number in sorted(self.outcomes.items())]
        told += [("wrong", len(self.wrong))]
        return [f"{name:<40}{number:>8}" for name, number in told]


@dataclass
class Matrix:
    """A ledger and a company that all rows share; each row has a purpose, a run and a key of its own."""

    bench: Bench
    world: World
    tokens: Tokens
    workers: Workers
    app_url: str
    tally: Tally = field(default_factory=Tally)

    async def run(self, rows: Sequence[Row]) -> Tally:
        """All rows, `AT_ONCE` at a time. Rows that are wrong are told of in the tally, and keep no other from running."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, row: Row) -> None:
            async with places:
                try:
                    await self.row(number, row)
                except (AssertionError, TimeoutError) as error:
                    self.tally.wrong.append(f"{row}: {type(error).__name__} {error}")

        async with asyncio.TaskGroup() as group:
            for number, row in enumerate(rows, start=1):
                group.create_task(one(number, row))
        return self.tally

    async def row(self, number: int, row: Row) -> None:
        """A worker meets its signal, another one carries on, and the records are compared with the ledger."""
        order = await self._order(number, row)
        suspends = row.signal is Signal.SUSPENDED
        victim = await self.workers.run(order, or_stop=suspends)
        assert victim.stopped if suspends else victim.code == -signal.SIGKILL, f"it met no signal: {victim}"
        successor = await self.workers.run(carried_on(order))
        assert successor.code == 0, f"nobody could carry on: {successor}"
        self.tally.rows += 1
        if suspends:
            self.tally.suspensions += 1
            await self._wake(order, victim)
        else:
            self.tally.kills += 1
        self._judge(row, await self._standing(order), self._effects(row.kind, order))

    async def passed(self, row: Row, number: int) -> set[str]:
        """The points that a worker passes whom nothing happens to, after the row was judged like any other."""
        order = carried_on(await self._order(number, row))
        worker = await self.workers.run(order)
        assert worker.code == 0, f"it did not come to its end: {worker}"
        self._judge(row, await self._standing(order), self._effects(row.kind, order))
        return set(worker.points)

    async def _order(self, number: int, row: Row) -> Order:
        customer, purpose = CUSTOMERS[number % len(CUSTOMERS)], f"row-{number}"
        arguments = await before(self.world, row.kind, purpose, customer)
        await arrange(self.world, row.kind, row.weather, customer, arguments)
        brief = {"lease_seconds": _BRIEF, "send_seconds": _BRIEF} if row.signal is Signal.SUSPENDED else {}
        if row.act == "heartbeat":
            brief = {"lease_seconds": _BRIEF}
        return Order(
            app_url=self.app_url,
            home=str(self.world.home),
            urls=self.world.urls,
            credentials=self.world.credentials,
            tokens={name: getattr(self.tokens, name) for name in self.tokens.__dataclass_fields__},
            purpose=purpose,
            kind=row.kind.value,
            subject=f"customer:{customer}",
            arguments=arguments,
            trouble=row.trouble.value,
            point=row.point.value,
            signal=_SIGNALS[row.signal].value,
            **brief,
        )

    async def _standing(self, order: Order) -> list[dict[str, Any]]:
        return await self.bench.sql(_ROWS, order.purpose)

    def _effects(self, kind: Kind, order: Order) -> int:
        return count(dump(self.world.home), kind, reference(self.bench.ledger.installation, order.key))

    async def _wake(self, order: Order, victim: Forked) -> None:
        """Awake, it comes to its end by itself; what was settled is not touched, and nothing is sent a second time."""
        kind = Kind(order.kind)
        rows, effects = await self._standing(order), self._effects(kind, order)
        victim.wake()
        await self.workers.ended(victim)
        assert victim.code == 0, f"awake, it did not come to its end: {victim}"
        after = await self._standing(order)
        assert self._effects(kind, order) == effects, "awake, it had an effect"
        if rows[-1]["state"] == "SETTLED":
            assert after == rows, f"awake, it moved something: {rows} {after}"

    def _judge(self, row: Row, operations: Sequence[dict[str, Any]], effects: int) -> None:
        """Exactly one effect that the ledger knows as completed; or, where nobody can know, a case and no second one."""
        *earlier, live = operations
        assert all(o["state"] == "CLOSED" for o in earlier), f"two revisions live: {operations}"
        assert effects <= 1, f"{effects} effects: {operations}"
        fact, cases = live["fact"], live["cases"]
        if row.signal is Signal.SUSPENDED and cases == ["sender_alive"]:
            contract = self.bench.catalogue.write(live["tool"]).contract
            assert not contract.receiver_enforces_key, f"an enforced key is enough to go on: {operations}"
            assert (fact, effects) in {("UNKNOWN", 0), ("NOT_SENT", 0)}, f"{effects} effects: {operations}"
            self.tally.outcomes["no effect, with a case: an earlier sender lived"] += 1
            return
        assert (fact, effects, cases) == ("COMPLETED", 1, []), f"{effects} effects: {operations}"
        self.tally.outcomes["one effect, settled"] += 1


@asynccontextmanager
async def opened_matrix(app_url: str, home: Path) -> AsyncIterator[Matrix]:
    """A matrix over a migrated database and a company in a process of its own."""
    async with (
        running_world(home) as world,
        opened_bench(app_url, home, world.urls, world.credentials, catalogue=matrix_catalogue()) as bench,
        forking() as workers,
    ):
        await world.control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        yield Matrix(bench, world, await mint_tokens(bench.people), workers, app_url)
