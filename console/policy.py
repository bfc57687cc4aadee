"""`remit policy`: whether the engine that gives verdicts gives them."""

import typer

from remit.console.edge import go
from remit.console.options import AsJson
from remit.console.screen import print_json, say
from remit.console.services import opened

app = typer.Typer(no_args_is_help=True, help="The policy engine.")


@app.callback()
def _policy() -> None:
    """A group, so that `remit policy check` keeps its name however many commands there are."""


@app.command()
def check(as_json: AsJson = False) -> None:
    """Ask one known allow and one known deny. Exit 1 unless both come."""
    go(_check(as_json))


async def _check(as_json: bool) -> None:
    async with opened() as services:
        engine = await services.policy()
        await engine.check()
        kind = services.settings.engine
        if as_json:
            print_json({"engine": kind, "revision": engine.revision, "answers": True})
        else:
            say(
                f"The {kind} engine answers with policy {engine.revision}: a known allow and a known deny came back."
            )
