"""Starting, finding and stopping the company's process from outside.

Whether it runs is asked of the operating system (a lock that the process holds for life), never of a
file that a killed process would have left behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from remit.sandbox import world
from remit.sandbox.store import folder

PATIENCE = 20.0
"""Seconds to wait for the process: some forty times what a start takes on a quiet machine."""


class SandboxError(RuntimeError):
    """The sandbox company could not do what was asked; the message says what to do next."""


@dataclass(frozen=True)
class SandboxInfo:
    """A running company: base URLs by service (accounts, payments, mail, model, control)."""

    home: Path
    pid: int
    urls: dict[str, str]
    already_running: bool = True


def info(home: Path) -> SandboxInfo | None:
    """The running company of a home, or None."""
    pid = _holder(home)
    if pid is None:
        return None
    try:
        found = json.loads((folder(home) / "sandbox.json").read_text("utf-8"))
    except OSError:
        return None
    return SandboxInfo(home, pid, found["urls"]) if found["pid"] == pid else None


def credentials(home: Path) -> dict[str, str]:
    """The credentials of a home's world by holder; SandboxError when it has no world."""
    try:
        found: dict[str, str] = json.loads((folder(home) / "credentials.json").read_text("utf-8"))
    except OSError:
        raise SandboxError("This home has no sandbox company yet. Reset it to make a fresh one.") from None
    return found


async def reset(home: Path, seed: int = world.SEED) -> SandboxInfo | None:
    """Replaces the world by a fresh one with new credentials. A running process is started anew."""
    running = await stop(home)
    world.create(home, seed)
    return await start(home) if running else None


async def start(home: Path) -> SandboxInfo:
    """Starts the company in a process of its own, making its world first where there is none.

    Where it runs already, that is what the answer says.
    """
    found = info(home)
    if found is not None:
        return found
    world.create_missing(home)
    pid = _spawn(home)
    found = await _until_listening(home, pid)
    return replace(found, already_running=found.pid != pid)


async def stop(home: Path) -> bool:
    """Ends the company's process and waits for that; False when none was running."""
    pid = _holder(home)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        while _holder(home) is not None:  # noqa: ASYNC110 - another process cannot set our event
            await asyncio.sleep(0.01)
    _reap(pid)
    return True


def _holder(home: Path) -> int | None:
    """The process that holds the home's lock."""
    try:
        lock = os.open(folder(home) / "serving.lock", os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(lock, 32)
        return int(text) if text else None
    finally:
        os.close(lock)
    return None


def _spawn(home: Path) -> int:
    """A detached process that outlives this one; its import path is this one's."""
    argv = [sys.executable, "-P", "-m", "remit.sandbox", "serve", "--home", str(home.resolve())]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    log = str(folder(home) / "sandbox.log")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {**os.environ, "PYTHONPATH": path}
    return os.posix_spawn(sys.executable, argv, environment, file_actions=files, setsid=True)


async def _until_listening(home: Path, pid: int) -> SandboxInfo:
    """The company that listens: the process ``pid``, or one that another start was quicker with."""
    ended = False
    try:
        async with asyncio.timeout(PATIENCE):
            while (found := info(home)) is None:
                ended = ended or _reap(pid)
                if ended and _holder(home) is None:
                    raise SandboxError(
                        "The sandbox company ended while it started. Read sandbox/sandbox.log."
                    )
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise SandboxError("The sandbox company does not answer. Read sandbox/sandbox.log.") from None
    if found.pid != pid and not ended:
        _discard(pid)
    return found


def _discard(pid: int) -> None:
    """Ends a start that came second: left alone, it would take over once the first one is stopped."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _reap(pid: int) -> bool:
    """Collects a child that has ended; False while it runs, and for what is not a child of ours."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
