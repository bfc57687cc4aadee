"""Seeded chaos (I1, I3, I4, I5, I8, I12): a hundred kills of workers and everything else that breaks around them.

`make chaos` runs a thousand. What a failing round prints is enough to play it again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import until
from tests.chaos.arena import ground
from tests.chaos.fleet import ROOT, Death, fleet
from tests.chaos.judge import compared
from tests.chaos.rounds import Outcome
from tests.chaos.schedule import KILLS, Fate, Schedule

SEED, CI_KILLS = 611, 100


@pytest.mark.chaos
@pytest.mark.slow
async def test_a_hundred_kills_leave_one_effect_each_and_none_lost() -> None:
    """0 duplicates, 0 lost, nothing left unknown, every customer reached once; also F41 and F45: after restarts of
    Postgres and deaths between claim and result, workers find everything that was left and finish it."""
    with tempfile.TemporaryDirectory() as name:
        # Only its user may enter pytest's own folder, and the server of Postgres is another.
        folder = Path(name)
        folder.chmod(0o755)
        async with ground(folder) as opened:
            outcomes = await until(CI_KILLS, SEED, opened, folder)
    assert [str(outcome) for outcome in outcomes if outcome.wrong] == []
    assert sum(outcome.kills for outcome in outcomes) >= CI_KILLS
    assert sum(outcome.restarts for outcome in outcomes) >= 1
    assert sum(outcome.in_flight for outcome in outcomes) >= 1


def test_a_seed_is_the_whole_plan() -> None:
    """The same events and the same fates each time, other ones for another seed."""
    first, again, other = Schedule.of(7), Schedule.of(7), Schedule.of(8)
    assert first == again
    assert first.events != other.events
    assert [first.fate(n) for n in range(50)] == [again.fate(n) for n in range(50)]
    assert [first.fate(n) for n in range(50)] != [other.fate(n) for n in range(50)]


def test_a_few_seeds_play_everything_that_can_happen() -> None:
    """Each kind of event comes about, every worker dies in the end, and every stop is lifted."""
    schedules = [Schedule.of(seed) for seed in range(3)]
    kinds = Counter(event.kind for schedule in schedules for event in schedule.events)
    assert set(kinds) == {
        *("decide", "clock", "edit", "fault", "stop", "lift"),
        *("restart_postgres", "cut_connections", "kill_company"),
    }
    fates = [schedule.fate(worker) for schedule in schedules for worker in range(KILLS)]
    assert all(fate.moment or fate.seconds for fate in fates)
    assert {bool(fate.point) for fate in fates} == {True, False}
    assert any(fate.polite for fate in fates)


def test_a_failing_round_tells_how_to_play_it_again() -> None:
    """The breaches, the events in their order, and one command."""
    told = str(Outcome(17, kills=3, wrong=["I1: a has 2 effects"], story="  1.0s  stop all"))
    assert told.splitlines() == [
        "seed 17:",
        "  I1: a has 2 effects",
        "  1.0s  stop all",
        "Play it again: make chaos SEED=17 KILLS=1",
    ]


def standing(state: str, fact: str, key: str = "p/credit/customer:c-104/1") -> dict[str, Any]:
    return {"id": 1, "key": key, "state": state, "shown_fact": fact, "obstacle": None}


def records(*references: str) -> dict[str, Any]:
    effects = [{"reference": reference, "status": "settled"} for reference in references]
    return {"credits": effects, "messages": [], "accounts": []}


OURS = "inst:p/credit/customer:c-104/1"


@pytest.mark.parametrize(
    ("rows", "references", "found"),
    [
        ([standing("SETTLED", "COMPLETED")], [OURS], []),
        ([standing("CLOSED", "NOT_SENT")], [], []),
        ([standing("CLOSED", "NOT_SENT")], ["another:p/credit/customer:c-104/1"], []),
        ([standing("SETTLED", "COMPLETED")], [], ["I5: lost"]),
        ([standing("SETTLED", "COMPLETED")], [OURS, OURS], ["I1"]),
        ([standing("CLOSED", "NOT_SENT")], [OURS], ["I5"]),
        ([], [OURS], ["I5"]),
        ([standing("UNKNOWN", "UNKNOWN")], [], ["I5: operation"]),
    ],
)
def test_the_judge_compares_the_ledger_with_the_world(
    rows: list[dict[str, Any]], references: list[str], found: list[str]
) -> None:
    """A duplicate, a lost effect, one that nobody knows and one that nobody settled are breaches, and no other is."""
    said = compared(rows, records(*references), "inst")
    assert len(said) == len(found)
    assert all(one.startswith(expected) for one, expected in zip(said, found, strict=True))


async def test_a_worker_that_breaks_by_itself_is_a_breach(tmp_path: Path) -> None:
    """A kill, a polite end or a part that is away are deaths; an exception that nobody expected is a fault."""
    async with fleet(tmp_path, "postgresql:///none") as workers:
        workers.begin(Fate(1, point="no number"))  # type: ignore[arg-type]
        death = await workers.death()
    assert death.faulty
    assert "Traceback" in workers.log.read_text()
    assert [Death(1, code).faulty for code in (0, -signal.SIGKILL, -signal.SIGTERM)] == [False] * 3
    assert Death(1, -signal.SIGSEGV).faulty


async def test_the_end_of_the_server_s_input_ends_every_worker(tmp_path: Path) -> None:
    """No worker outlives the test that started it."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.fork_server", stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    assert server.stdin is not None
    assert server.stdout is not None
    await server.stdout.readline()
    place = {"worker": 1, "moment": 0, "point": 0, "home": str(tmp_path), "log": str(tmp_path / "log")}
    # Nobody answers there, and the worker waits for its database as long as it may.
    silent = await asyncio.start_unix_server(lambda *_: None, str(tmp_path / ".s.PGSQL.5432"))
    url = f"postgresql://nobody@/none?host={tmp_path}&port=5432"
    server.stdin.write(json.dumps({**place, "url": url}).encode() + b"\n")
    pid = json.loads(await server.stdout.readline())["pid"]
    os.kill(pid, 0)
    server.stdin.close()
    assert await asyncio.wait_for(server.wait(), 10) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    silent.close()
