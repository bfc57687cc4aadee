"""The edge between commands and the terminal: how a command runs, and how it ends.

Keeps the promise that nobody sees a traceback for a mistake: what a person can act on is a sentence on the error
stream, and what nobody foresaw is written to a file that the message names.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir

import typer
from typer.exceptions import TyperException

from remit.console.exits import Exit
from remit.console.logs import quiet
from remit.console.screen import complain
from remit.tools.errors import RemitError

_SIGNAL_BASE = 128

DATABASE_AWAY = (
    "The database is away; what was recorded is safe. Start it with `remit db up`, then carry on with "
    "`remit resume`."
)


class Ended(Exception):
    """Ends the command with this exit code; whatever had to be said was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def go(command: Coroutine[None, None, int | None]) -> None:
    """Runs an async command to its end. SIGTERM ends it as Ctrl-C does: what is open is closed first."""
    try:
        code = asyncio.run(_terminable(command))
    except KeyboardInterrupt:
        # Said here, since typer would turn it into a mere exit code.
        complain("Interrupted. Nothing more was begun by this command.")
        raise Ended(_SIGNAL_BASE + signal.SIGINT) from None
    if code:
        raise Ended(code)


async def _terminable(command: Coroutine[None, None, int | None]) -> int | None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    _on_signal(loop, signal.SIGTERM, terminate)
    try:
        return await command
    except asyncio.CancelledError:
        if terminated:
            return _SIGNAL_BASE + signal.SIGTERM
        raise


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, then: Callable[[], None]) -> None:
    try:
        loop.add_signal_handler(number, then)
    except (RuntimeError, ValueError):
        # Not the main thread (a test, say): signals are somebody else's there.
        return


def run(build: Callable[[], typer.Typer], arguments: list[str]) -> int:
    """Builds the command and runs one command line. Returns its exit code, and never raises.

    Building is part of it, since its imports take long enough for somebody to press Ctrl-C.
    """
    try:
        quiet()
        code = build()(arguments, standalone_mode=False, prog_name="remit")
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the console's edge: nothing may leave it as a traceback
        return _ending(error)
    return code if isinstance(code, int) else Exit.DONE


def _ending(error: BaseException) -> int:
    match error:
        case Ended():
            return error.code
        case SystemExit():
            return error.code if isinstance(error.code, int) else Exit.FAULT
        case KeyboardInterrupt() | typer.Abort():
            return _SIGNAL_BASE + signal.SIGINT
        case BrokenPipeError():
            # The reader (a pager, say) has gone; the interpreter must not complain about it once more at exit.
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
            return _SIGNAL_BASE + signal.SIGPIPE
        case TyperException():
            message = error.format_message()
            complain(
                message if message.startswith("Usage:") else f"{message.rstrip('.')}. See `remit --help`."
            )
            return error.exit_code
        case RemitError():
            complain(str(error))
            return Exit.USAGE if error.code == "usage" else Exit.FAULT
        case _:
            return _unexpected(error)


def _unexpected(error: BaseException) -> int:
    """Says what kind of error it was and where the rest stands. No argument of it is shown: it may hold a secret."""
    module = type(error).__module__.partition(".")[0]
    if module in {"psycopg", "psycopg_pool"} and _away(error):
        complain(DATABASE_AWAY)
    elif module in {"psycopg", "psycopg_pool"}:
        complain(
            f"The database did not do what was asked ({type(error).__name__}). See `remit db status`; "
            f"the details are in {_written(error)}."
        )
    else:
        complain(f"Something unexpected happened ({type(error).__name__}). Report it with {_written(error)}.")
    return Exit.FAULT


def _away(error: BaseException) -> bool:
    """No connection, a lost one (SQLSTATE class 08), or a server that goes down or comes up (57P)."""
    # Slow to import, and loaded already where such an error comes from.
    from psycopg import OperationalError

    state = error.sqlstate if isinstance(error, OperationalError) else "no connection's error"
    return state is None or state.startswith(("08", "57P"))


def _written(error: BaseException) -> str:
    name = f"error-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.txt"
    text = "".join(traceback.format_exception(error))
    for folder in (_errors(), Path(gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = folder / name
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")
        except OSError:
            continue
        return str(file)
    return "no file, since none could be written"


def _errors() -> Path:
    # Not `settings.load()`: a wrong setting must not keep the error from being written.
    return Path(os.environ.get("REMIT_HOME") or ".remit") / "errors"
