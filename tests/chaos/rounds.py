"""Rounds of chaos: kills and everything else by the schedule, then quiet, then the judge, then the rest is delivered.

A failing round says its seed, what happened in which order, what the workers said last, and how to play it again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.arena import Arena, Ground, arena
from tests.chaos.fleet import Death, Fleet, fleet
from tests.chaos.judge import STANDING, breaches
from tests.chaos.schedule import KILLS, Fate, Schedule
from tests.fixtures import eventually

WORKERS = 3
"""At once: enough to race for every run and every sweep on two cores."""

_QUIET_SECONDS = 90.0
"""The longest pause that a fault of the schedule leaves behind is under ten seconds; the rest is for slow machines."""

_TIDY_ENOUGH = {"approval", "requirement", "requirement_lost"}
"""What may still be waited for in the quiet: a person, and what follows after, or would have followed a rejection."""


@dataclass
class Outcome:
    """What one round came to."""

    seed: int
    kills: int = 0
    in_flight: int = 0
    restarts: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    story: str = ""

    def __str__(self) -> str:
        """Everything that a person needs who was not there."""
        wrong = "\n".join(f"  {one}" for one in self.wrong)
        again = f"make chaos SEED={self.seed} KILLS=1"
        return f"seed {self.seed}:\n{wrong}\n{self.story}\nPlay it again: {again}"

    def line(self) -> str:
        return (
            f"seed {self.seed}: {self.kills} kills, {self.in_flight} of them in the middle of a send, "
            f"{self.restarts} restarts of Postgres, {len(self.wrong)} breaches, {self.seconds:.1f} s"
        )


async def play(seed: int, ground: Ground, folder: Path, kills: int = KILLS) -> Outcome:
    """One round on a fresh database and a fresh company."""
    outcome, schedule, began = Outcome(seed), Schedule.of(seed, kills), time.monotonic()
    async with arena(ground, folder) as opened, fleet(opened.home, opened.url) as workers:
        try:
            for part in (_chaos, _quiet, _delivered):
                if not outcome.wrong:
                    await part(schedule, opened, workers, outcome)
        except TimeoutError:
            outcome.wrong.append("it came to no end")
            outcome.wrong += await _left(opened)
        outcome.wrong += [f"worker {d.worker} {d}" for d in await workers.killed_all() if d.faulty]
        said = workers.log.read_text(errors="replace")[-4_000:] if workers.log.exists() else ""
        outcome.story = "\n".join([*opened.log, "the workers said last:", said])
    outcome.seconds = time.monotonic() - began
    return outcome


async def _chaos(schedule: Schedule, arena: Arena, workers: Fleet, outcome: Outcome) -> None:
    """Deaths, and what the schedule has happen after each."""
    deaths = 0
    await arena.start_runs()
    for worker in range(WORKERS):
        workers.begin(schedule.fate(worker))
    while outcome.kills < KILLS and not outcome.wrong and not await _all_done(arena):
        death = await workers.death()
        deaths += 1
        _count(death, outcome, arena)
        for event in schedule.at(deaths):
            await arena.apply(event)
            outcome.restarts += event.kind == "restart_postgres"
        await arena.start_runs()
        workers.begin(schedule.fate(deaths + WORKERS - 1))


def _count(death: Death, outcome: Outcome, arena: Arena) -> None:
    arena.note(f"worker {death.worker} {death}")
    outcome.kills += death.killed
    if death.faulty:
        outcome.wrong.append(f"worker {death.worker} {death} ({death.code})")


async def _quiet(_: Schedule, arena: Arena, workers: Fleet, outcome: Outcome) -> None:
    """Nobody does anything any more: what was sent settles, and every run ends or waits for a person by name."""
    await arena.calm()
    for death in await workers.killed_all():
        _count(death, outcome, arena)
    rows = await arena.sql(
        "SELECT count(DISTINCT worker) AS count FROM remit.attempts WHERE ended_at IS NULL"
    )
    outcome.in_flight = rows[0]["count"]
    _begin_quiet(workers)
    await eventually(_waiting_out(arena, _settled), _QUIET_SECONDS)
    arena.note("quiet")
    outcome.wrong += await breaches(arena)


async def _delivered(_: Schedule, arena: Arena, workers: Fleet, outcome: Outcome) -> None:
    """Then people go on: run again what was stopped or rejected, grant all of it, and everybody is reached once."""

    async def done(arena: Arena) -> bool:
        await arena.start_runs()
        await arena.approve_all()
        return await _all_done(arena) and await _settled(arena)

    await eventually(_waiting_out(arena, done), _QUIET_SECONDS)
    arena.note("delivered")
    outcome.wrong += await breaches(arena, final=True)


def _begin_quiet(workers: Fleet) -> None:
    for number in range(2):
        workers.begin(Fate(10_000 + number))


def _waiting_out(arena: Arena, done: Callable[[Arena], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    """The same condition, with the clocks moved on while it does not hold: holds pass."""

    async def passed() -> bool:
        if await done(arena):
            return True
        if await arena.sql(
            "SELECT 1 FROM remit.standing WHERE obstacle = 'hold' AND hold_until IS NOT NULL LIMIT 1"
        ):
            await arena.pass_time()
        return False

    return passed


async def _all_done(arena: Arena) -> bool:
    return all([await arena.done(purpose) for purpose in arena.mandates])


async def _settled(arena: Arena) -> bool:
    """Nothing moves and nobody is at work. A run that stays RUNNING is found here; afterwards one of the workers may
    look once more at what another has just carried on."""
    if await arena.sql(
        "SELECT 1 FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id"
        " WHERE r.status = 'RUNNING' OR l.lease_until > clock_timestamp() LIMIT 1"
    ):
        return False
    left = await arena.sql("SELECT DISTINCT obstacle FROM remit.standing WHERE obstacle IS NOT NULL")
    return {row["obstacle"] for row in left} <= _TIDY_ENOUGH and not await arena.database.rows("ready_runs")


async def _left(arena: Arena) -> list[str]:
    """What did not come to its end, and where each run stands."""
    operations = [
        f"{row['key']} {row['state']} ({row['obstacle']})"
        for row in await arena.sql(STANDING)
        if row["state"] not in ("SETTLED", "CLOSED")
    ]
    runs = [
        f"{r['id']} {r['status']}: {r['reason']}"
        for r in await arena.database.rows("runs", all=True, limit=50)
    ]
    return (
        operations[:40]
        + runs
        + [f"case {row}" for row in await arena.sql("SELECT * FROM remit.cases LIMIT 10")]
    )
