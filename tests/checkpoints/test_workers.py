"""A worker's life and death, told by the operating system's lock and by nothing else. DESIGN section 6."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remit.checkpoints import Worker
from tests.fixtures import Bench, Tokens, eventually

_HOLD_A_LOCK = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""


@asynccontextmanager
async def another_worker(bench: Bench) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A process that holds a worker's lock, registered as this host's."""
    path = bench.home / "workers" / "other.lock"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLD_A_LOCK, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"locked\n"
    await bench.sql(
        "SELECT remit.register_worker('w-other', %s, %s, %s)", os.uname().nodename, process.pid, str(path)
    )
    yield "w-other", process
    if process.returncode is None:
        process.kill()
        await process.wait()


async def is_dead(bench: Bench, worker: str) -> bool:
    (row,) = await bench.sql("SELECT dead_at FROM remit.workers WHERE id = %s", worker)
    return row["dead_at"] is not None


async def test_sigkill_proves_death_and_sigstop_does_not(bench: Bench) -> None:
    """A suspended worker keeps its lock and counts as alive; a killed one is found dead at once."""
    async with another_worker(bench) as (worker, process):
        os.kill(process.pid, signal.SIGSTOP)
        assert await bench.worker.bury_the_dead(bench.database) == 0
        assert not await is_dead(bench, worker)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert await bench.worker.bury_the_dead(bench.database) == 1
        assert await is_dead(bench, worker)


@pytest.mark.parametrize("how", ["another host", "a missing file"])
async def test_what_cannot_be_seen_from_here_proves_nothing(bench: Bench, how: str) -> None:
    """On another host, or where the lock file is gone, death is not proved; the lease has to run out instead."""
    async with another_worker(bench) as (_, process):
        process.kill()
        await process.wait()
        path = bench.home / "workers" / ("other.lock" if how == "another host" else "gone.lock")
        host = "elsewhere" if how == "another host" else os.uname().nodename
        await bench.sql("SELECT remit.register_worker('w-unseen', %s, 1, %s)", host, str(path))
        await bench.worker.bury_the_dead(bench.database)
        assert not await is_dead(bench, "w-unseen")


async def test_a_dead_workers_run_is_taken_at_once(bench: Bench, tokens: Tokens) -> None:
    """Nobody waits for the lease of a worker whose death is proved."""
    run_id = await bench.started(tokens, await bench.granted(tokens, ["customer:c-104"]))
    async with another_worker(bench) as (worker, process):
        await bench.sql("SELECT remit.acquire_lease(%s, %s, 3600)", run_id, worker)
        with pytest.raises(AssertionError, match="held by somebody else"):
            await bench.leased(run_id)
        assert await bench.database.rows("ready_runs") == []
        process.kill()
        await process.wait()
        await bench.worker.bury_the_dead(bench.database)
        assert [row["id"] for row in await bench.database.rows("ready_runs")] == [run_id]
        assert (await bench.leased(run_id)).token == 2


async def test_a_send_in_flight_of_a_dead_worker_is_unknown_at_once(bench: Bench, tokens: Tokens) -> None:
    """F41: one sweep after the kill the operation is UNKNOWN; while the worker lives, it is in progress."""
    lease = await bench.run_over(tokens, ["customer:c-104"])
    (id_,) = await bench.propose(lease, "credit", ["customer:c-104"])
    async with another_worker(bench) as (worker, process):
        await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
        await bench.sql("SELECT remit.acquire_lease(%s, %s, 3600)", lease.run_id, worker)
        await bench.sql(
            "SELECT remit.claim(%s, %s, %s, %s, clock_timestamp(), 30, %s)",
            lease.run_id,
            lease.token + 1,
            worker,
            [id_],
            '{"issue_credit": {"attempts": 5, "budget_ms": 9000, "timeout_ms": 1000}}',
        )
        await bench.sweep()
        row = await bench.operation(id_)
        assert (row["state"], row["shown_fact"]) == ("SENDING", "IN_PROGRESS")
        process.kill()
        await process.wait()
        await bench.sql("SELECT 1")

        async def unknown() -> bool:
            await bench.worker.bury_the_dead(bench.database)
            await bench.sql("SELECT remit.tidy()")
            return bool((await bench.operation(id_))["shown_fact"] == "UNKNOWN")

        await eventually(unknown)


async def test_a_normal_end_is_a_death_and_leaves_no_file(bench: Bench, tmp_path: Path) -> None:
    """After its normal end a worker counts as dead, and its lock file is gone."""
    worker = await Worker.begin(bench.database, tmp_path)
    await worker.end(bench.database)
    assert await is_dead(bench, worker.id)
    assert not (tmp_path / "workers" / f"{worker.id}.lock").exists()
