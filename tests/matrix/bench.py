"""Runs rows of the matrix, several at once, and judges each by the company's own records against the ledger."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.sandbox import dump
from remit.sandbox.world import CUSTOMERS
from remit.sandbox.worlds import World, running_world
from remit.tools.actions import reference
from tests.fixtures import Bench, Tokens, mint_tokens, opened_bench
from tests.matrix.company import arrange, before, count, matrix_catalogue
from tests.matrix.order import Order, carried_on
from tests.matrix.rows import OWN_LEDGER, Kind, Party, Row, Signal, Trouble
from tests.matrix.workers import Forked, Workers, forking

if TYPE_CHECKING:
    from tests.conftest import Clones

AT_ONCE = 8
"""Rows in flight: most of a row's time is waiting, and two processes of a row are never busy at once."""

_SIGNALS = {
    Signal.KILLED_BEFORE: signal.SIGKILL,
    Signal.KILLED_AFTER: signal.SIGKILL,
    Signal.SUSPENDED: signal.SIGSTOP,
}

_BRIEF = 1.5
"""Seconds of lease and of the window to send in of a worker that is going to be suspended."""

_ROWS = """
SELECT s.id, s.key, s.revision, s.state, s.closed, s.fact, s.version, s.attempts, s.tool,
       array(SELECT c.code FROM remit.cases c WHERE c.operation_id = s.id AND c.closed_at IS NULL) AS cases
FROM remit.standing s WHERE s.purpose = %s ORDER BY s.key, s.revision"""


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
    clones: Clones
    tally: Tally = field(default_factory=Tally)

    async def run(self, parties: Sequence[Party]) -> Tally:
        """All of them, `AT_ONCE` at a time. What is wrong is told of in the tally, and keeps no other from running."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, party: Party) -> None:
            async with places:
                try:
                    async with self._ledger_for(number, party) as matrix:
                        await matrix._party(number, party)
                except (AssertionError, TimeoutError) as error:
                    named = "; ".join(str(row) for row in party)
                    self.tally.wrong.append(f"{named}: {type(error).__name__} {error}")

        async with asyncio.TaskGroup() as group:
            for number, party in enumerate(parties, start=1):
                group.create_task(one(number, party))
        return self.tally

    async def _party(self, number: int, party: Party) -> None:
        """A worker meets its signal, another one carries on, and the records are compared with the ledger."""
        order = await self._order(number, party)
        suspends = party[0].signal is Signal.SUSPENDED
        victim = await self.workers.run(order, or_stop=suspends)
        assert victim.stopped if suspends else victim.code == -signal.SIGKILL, f"it met no signal: {victim}"
        successor = await self.workers.run(carried_on(order))
        assert successor.code == 0, f"nobody could carry on: {await self._standing(order)}"
        if suspends:
            self.tally.suspensions += 1
            await self._wake(order, victim)
        else:
            self.tally.kills += 1
        await self._judge(party, order)

    async def undisturbed(self, number: int, party: Party) -> set[str]:
        """The points that a worker passes whom nothing happens to; its rows are judged like any other."""
        async with self._ledger_for(number, party) as matrix:
            order = await matrix._order(number, party)
            worker = await self.workers.run(replace(order, point=""))
            assert worker.code == 0, f"{order.trouble}: no end, {await matrix._standing(order)}"
            await matrix._judge(party, order)
        return set(worker.points)

    @asynccontextmanager
    async def _ledger_for(self, number: int, party: Party) -> AsyncIterator[Matrix]:
        """This matrix, or where a row concerns a whole ledger, one over a ledger and a home of its own."""
        if party[0].trouble not in OWN_LEDGER:
            yield self
            return
        name, urls = await asyncio.to_thread(self.clones.take)
        try:
            async with opened_ledger(urls.app_url, self.bench.home / f"own-{number}", self.world) as bench:
                tokens = await mint_tokens(bench.people)
                yield replace(self, bench=bench, tokens=tokens, app_url=urls.app_url)
        finally:
            self.clones.drop(name)

    async def _order(self, number: int, party: Party) -> Order:
        customer, purpose, first = CUSTOMERS[number % len(CUSTOMERS)], f"row-{number}", party[0]
        if first.trouble is Trouble.PROBED:
            purpose = f"probe-{purpose}"
        wanted = {row.kind.value: await before(self.world, row.kind, purpose, customer) for row in party}
        order = Order(
            app_url=self.app_url,
            home=str(self.bench.home),
            urls=self.world.urls,
            credentials=self.world.credentials,
            tokens={name: getattr(self.tokens, name) for name in self.tokens.__dataclass_fields__},
            purpose=purpose,
            subject=f"customer:{customer}",
            wanted=wanted,
            trouble=first.trouble.value,
            point=first.point.value,
            armed_by=first.armed_by or "",
            signal=_SIGNALS[first.signal].value,
        )
        for row in party:
            sought = reference(self.bench.ledger.installation, order.key(row.kind))
            lies = row.trouble is Trouble.CONTESTED
            await arrange(self.world, row.kind, row.weather, sought, lies=lies)
        if first.act == "heartbeat":
            return replace(order, lease_seconds=_BRIEF)
        if first.signal is Signal.SUSPENDED:
            return replace(order, lease_seconds=_BRIEF, send_seconds=_BRIEF)
        return order

    async def _standing(self, order: Order) -> list[dict[str, Any]]:
        return await self.bench.sql(_ROWS, order.purpose)

    def _effects(self, order: Order) -> dict[Kind, int]:
        records, installation = dump(self.world.home), self.bench.ledger.installation
        return {kind: count(records, kind, reference(installation, order.key(kind))) for kind in order.kinds}

    async def _wake(self, order: Order, victim: Forked) -> None:
        """Awake, it comes to its end by itself; what was settled is not touched, and nothing is sent a second time."""
        rows, effects = await self._standing(order), self._effects(order)
        victim.wake()
        await self.workers.ended(victim)
        assert victim.code == 0, f"awake, it did not come to its end: {victim}"
        assert self._effects(order) == effects, "awake, it had an effect"
        after = {row["id"]: row for row in await self._standing(order)}
        moved = [row for row in rows if row["state"] == "SETTLED" and after[row["id"]] != row]
        assert not moved, f"awake, it moved something: {moved}"

    async def _judge(self, party: Party, order: Order) -> None:
        operations, effects = await self._standing(order), self._effects(order)
        for row in party:
            mine = [one for one in operations if one["key"] == order.key(row.kind)]
            self.tally.rows += 1
            self.tally.outcomes[self._outcome(row, mine, effects[row.kind])] += 1

    def _outcome(self, row: Row, revisions: Sequence[dict[str, Any]], effects: int) -> str:
        """One effect that the ledger knows as completed; or, where nobody can know, a case and no second one."""
        *earlier, live = revisions
        assert all(one["state"] == "CLOSED" for one in earlier), f"two live revisions: {revisions}"
        told = f"{row.kind}: {effects} effects, {revisions}"
        if row.signal is Signal.SUSPENDED and live["cases"] == ["sender_alive"]:
            contract = self.bench.catalogue.write(live["tool"]).contract
            assert not contract.receiver_enforces_key, f"an enforced key is enough to go on: {told}"
            assert (live["fact"], effects) in {("UNKNOWN", 0), ("NOT_SENT", 0)}, told
            return "no effect, and a case: the sender lived"
        assert (live["fact"], effects, live["cases"]) == ("COMPLETED", 1, []), told
        return "one effect, completed"


@asynccontextmanager
async def opened_ledger(app_url: str, home: Path, world: World) -> AsyncIterator[Bench]:
    """A bench that judges, on a migrated database and a company."""
    catalogue = matrix_catalogue()
    async with opened_bench(app_url, home, world.urls, world.credentials, catalogue=catalogue) as bench:
        yield bench


@asynccontextmanager
async def opened_matrix(app_url: str, home: Path, clones: Clones) -> AsyncIterator[Matrix]:
    """A matrix over a migrated database and a company in a process of its own."""
    async with (
        running_world(home) as world,
        opened_ledger(app_url, home, world) as bench,
        forking() as workers,
    ):
        await world.control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        yield Matrix(bench, world, await mint_tokens(bench.people), workers, app_url, clones)
