"""A process that has imported everything and forks the workers of the matrix, since imports would dominate the time.

`python -m tests.matrix.fork_server` reads lines {id, order} and writes lines {id, pid}, then {id, stopped: true} when
that process suspended itself, and {id, code, points} when it ended: negative codes are signals, as in subprocess.
No event loop, thread or connection exists before the fork.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from typing import Any

from remit.checkpoints.database import queries
from tests.matrix.company import matrix_catalogue
from tests.matrix.order import Order
from tests.matrix.story import tell


class Children:
    """The forked workers by their pid; none outlives this process."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._pipes: dict[int, int] = {}

    def fork(self, id_: int, order: Order) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(order, writing)
        os.close(writing)
        self._ids[pid], self._pipes[pid] = id_, reading
        _say({"id": id_, "pid": pid})

    def reap(self) -> None:
        """Says what became of those that ended or suspended themselves since the last time."""
        while self._ids:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                _say({"id": self._ids[pid], "stopped": True})
                continue
            with os.fdopen(self._pipes.pop(pid)) as pipe:
                points = pipe.read().split()
            _say({"id": self._ids.pop(pid), "code": os.waitstatus_to_exitcode(status), "points": points})

    def kill(self) -> None:
        for pid in self._ids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _work(order: Order, writing: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        points = asyncio.run(tell(order))
        os.write(writing, " ".join(points).encode())
        os._exit(0)
    finally:
        # Whatever it was: a fork never returns into the loop of the server.
        traceback.print_exc()
        os._exit(1)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def warm() -> None:
    """What every worker needs and none changes, made once."""
    queries()
    matrix_catalogue().openai_tools()
    gc.freeze()


def main() -> None:
    warm()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    os.set_blocking(sys.stdin.fileno(), False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    children, selector = Children(), selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    rest = b""
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if woken in ready:
            os.read(woken, 4096)
            children.reap()
        if sys.stdin.fileno() in ready:
            read = os.read(sys.stdin.fileno(), 1 << 16)
            if not read:
                children.kill()
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                children.fork(asked["id"], Order(**asked["order"]))


if __name__ == "__main__":
    main()
