"""The ledger cannot be written: nothing is sent that is not recorded, and everything goes on by itself (F67, I10)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.ports import FaultPoint
from tests.clusters import own_cluster
from tests.disks import small_disk
from tests.fixtures import Bench, eventually, mint_tokens, opened_bench

SEND = 1.0
"""The window of a claim in these tests, in seconds: what was not recorded is given up soon afterwards."""

REFUSALS = {
    "a trigger": (
        """
        CREATE FUNCTION remit.refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the journal is closed'; END $$;
        CREATE TRIGGER closed BEFORE INSERT ON remit.journal FOR EACH ROW EXECUTE FUNCTION remit.refuse()""",
        "DROP FUNCTION remit.refuse CASCADE",
    ),
    "a revoked right": (
        "REVOKE INSERT ON remit.journal FROM remit_owner",
        "GRANT INSERT ON remit.journal TO remit_owner",
    ),
}

Act = Callable[[], Awaitable[None]]


@dataclass
class Ledger:
    """A bench whose journal can be closed and opened, at a recovery point as well."""

    bench: Bench
    close: Act
    open: Act
    point: FaultPoint | None = None

    async def reach(self, point: FaultPoint) -> None:
        if point is self.point:
            self.point = None
            await self.close()


def refusing(urls: Urls, way: str) -> tuple[Act, Act]:
    """How the journal is closed and opened by one of REFUSALS."""

    async def run(statement: str) -> None:
        async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
            await owner.execute(statement.encode())

    closing, opening = REFUSALS[way]
    return (lambda: run(closing)), (lambda: run(opening))


@pytest.fixture(params=[*REFUSALS, pytest.param("a full disk", marks=pytest.mark.slow)])
async def ledger(
    request: pytest.FixtureRequest, ledger_database: Urls, world: World
) -> AsyncIterator[Ledger]:
    """One way in which the journal takes nothing."""

    async def made(urls: Urls, close: Act, open_: Act) -> AsyncIterator[Ledger]:
        holder: list[Ledger] = []

        async def reach(point: FaultPoint) -> None:
            for one in holder:
                await one.reach(point)

        async with opened_bench(
            urls.app_url, world.home, world.urls, world.credentials, reach=reach, send_seconds=SEND
        ) as bench:
            holder.append(Ledger(bench, close, open_))
            yield holder[0]

    if request.param != "a full disk":
        async for one in made(ledger_database, *refusing(ledger_database, request.param)):
            yield one
        return
    async with own_cluster() as cluster, small_disk(cluster) as disk:
        async for one in made(cluster.urls, disk.fill, disk.free):
            yield one


async def test_a_claim_that_cannot_be_recorded_sends_nothing(ledger: Ledger, affected: list[str]) -> None:
    """F67: no journal, no attempt and no call; once it can be written again, everything is sent, once."""
    bench = ledger.bench
    lease = await bench.run_over(await mint_tokens(bench.people), affected)
    ids = await bench.propose(lease, "credit", affected)
    await ledger.close()
    for _ in range(2):
        with pytest.raises(psycopg.DatabaseError):
            await bench.send(lease)
    assert "POST /credits" not in bench.transport.called
    assert set(await bench.states(ids)) == {"PENDING"}
    assert await bench.sql("SELECT id FROM remit.attempts") == []
    await ledger.open()
    await bench.settled(lease, ids)
    assert len(dump(bench.home)["credits"]) == len(affected)


async def test_an_outcome_that_cannot_be_recorded_is_unknown_until_it_is_verified(
    ledger: Ledger, affected: list[str]
) -> None:
    """F67: the effect is there, its receipt is lost; the fact is UNKNOWN, and evidence settles it without a second."""
    bench = ledger.bench
    lease = await bench.run_over(await mint_tokens(bench.people), affected)
    ids = await bench.propose(lease, "credit", affected)
    ledger.point = FaultPoint.AFTER_SEND
    with pytest.raises(psycopg.DatabaseError):
        await bench.send(lease)
    sent = dump(bench.home)["credits"]
    assert 0 < len(sent) < len(affected)
    await ledger.open()

    async def shown() -> bool:
        rows = await bench.sql("SELECT shown_fact FROM remit.standing WHERE attempts > 0")
        return {row["shown_fact"] for row in rows} == {"UNKNOWN"}

    await eventually(shown)
    await bench.settled(lease, ids)
    assert [one["customer"] for one in dump(bench.home)["credits"]][: len(sent)] == [
        one["customer"] for one in sent
    ]
    assert len(dump(bench.home)["credits"]) == len(affected)
    assert await bench.cases() == []
