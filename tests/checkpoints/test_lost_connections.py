"""Connections and servers go away in the middle of the work: everything is found again, without hands (F35, F45)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import check, dump
from remit.sandbox import world as worlds
from remit.sandbox.worlds import World, served_world
from remit.tools.ports import FaultPoint
from tests.clusters import own_cluster
from tests.fixtures import Bench, Tokens, eventually, mint_tokens, opened_bench, quick_catalogue

ROWS = 250
"""More than two batches of looks, so that a sweep is hit with some behind it and some before it."""


ON_THE_WAY = [
    point
    for point in FaultPoint
    if point.value.split("_", 1)[1]
    in {"snapshot", "claim", "may_send", "send", "record", "tidy", "due", "verify", "settle", "swept"}
]
"""What one credit certainly passes from its snapshot to its settlement; the crash matrix has all points."""


class ReceiptsLost(Exception):
    """Everything was sent, and what came of it is not recorded."""


async def terminated(urls: Urls) -> int:
    """Ends every connection of the application to this database; how many there were."""
    async with await psycopg.AsyncConnection.connect(urls.app_url, autocommit=True) as killer:
        cursor = await killer.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
        )
        row = await cursor.fetchone()
        return int(row[0]) if row else 0


@pytest.mark.parametrize("point", ON_THE_WAY)
async def test_all_connections_end_at_any_point_and_each_effect_happens_once(
    ledger_database: Urls, world: World, affected: list[str], point: FaultPoint
) -> None:
    """F35: between claim and record too, where only the next statement finds out."""
    hits = 0

    async def reach(reached: FaultPoint) -> None:
        nonlocal hits
        if reached is point:
            hits += await terminated(ledger_database) > 0

    async with opened_bench(
        ledger_database.app_url, world.home, world.urls, world.credentials, reach=reach
    ) as bench:
        lease = await bench.run_over(await mint_tokens(bench.people), affected[:10])
        await bench.settled(lease, await bench.propose(lease, "credit", affected[:10]))
        assert await bench.cases() == []
    assert hits > 0
    assert len(dump(world.home)["credits"]) == 10


async def test_connections_that_end_all_the_time_only_slow_the_work_down(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """F35: statements are cut off in the middle, sends and sweeps among them; what is tried again has one effect."""
    lease = await bench.run_over(tokens, affected)
    ids = await bench.propose(lease, "credit", affected)
    cut = asyncio.Event()

    async def cutting() -> None:
        for _ in range(40):
            await terminated(ledger_database)
        cut.set()

    cutter = asyncio.create_task(cutting())

    async def worked() -> bool:
        try:
            await bench.send(lease)
            await bench.sweep()
            return cut.is_set() and set(await bench.states(ids)) == {"SETTLED"}
        except psycopg.OperationalError:
            return False

    await eventually(worked, 60.0)
    await cutter
    assert len(dump(bench.home)["credits"]) == len(affected)
    assert await bench.cases() == []


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """The usual company, or one with so many affected customers as the test asks for."""
    number = getattr(request, "param", None)
    if number is not None:
        customers = tuple(f"c-{n}" for n in range(104, 104 + number))
        monkeypatch.setattr(worlds, "CUSTOMERS", customers)
        monkeypatch.setattr(worlds, "_sample", lambda *_: sorted(customers))
    async with served_world(tmp_path) as opened:
        await opened.control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("world", [ROWS], indirect=True)
async def test_a_server_that_is_killed_while_250_rows_are_recovered_loses_none_of_them(
    world: World, affected: list[str]
) -> None:
    """F45: SIGKILL of the postmaster in the middle of a sweep; the sweeps after its restart find all the rest."""
    async with own_cluster() as cluster:
        armed, losing = False, True

        async def reach(point: FaultPoint) -> None:
            nonlocal armed
            if losing and point is FaultPoint.AFTER_SEND:
                raise ReceiptsLost
            if armed and point is FaultPoint.AFTER_SETTLE:
                armed = False
                await cluster.kill()

        place = cluster.urls.app_url, world.home, world.urls, world.credentials
        tools = quick_catalogue(timeout=3.0, concurrency=100)
        async with opened_bench(*place, reach=reach, catalogue=tools, send_seconds=1.0) as bench:
            lease = await bench.run_over(await mint_tokens(bench.people), affected)
            ids = await bench.propose(lease, "credit", affected)
            while await bench.ledger.sendable(lease.run_id, 0, 1):
                with pytest.raises(ReceiptsLost):
                    await bench.send(lease)
            losing = False

            async def unknown() -> bool:
                await bench.database.rows("tidy")
                return set(await bench.states(ids)) == {"UNKNOWN"}

            await eventually(unknown, 30.0)
            armed = True
            with pytest.raises(psycopg.OperationalError):
                await bench.sweep()
            await cluster.up()
            left = (await bench.states(ids)).count("UNKNOWN")
            assert 0 < left < ROWS
            await bench.settled(lease, ids, 60.0)
            assert (await bench.database.row("stuck", seconds=0.0) or {})["count"] == 0
            assert await bench.cases() == []
    assert len(dump(world.home)["credits"]) == ROWS
    assert check(world.home, "outage-0611") == []
