"""A worker in a process of its own that carries one run on until it is settled, and ends or suspends itself on demand.

Started by tests as `python -m tests.checkpoints.worker_process ORDER`, ORDER being JSON with the fields of `Order`.
Exit codes: 0 everything of the run is settled, 3 the lease was lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.tools.errors import LeaseLost
from remit.tools.ports import FaultPoint, Lease
from tests.fixtures import Bench, batching, opened_bench

SETTLED, LEASE_LOST = 0, 3


@dataclass(frozen=True)
class Order:
    """What one worker process is to do, and at which recovery point it is hit by which signal."""

    app_url: str
    home: str
    urls: dict[str, str]
    credentials: dict[str, str]
    run_id: str
    point: str
    signal: int
    lease_seconds: float
    send_seconds: float
    batch: int = 1

    def text(self) -> str:
        return json.dumps(asdict(self))


async def carry_out(order: Order) -> int:
    """Takes the run, then sends and looks in turn."""
    hit = False

    async def reach(point: FaultPoint) -> None:
        nonlocal hit
        if point.value == order.point and not hit:
            hit = True
            os.kill(os.getpid(), order.signal)

    async with opened_bench(
        order.app_url,
        Path(order.home),
        order.urls,
        order.credentials,
        catalogue=batching(order.batch),
        reach=reach,
        send_seconds=order.send_seconds,
    ) as bench:
        try:
            lease = await bench.leased(order.run_id, order.lease_seconds)
            async with asyncio.timeout(30):
                await _until_settled(bench, lease, order.lease_seconds)
        except LeaseLost:
            return LEASE_LOST
    return SETTLED


async def _until_settled(bench: Bench, lease: Lease, seconds: float) -> None:
    while await bench.sql(
        "SELECT id FROM remit.operations WHERE run_id = %s AND state NOT IN ('SETTLED', 'CLOSED') LIMIT 1",
        lease.run_id,
    ):
        if not await bench.database.value("heartbeat", run=lease.run_id, token=lease.token, seconds=seconds):
            raise LeaseLost(code="lease_lost")
        await bench.send(lease)
        await bench.sweep()
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(asyncio.run(carry_out(Order(**json.loads(sys.argv[1])))))
