"""How commands end: exit codes, sentences instead of tracebacks, and nothing lost of what nobody foresaw."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import typer
from psycopg_pool import PoolTimeout

from remit.console import edge
from remit.console.exits import Exit, exit_of_run
from remit.console.main import app, command
from remit.tools.errors import LeaseLost, Misconfigured, NotSent, Refused
from remit.tools.states import RunStatus

from .conftest import environment

SINGLE = [
    "demo",
    "run",
    "runs",
    "show",
    "inbox",
    "approve",
    "reject",
    "resume",
    "work",
    "stop",
    "lift",
    "status",
    "catalogue",
]
GROUPS = ["mandate", "token", "holds", "policy", "db", "sandbox"]


def running(body: Callable[[], None]) -> int:
    """The exit code of a command with this body."""
    built = typer.Typer()
    built.callback()(lambda: None)
    built.command("it")(body)
    return edge.run(lambda: built, ["it"])


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    "error",
    [
        Refused("No. Correct it."),
        NotSent("Not now. Try again."),
        Misconfigured("Wrong. Set it."),
        LeaseLost("Gone."),
    ],
)
def test_what_a_person_can_act_on_is_a_sentence(
    error: Exception, capsys: pytest.CaptureFixture[str], clean: Path
) -> None:
    """Exit 1, the message on the error stream, no traceback anywhere."""
    assert running(raising(error)) == Exit.FAULT
    said = capsys.readouterr()
    assert said.err == f"{error}\n"
    assert said.out == ""
    assert not (clean / "errors").exists()


def test_what_nobody_foresaw_is_kept_in_a_file(capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """One line with the file's name; its arguments, which may hold a secret, are in the file alone, readable by one."""
    assert running(raising(ZeroDivisionError("secret"))) == Exit.FAULT
    said = capsys.readouterr().err
    (file,) = (clean / "errors").iterdir()
    assert str(file) in said
    assert len(said.splitlines()) == 1
    assert "secret" not in said
    assert "Traceback" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_error_file_has_a_place_even_without_a_home(
    capsys: pytest.CaptureFixture[str], clean: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A home that cannot be made is the likeliest moment for an unforeseen error."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMIT_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(edge, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    assert running(raising(ZeroDivisionError())) == Exit.FAULT
    assert str(tmp_path / "elsewhere") in capsys.readouterr().err


def test_a_database_that_refuses_is_named_as_such(capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """The remedy is another one than for a defect."""
    assert running(raising(psycopg.errors.DiskFull("no space"))) == Exit.FAULT
    assert "`remit db status`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [PoolTimeout("none free"), psycopg.OperationalError("gone"), psycopg.errors.AdminShutdown("ends")],
)
def test_a_database_that_is_away_is_started_again(
    error: Exception, capsys: pytest.CaptureFixture[str], clean: Path
) -> None:
    """What was recorded is safe, and the way on is named; there is nothing to report."""
    assert running(raising(error)) == Exit.FAULT
    assert capsys.readouterr().err == edge.DATABASE_AWAY + "\n"
    assert not (clean / "errors").exists()


def test_an_interrupt_is_no_error(capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """130, as shells expect it, and a word about what it means."""

    async def interrupted() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    assert running(lambda: edge.go(interrupted())) == 128 + signal.SIGINT
    assert "Nothing more was begun" in capsys.readouterr().err


def test_sigterm_ends_an_async_command_and_closes_what_is_open() -> None:
    """143, after the cleanup."""
    closed = []

    async def waiting() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    with pytest.raises(edge.Ended) as ended:
        edge.go(waiting())
    assert (ended.value.code, closed) == (128 + signal.SIGTERM, [True])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["runs", "--nonsense"],
        ["sandbox"],
        ["sandbox", "clock", "2"],
        ["status", "104", "--tell", "x"],
    ],
)
def test_wrong_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """Nothing was begun, and the message is about the command line."""
    assert command(words) == Exit.USAGE
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert said.err + said.out


def test_a_word_that_is_no_text_stops_no_command(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes from another encoding arrive as surrogates, which no database takes."""
    assert command(["catalogue", "--check", "\udcff"]) == Exit.USAGE
    assert "\ufffd" in capsys.readouterr().err


def test_help_names_every_command_of_the_design(capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """`remit --help` is the table of contents."""
    assert command(["--help"]) == Exit.DONE
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {*SINGLE, *GROUPS} <= shown


@pytest.mark.parametrize("name", [*SINGLE, *GROUPS])
def test_each_command_loads_alone(name: str, capsys: pytest.CaptureFixture[str], clean: Path) -> None:
    """A command's help needs no database, no company and no other command."""
    assert edge.run(lambda: app([name]), [name, "--help"]) == Exit.DONE
    assert "Usage: remit" in capsys.readouterr().out


def test_a_small_command_imports_no_graph(clean: Path) -> None:
    """A stop has to be quick: LangGraph and the model's client are for those who run one."""
    code = (
        "import sys; from remit.console.main import app; app(['stop', 'inbox', 'approve']);"
        "sys.exit('langgraph.graph' in sys.modules or 'openai' in sys.modules or 'remit.sandbox' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment()).returncode == 0


@pytest.mark.parametrize(
    ("status", "waits", "cases", "code"),
    [
        (RunStatus.COMPLETED, {}, 0, Exit.DONE),
        (RunStatus.COMPLETED, {}, 1, Exit.CASES),
        (RunStatus.PAUSED, {"settlement": 2}, 0, Exit.PAUSED),
        (RunStatus.PAUSED, {"settlement": 2, "case": 1}, 1, Exit.PAUSED),
        (RunStatus.PAUSED, {"case": 1}, 1, Exit.CASES),
        (RunStatus.PAUSED_AWAITING_APPROVAL, {"approval": 24}, 0, Exit.PAUSED),
        (RunStatus.RUNNING, {}, 0, Exit.PAUSED),
        (RunStatus.STOPPED, {}, 0, Exit.STOPPED),
        (RunStatus.STOPPED, {}, 1, Exit.STOPPED),
        (RunStatus.BLOCKED, {}, 0, Exit.STOPPED),
        (RunStatus.INCOMPLETE, {}, 0, Exit.STOPPED),
        (RunStatus.INCOMPLETE, {}, 2, Exit.CASES),
    ],
)
def test_the_exit_code_tells_how_a_run_stands(
    status: RunStatus, waits: dict[str, int], cases: int, code: Exit
) -> None:
    """0 is said of a completed run without open cases, and of nothing else."""
    assert exit_of_run(status, waits, cases) == code
