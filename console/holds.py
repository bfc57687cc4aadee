"""`remit holds`: what leaves when, while it can still be kept back."""

from typing import Annotated, Any

import typer

from remit.checkpoints.database import Database, Row
from remit.console import identity
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import moment, quoted, span, subject_of
from remit.console.screen import listing, say, table
from remit.console.services import opened
from remit.tools.errors import Refused

app = typer.Typer(help="What leaves when; keep it back.")

_KEYS = ("id", "key", "step", "subject", "effect", "run_id", "hold_until", "hold_seconds", "obstacle")


@app.callback(invoke_without_command=True)
def holds(context: typer.Context, as_json: AsJson = False) -> None:
    """What waits for its window, soonest first."""
    if context.invoked_subcommand is None:
        go(_holds(as_json))


async def _holds(as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        found = await database.rows("holds")
        rows = [{key: row[key] for key in _KEYS} for row in found]
        if not await listing(database, "holds", rows, as_json=as_json):
            return
        table(
            ("operation", "key", "effect", "leaves"),
            [(r["id"], r["key"], r["effect"], _leaves(r)) for r in found],
        )
        say(
            "Keep one back: `remit holds cancel KEY --token FILE`."
            if found
            else "Nothing waits for its window."
        )


def _leaves(row: Row) -> str:
    if row["hold_until"] is not None:
        left = row["hold_until"] - row["now"]
        return f"{moment(row['hold_until'])} (in {span(left)})" if left.total_seconds() > 0 else "now"
    after = "what it requires" if row["obstacle"] == "requirement" else "its run goes on"
    return f"{span(row['hold_seconds'])} after {after}"


@app.command()
def cancel(
    which: Annotated[
        list[str], typer.Argument(metavar="KEY|SUBJECT...", help="Keys, operations or subjects.")
    ],
    token: Token = None,
) -> None:
    """Keep waiting messages back for good. Exit 1 where one was too late."""
    go(_cancel(which, token))


async def _cancel(which: list[str], token: str | None) -> int:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        chosen = {id_: key for text in which for id_, key in (await _matching(database, text)).items()}
        done = await people.cancel_holds(secret, list(chosen))
        for row in done:
            say(f"{chosen[row['operation_id']]}: {row['outcome']}")
    return Exit.DONE if all(row["outcome"] == "kept back" for row in done) else Exit.FAULT


async def _matching(database: Database, text: str) -> dict[int, str]:
    """Waiting operations by id: of this key, or all of this subject. A known key that does not wait is included, so
    that the answer says how late it is."""
    subject = subject_of(text)
    found: list[dict[str, Any]] = [
        row
        for row in await database.rows("holds")
        if text in {row["key"], str(row["id"])} or row["subject"] == subject
    ]
    found = found or (await database.rows("operation", which=text))[-1:]
    if not found:
        raise Refused(
            f"Nothing that waits is called {quoted(text)}. See `remit holds`.", code="no_such_operation"
        )
    return {row["id"]: row["key"] for row in found}
