"""`remit demo`: the whole story on the pretended company, with real processes, in about a minute.

Keeps its promise to leave nothing behind: processes, database and a home of its own are gone at the end. After a
failure the home is kept, and the message names it and the scene.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from remit.checkpoints import embedded
from remit.console import scenes
from remit.console.edge import Ended, go
from remit.console.exits import Exit
from remit.console.screen import complain, heading, say
from remit.console.stage import Stage
from remit.tools.errors import Misconfigured, Refused, RemitError


def demo(
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Play it here and keep the world; else it is temporary."),
    ] = None,
) -> None:
    """The whole story on the sandbox: a double credit, an approval, a lost reply, a stop. About a minute."""
    folder = _source()
    if home is not None and home.exists() and any(home.iterdir()):
        raise Refused(
            f"{home} is not empty, and the demo plays in a fresh home. Name another folder.", code="usage"
        )
    stage = Stage((home or Path(tempfile.mkdtemp(prefix="remit-demo-"))).resolve(), folder)
    stage.home.mkdir(parents=True, exist_ok=True)
    go(_demo(stage, keep=home is not None))


def _source() -> Path:
    """The folder that holds `mandates/`: of the working directory, or of the source tree."""
    for folder in (Path.cwd(), Path(__file__).resolve().parent.parent):
        if (folder / "mandates" / "outage-0611.yaml").is_file():
            return folder
    raise Misconfigured(
        "The demo plays with the mandates of Remit's source tree, and there are none here. Run it there: make demo.",
        code="no_mandates",
    )


async def _demo(stage: Stage, *, keep: bool) -> None:
    say("A stopped agent is a fact about the agent. Safe recovery is a claim about the world.")
    say(f"Every command below is real; to repeat one, set REMIT_HOME={stage.home}")
    failed = True
    try:
        await _play(stage)
        failed = False
    except asyncio.CancelledError:
        # Somebody at the terminal has seen enough: that is no failure that a home would have to be kept for.
        failed = False
        raise
    except RemitError as error:
        complain(str(error))
        raise Ended(Exit.FAULT) from error
    finally:
        await _leave(stage, keep=keep or failed)
        if failed:
            complain(f"The demo broke off in {stage.part}. Its home is kept: {stage.home}")
    _what_next(stage, keep)


async def _play(stage: Stage) -> None:
    await scenes.bare_agent(stage)
    run = await scenes.delegation(stage)
    await scenes.approval(stage)
    await scenes.recovery(stage, run)
    await scenes.stop(stage)


async def _leave(stage: Stage, *, keep: bool) -> None:
    """Nothing of the demo runs afterwards; with `keep` its files stay."""
    from remit.sandbox import stop

    await stage.clear()
    await stop(stage.home)
    if keep:
        await embedded.down(stage.home)
        return
    await embedded.remove(stage.home)
    shutil.rmtree(stage.home)


def _what_next(stage: Stage, keep: bool) -> None:
    say("")
    heading("What to try next")
    if keep:
        say(f"  The world is kept. Go on in it: export REMIT_HOME={stage.home}; remit sandbox up")
        say("  Lift the stop:                 remit lift 1 --token support-manager")
        say(
            "  Propose what is missing:       remit run outage-0619 --token support-manager; remit resume --wait"
        )
    else:
        say(
            "  Keep the world and go on:      remit demo --home DIR, then remit lift and remit run outage-0619"
        )
        say("  Play it yourself:              remit sandbox up")
    say("  The contracts of the tools:    remit catalogue")
    say("  Break something:               remit sandbox fault add payments refuse --seconds 20")
    say("  All commands:                  remit --help")
