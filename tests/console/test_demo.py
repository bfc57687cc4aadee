"""The demo: the whole story in real processes, under a minute, leaving nothing behind."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from remit.console import scenes
from remit.console.stage import Stage, WentOtherwise

from .conftest import Remit

LIMIT_SECONDS = 60

STORY = (
    "A bare agent, and a reply that gets lost",
    "customer:c-104 has 2 live credits",
    "a mandate, and a run that needs a person",
    "exactly 10.00 USD",
    "PAUSED_AWAITING_APPROVAL",
    "which ran it, is gone",
    "24 x 10.00 USD = 240.00 USD",
    "stands in the chain",
    "finance-lead granted 24 actions",
    "A new process carries on",
    "outage-0611/notify/customer:c-",
    "COMPLETED. completed: every step is completed",
    "attempt 1 .*: unknown on",
    "effective in payments: credits by reference",
    "denied: field_not_delegated",
    "every affected customer has everything exactly once",
    "stopped in the middle",
    "STOP in force over all",
    # Where others keep the machine busy, the provider may have settled by then: it does not wait for anybody.
    r"credit \(5.00 USD\): (under way, not finished|done)",
    '"reason": "outage-0619"',
    "STOPPED. stopped: order 1 is in force",
    r"credit: \d+ COMPLETED",
    "no invariant is breached",
    "What to try next",
    "remit lift",
)
"""What has to be told, in this order; regular expressions."""


@contextmanager
def watched_processes(mark: str) -> Iterator[None]:
    """AssertionError when processes of this home are left at the end."""
    yield
    running = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    left = [line for line in running if mark in line]
    assert left == []


def busy() -> float:
    """By how much others keep this machine busy: processes that want to run for each core, 1 when all find one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


FIXED_LOOP_SECONDS = 0.5
"""What the loop below takes on a machine that is not slowed down; the minute is meant for such a one."""


def slowed() -> float:
    """By how much slower than that this machine computes now, 1 at the least: a shared one may be twice as slow."""
    began = time.perf_counter()
    total = 0
    for number in range(10_000_000):
        total += number
    return max(1.0, (time.perf_counter() - began) / FIXED_LOOP_SECONDS)


@pytest.mark.slow
def test_the_whole_story_is_told_in_under_a_minute(bare: Remit) -> None:
    """Exit 0, every scene in its order, and neither process nor file is left."""
    slow_before = slowed()
    began = time.monotonic()
    process = bare.process("demo")
    out, errors = process.communicate(timeout=4 * LIMIT_SECONDS)
    took = time.monotonic() - began
    assert (process.returncode, errors) == (0, ""), out[-3000:]
    told = 0
    for passage in STORY:
        found = re.compile(passage).search(out, told)
        assert found is not None, passage
        told = found.start()
    home = re.search(r"REMIT_HOME=(\S+)", out)
    assert home is not None
    assert not Path(home[1]).exists()
    with watched_processes(home[1]):
        assert took < LIMIT_SECONDS * max(busy(), slow_before, slowed())
    assert out.count("$ remit ") >= 20


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(bare: Remit) -> None:
    """Ctrl-C in the first scene: 130, its processes are ended, its home is gone."""
    process = bare.process("demo")
    assert process.stdout is not None
    home = ""
    for line in process.stdout:
        if found := re.search(r"REMIT_HOME=(\S+)", line):
            home = found[1]
        if "fault add" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not Path(home).exists()
    with watched_processes(home):
        pass


def test_a_scene_that_goes_otherwise_is_named_and_its_home_kept(
    bare: Remit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit 1, with what happened, in which scene, and where to look."""

    async def otherwise(stage: Stage) -> NoReturn:
        stage.scene(1, "A scene of its own")
        await stage.remit("catalogue", "--check", expected=(4,))
        raise WentOtherwise

    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    monkeypatch.setattr(scenes, "bare_agent", otherwise)
    said = bare("demo", "--home", str(tmp_path / "kept"))
    assert said.code == 1
    for passage in ("ended with 0, not with [4]", "scene 1 (A scene of its own)", str(tmp_path / "kept")):
        assert passage in said.errors
    assert (tmp_path / "kept").is_dir()


def test_a_home_that_is_in_use_is_left_alone(bare: Remit, tmp_path: Path) -> None:
    """The demo plays in a fresh home or not at all."""
    (tmp_path / "ledger").write_text("precious")
    said = bare("demo", "--home", str(tmp_path))
    assert said.code == 2
    assert "not empty" in said.errors
