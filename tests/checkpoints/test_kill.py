"""Workers that are suspended past their lease and wake up, without any model or graph (F41, I1, I4).

At every fault point, and killed as well: the crash matrix in `tests/matrix`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remit.checkpoints.cases import Cases
from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World, running_world
from remit.tools.ports import FaultPoint, Lease
from tests.checkpoints.test_cases import opened
from tests.checkpoints.worker_process import LEASE_LOST, SETTLED, Order
from tests.fixtures import Bench, Tokens, eventually

ROOT = Path(__file__).parents[2]

Process = asyncio.subprocess.Process


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A company in a process of its own, so that a worker's end or sleep never touches it."""
    async with running_world(tmp_path) as opened:
        await opened.control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        yield opened


@dataclass
class Workers:
    """Starts worker processes of one test, and leaves none behind."""

    urls: Urls
    world: World
    started: list[Process] = field(default_factory=list)

    async def begin(
        self,
        run_id: str,
        point: FaultPoint,
        hit: signal.Signals,
        *,
        lease: float = 30.0,
        send: float = 8.0,
        batch: int = 1,
    ) -> Process:
        """A worker on one run that sends itself a signal when it reaches the point for the first time."""
        order = Order(
            app_url=self.urls.app_url,
            home=str(self.world.home),
            urls=self.world.urls,
            credentials=self.world.credentials,
            run_id=run_id,
            point=point.value,
            signal=hit.value,
            lease_seconds=lease,
            send_seconds=send,
            batch=batch,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.checkpoints.worker_process", order.text(), cwd=ROOT
        )
        self.started.append(process)
        return process


@pytest.fixture
async def workers(ledger_database: Urls, world: World) -> AsyncIterator[Workers]:
    made = Workers(ledger_database, world)
    yield made
    for process in made.started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def proposed(
    bench: Bench, tokens: Tokens, step: str, subjects: Sequence[str]
) -> tuple[Lease, list[int]]:
    """A run with one step for these subjects that no worker holds: this process has let it go."""
    mandate = await bench.granted(tokens, subjects)
    lease = await bench.leased(await bench.started(tokens, mandate))
    ids = await bench.propose(lease, step, subjects)
    await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
    return lease, ids


async def settled_credits(bench: Bench, tokens: Tokens, subjects: Sequence[str]) -> None:
    """Credits that came earlier, so that messages about them are true."""
    lease = await bench.run_over(tokens, subjects)
    await bench.settled(lease, await bench.propose(lease, "credit", subjects))


def effects(home: Path) -> dict[str, list[str]]:
    """Whom the company's own records show an effect for, by step, sorted, each as often as it happened."""
    records = dump(home)
    kinds = {"credit": "credits", "notify": "messages"}
    return {step: sorted(one["customer"] for one in records[kind]) for step, kind in kinds.items()}


def ids_of(subjects: Sequence[str]) -> list[str]:
    return sorted(subject.partition(":")[2] for subject in subjects)


@pytest.mark.parametrize("point", [FaultPoint.AFTER_CLAIM, FaultPoint.AFTER_SEND])
async def test_killed_around_a_call_that_carries_many_every_item_happens_once(
    bench: Bench, tokens: Tokens, workers: Workers, affected: list[str], point: FaultPoint
) -> None:
    """SIGKILL before and after one call for ten credits: each of the ten is recovered by its own key (F48)."""
    lease, ids = await proposed(bench, tokens, "credit", affected[:10])
    process = await workers.begin(lease.run_id, point, signal.SIGKILL, batch=10)
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    await bench.worker.bury_the_dead(bench.database)
    await bench.settled(await bench.leased(lease.run_id), ids)
    assert effects(bench.home)["credit"] == ids_of(affected[:10])


async def suspended(bench: Bench, workers: Workers, lease: Lease, point: FaultPoint) -> Process:
    """A worker process that has suspended itself at the point, and whose short lease has run out since."""
    process = await workers.begin(lease.run_id, point, signal.SIGSTOP, lease=1.5, send=1.5)
    await eventually(lambda: _is_stopped(process.pid), 60.0)

    async def free() -> bool:
        return not (await bench.database.row("run", run=lease.run_id) or {})["held"]

    await eventually(free)
    return process


async def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


async def ledger(bench: Bench) -> list[dict[str, Any]]:
    return await bench.sql("SELECT id, state, fact, version, attempts FROM remit.operations ORDER BY id")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells by /proc that a process is suspended")
@pytest.mark.parametrize("point", [FaultPoint.AFTER_CLAIM, FaultPoint.BEFORE_SEND, FaultPoint.AFTER_SEND])
async def test_a_suspended_worker_that_wakes_up_changes_nothing(
    bench: Bench, tokens: Tokens, workers: Workers, affected: list[str], point: FaultPoint
) -> None:
    """SIGSTOP, another process finishes, SIGCONT: no effect more, no operation changed, its receipt kept as late."""
    lease, ids = await proposed(bench, tokens, "credit", affected[:2])
    asleep = await suspended(bench, workers, lease, point)
    assert await bench.worker.bury_the_dead(bench.database) == 0
    await bench.settled(await bench.leased(lease.run_id), ids)
    before = await ledger(bench), effects(bench.home)
    os.kill(asleep.pid, signal.SIGCONT)
    assert await asyncio.wait_for(asleep.wait(), 20) == SETTLED
    await bench.sweep()
    assert (await ledger(bench), effects(bench.home)) == before
    assert effects(bench.home)["credit"] == ids_of(affected[:2])
    late = await bench.sql("SELECT late FROM remit.attempts WHERE worker <> %s", bench.worker.id)
    assert late == [{"late": True}] * 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells by /proc that a process is suspended")
async def test_without_keys_a_suspended_sender_leaves_a_case_and_no_second_message(
    bench: Bench, tokens: Tokens, workers: Workers, affected: list[str]
) -> None:
    """A sender that is only asleep is not proved dead: nobody sends in its place, and awake it sends nothing either."""
    await settled_credits(bench, tokens, affected[:1])
    lease, (mail,) = await proposed(bench, tokens, "notify", affected[:1])
    asleep = await suspended(bench, workers, lease, FaultPoint.BEFORE_SEND)
    taken = await bench.leased(lease.run_id)

    async def told() -> bool:
        return await bench.cases() == ["sender_alive"]

    await bench.carry_on(taken, told)
    assert (await bench.operation(mail))["fact"] == "UNKNOWN"
    os.kill(asleep.pid, signal.SIGCONT)
    assert await asyncio.wait_for(asleep.wait(), 20) == LEASE_LOST
    for _ in range(3):
        await bench.send(taken)
        await bench.sweep()
    assert effects(bench.home)["notify"] == []
    assert (await bench.operation(mail))["obstacle"] == "case"


async def test_killed_in_the_middle_of_a_replay_there_is_one_effect(
    bench: Bench, tokens: Tokens, workers: Workers, affected: list[str], ledger_database: Urls
) -> None:
    """F40: a person replays what a lost reply left; its sender is killed right after the send. Still one credit."""
    lease, (id_,) = await proposed(bench, tokens, "credit", affected[:1])
    process = await workers.begin(lease.run_id, FaultPoint.AFTER_SEND, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    await bench.worker.bury_the_dead(bench.database)
    await workers.world.control.add_fault("payments", "html", "POST /credits/search", times=2)
    await bench.database.rows("tidy")
    case = await opened(ledger_database, id_, "unverifiable")
    cases = Cases(bench.ledger, bench.runner)
    done = await cases.replay(tokens.finance_lead, case, rationale="the receiver enforces the key")
    assert (done["outcome"], done["detail"]) == ("released", "resend")
    again = await workers.begin(lease.run_id, FaultPoint.AFTER_SEND, signal.SIGKILL)
    assert await asyncio.wait_for(again.wait(), 30) == -signal.SIGKILL
    await bench.worker.bury_the_dead(bench.database)
    await bench.settled(await bench.leased(lease.run_id), [id_])
    keys = await bench.sql(
        "SELECT count(*) AS attempts, count(DISTINCT wire_key) AS keys FROM remit.attempts"
    )
    assert keys == [{"attempts": 2, "keys": 1}]
    assert effects(bench.home)["credit"] == ids_of(affected[:1])
