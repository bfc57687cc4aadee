"""The stage of the demo: real `remit` processes on a home of their own, each printed before it runs.

Keeps the demo honest and clean: what is shown is what the command printed, a scene that goes otherwise than told is an
error, and every process that was started is ended whatever happens.
"""

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

from remit.console.screen import heading, say
from remit.tools.errors import RemitError

_COMMAND = (sys.executable, "-P", "-m", "remit.console.main")

_SECONDS = 45.0
"""For one command: many times what any of them takes, and still an end."""

_POLL = 0.1


class WentOtherwise(RemitError):
    """A command of the demo did not do what the story tells. Look at the home that is named, or report it."""


class Command:
    """One `remit` process that was begun."""

    def __init__(self, words: tuple[str, ...], process: asyncio.subprocess.Process) -> None:
        self.words = words
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def finished(self, expected: Collection[int] = (0,)) -> str:
        """Its output, once it has ended. Raises WentOtherwise for another exit code, or when it does not end."""
        try:
            async with asyncio.timeout(_SECONDS):
                output, errors = await self.process.communicate()
        except TimeoutError:
            raise WentOtherwise(
                f"`{_line(self.words)}` did not end within {_SECONDS:.0f} s.", code="slow"
            ) from None
        text = output.decode(errors="replace") + errors.decode(errors="replace")
        if self.process.returncode not in expected:
            raise WentOtherwise(
                f"`{_line(self.words)}` ended with {self.process.returncode}, not with {sorted(expected)}: "
                f"{text[-2000:]}",
                code="exit",
            )
        return text

    async def end(self) -> None:
        """Ends it, gently first; nothing happens when it has ended."""
        if self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(5):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class Stage:
    """Where the commands run: a home, and the folder that holds `mandates/`."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.part = "the beginning"
        self._folder = folder
        self._begun: list[Command] = []
        self._started = time.monotonic()

    def scene(self, number: int, title: str) -> None:
        """A headline, with the seconds since the beginning."""
        self.part = f"scene {number} ({title})"
        say("")
        heading(f"== {number}. {title}  ({time.monotonic() - self._started:.0f} s)")

    async def remit(
        self, *words: str, expected: Collection[int] = (0,), lines: int | None = None, last: int = 0
    ) -> str:
        """Print a command, run it to its end, print what it said, and return that.

        Printed are all lines, or the first `lines` of them, or the last `last`.
        """
        output = await (await self.begin(*words)).finished(expected)
        if last:
            self.show("\n".join(output.rstrip().splitlines()[-last:]))
        else:
            self.show(output, lines)
        return output

    async def begin(self, *words: str) -> Command:
        """Print a command and begin it."""
        say(f"$ remit {_line(words)}", style="bold cyan")
        return await self._start(words)

    def show(self, output: str, lines: int | None = None) -> None:
        """What a command said, indented."""
        kept = output.rstrip().splitlines()
        say(*(f"  | {line}".rstrip() for line in kept[:lines]))
        if lines is not None and len(kept) > lines:
            say(f"  | ... ({len(kept) - lines} more lines)")

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Waits until the condition holds. Raises WentOtherwise when it does not in time."""
        deadline = time.monotonic() + _SECONDS
        while not await condition():
            if time.monotonic() > deadline:
                raise WentOtherwise(f"{what} did not come about within {_SECONDS:.0f} s.", code="slow")
            await asyncio.sleep(_POLL)

    async def clear(self) -> None:
        """Ends every process that was begun here and has not ended."""
        for command in self._begun:
            await command.end()

    async def _start(self, words: tuple[str, ...]) -> Command:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            *words,
            cwd=self._folder,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A Ctrl-C at the terminal is for the demo, which then ends its commands one by one.
            start_new_session=True,
        )
        command = Command(words, process)
        self._begun.append(command)
        return command

    def _environment(self) -> dict[str, str]:
        """Nothing of the caller's installation: the demo must not touch a real one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
        if path := kept.get("PYTHONPATH"):
            # The commands run in another folder than this process, so relative entries would lead elsewhere.
            kept["PYTHONPATH"] = os.pathsep.join(
                str(Path(entry).resolve()) for entry in path.split(os.pathsep) if entry
            )
        # Some twenty processes compile the same sources again and again where images forbid to keep the result.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**kept, "REMIT_HOME": str(self.home)}


def _line(words: tuple[str, ...]) -> str:
    return shlex.join(words)
