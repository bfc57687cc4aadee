"""The standing worker, as a process: it carries runs on, and ends cleanly when it is asked to."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from remit.sandbox import dump

from .conftest import Remit


def eventually(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    """Waits until the condition holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@contextmanager
def worker(remit: Remit) -> Iterator[subprocess.Popen[str]]:
    """A `remit work` in a process of its own, which does not outlive the test."""
    process = remit.process("work")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def approve(remit: Remit) -> None:
    remit.done("approve", remit.open_approval()["id"], "--token", "finance-lead")


def status(remit: Remit) -> str:
    return str(remit.json("runs")["runs"][0]["status"])


@pytest.mark.slow
def test_the_worker_carries_an_approved_run_to_its_end(asked: Remit) -> None:
    """Approval, settlement and the window of the e-mails: nobody resumes anything. SIGTERM is exit 0."""
    with worker(asked) as process:
        approve(asked)
        eventually(lambda: all(hold["hold_until"] for hold in asked.json("holds")["holds"]))
        assert asked.json("inbox")["warning"] is None
        asked.done("sandbox", "clock", "+1m")
        eventually(lambda: status(asked) == "COMPLETED")
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert "COMPLETED" in out
    assert "ends:" in out
    assert asked("sandbox", "check", "outage-0611", "--final").code == 0


@pytest.mark.slow
def test_a_worker_that_is_asked_to_end_finishes_what_it_sent(asked: Remit) -> None:
    """No attempt is left without an end, the run is let go, and another process takes it up at once."""
    words = ("payments", "delay_after", "POST /credits", "--times", "0", "--seconds", "0.7")
    asked.done("sandbox", "fault", "add", *words)
    approve(asked)
    with worker(asked) as process:
        eventually(lambda: bool(dump(asked.home)["credits"]))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    sent = [
        trace
        for credit in dump(asked.home)["credits"]
        for trace in asked.json("show", credit["reference"].partition(":")[2])["traces"]
    ]
    assert sent
    assert all(attempt["ended_at"] for trace in sent for attempt in trace["attempts"])
    assert not asked.json("runs")["runs"][0]["held"]
    asked.done("sandbox", "fault", "clear")
    assert asked("resume", "--wait").code == 0
    assert asked("sandbox", "check", "outage-0611", "--final").code == 0


@pytest.mark.slow
def test_a_worker_that_is_asked_to_end_during_a_long_call_leaves_it_to_be_verified(asked: Remit) -> None:
    """F51: SIGTERM during a call of 40 s: no other claim, an end within the grace, and the next worker verifies it."""
    asked.done("sandbox", "fault", "add", "payments", "delay_after", "POST /credits", "--seconds", "40")
    approve(asked)
    with worker(asked) as process:
        eventually(lambda: bool(dump(asked.home)["credits"]))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert not asked.json("runs")["runs"][0]["held"]
    assert asked("resume", "--wait").code == 0
    assert len(dump(asked.home)["credits"]) == 24
    assert asked("sandbox", "check", "outage-0611", "--final").code == 0


def test_one_pass_is_enough_for_what_is_ready(asked: Remit) -> None:
    """`work --once` sweeps, carries on, and ends."""
    approve(asked)
    out = asked.done("work", "--once")
    assert "1 run carried on" in out
    assert len(dump(asked.home)["credits"]) == 24


def test_an_interrupted_resume_ends_at_once_and_loses_nothing(asked: Remit) -> None:
    """Ctrl-C while it waits for a window: 130, and the run stands where it stood."""
    approve(asked)
    process = asked.process("resume", "--wait")
    eventually(lambda: all(hold["hold_until"] for hold in asked.json("holds")["holds"]))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not asked.json("runs")["runs"][0]["held"]
