"""`remit holds`: what leaves when, while it can still be kept back, sent now or moved.

Keeps I6 for windows: the database decides in one step against the sender, and what is printed is what it found.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from remit.checkpoints.database import Database, Row
from remit.checkpoints.people import People
from remit.console import identity, viewing
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import moment, quoted, span, subject_of
from remit.console.screen import listing, say, table
from remit.console.services import opened
from remit.console.times import moment_of, seconds_of
from remit.tools.errors import Refused

app = typer.Typer(help="What leaves when; keep it back, send it now, or move it.")

_KEYS = ("id", "key", "step", "subject", "effect", "run_id", "hold_until", "hold_seconds", "obstacle")
_MORE = ("not_before", "release_by")

_Which = Annotated[list[str], typer.Argument(metavar="KEY|SUBJECT...", help="Keys, operations or subjects.")]

_Change = Callable[[People, str, Sequence[int]], Awaitable[list[Row]]]


@app.callback(invoke_without_command=True)
def holds(context: typer.Context, token: Token = None, as_json: AsJson = False) -> None:
    """What waits for its window, soonest first."""
    if context.invoked_subcommand is None:
        go(_holds(token, as_json))


async def _holds(token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        found = await viewer.listed("hold", await database.rows("holds"), "id")
        rows = [{key: row[key] for key in (*_KEYS, *_MORE)} for row in found]
        if not await listing(database, "holds", rows, as_json=as_json):
            return
        table(
            ("operation", "key", "effect", "leaves", "may send it now"),
            [(r["id"], r["key"], r["effect"], _leaves(r), " or ".join(r["release_by"])) for r in found],
        )
        say(
            "Keep one back: `remit holds cancel KEY --token FILE`. Move it: `remit holds reschedule KEY --by 2h`. "
            "Send it now: `remit holds release KEY`."
            if found
            else "Nothing waits for its window."
        )


def _leaves(row: Row) -> str:
    if row["hold_until"] is not None:
        left = row["hold_until"] - row["now"]
        return f"{moment(row['hold_until'])} (in {span(left)})" if left.total_seconds() > 0 else "now"
    after = "what it requires" if row["obstacle"] == "requirement" else "its run goes on"
    later = "" if row["not_before"] is None else f", not before {moment(row['not_before'])}"
    return f"{span(row['hold_seconds'])} after {after}{later}"


@app.command()
def cancel(which: _Which, token: Token = None) -> None:
    """Keep waiting messages back for good. Exit 1 where one was too late."""
    go(_change(which, token, lambda people, secret, ids: people.cancel_holds(secret, ids)))


@app.command()
def release(which: _Which, token: Token = None) -> None:
    """Let waiting messages leave now, as whom policy names for it, outside the chain. Exit 1 where one may not."""
    go(_change(which, token, lambda people, secret, ids: people.release_holds(secret, ids)))


@app.command()
def reschedule(
    which: _Which,
    to: Annotated[
        str | None, typer.Option("--to", metavar="MOMENT", help="With its zone: 2026-06-12T09:30Z.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="TIME", help="From when it would leave: 30s, 5m, 2h, 1d, -5m."),
    ] = None,
    token: Token = None,
) -> None:
    """Have waiting messages leave at another time: later as anybody, earlier as who may release them."""
    go(_reschedule(which, to, by, token))


async def _reschedule(which: list[str], to: str | None, by: str | None, token: str | None) -> int:
    seconds = None if by is None else seconds_of(by)
    if (to is None) == (by is None) or seconds == 0 or (by is not None and seconds is None):
        raise Refused(
            "A window is moved to a moment or by a time. Give one of `--to 2026-06-12T09:30Z` and `--by 2h`.",
            code="usage",
        )
    moment_ = None if to is None else moment_of(to)
    return await _change(
        which, token, lambda people, secret, ids: people.reschedule_holds(secret, ids, to=moment_, by=seconds)
    )


async def _change(which: list[str], token: str | None, change: _Change) -> int:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        chosen = {id_: key for text in which for id_, key in (await _matching(database, text)).items()}
        done = await change(people, secret, list(chosen))
        for row in done:
            say(f"{chosen[row['operation_id']]}: {sentence(row)}")
    return Exit.DONE if all(row["outcome"] in _DONE for row in done) else Exit.FAULT


_DONE = {"kept_back", "released", "rescheduled"}

_FIRST = {
    "approval": "a person approved it",
    "requirement": "what it requires is completed",
    "policy": "policy has judged it",
    "freeze": "the freeze over it is lifted",
}
"""What `released` waits for where more than its window stood in the way."""

_SAID = {
    "kept_back": "kept back; it is not sent.",
    "being_sent": "too late: it is being sent already. What comes of it is looked up{again}: `remit show`.",
    "sent": "too late: it was sent already ({detail}). See `remit status`.",
    "not_known": "too late: it was with a sender already, and nobody knows yet whether it was sent. That is looked "
    "up{again}: `remit show`.",
    "closed": "too late: it was closed before ({detail}). Nothing was changed.",
    "rescheduled": "leaves on {leaves}.",
    "no_window": "policy demands no window for it, so nothing was moved. Keep it back with `remit holds cancel`.",
    "stop": "order {detail} stands over it, so it does not leave at all. See `remit runs`.",
    "mandate": "its mandate is not in force, so it does not leave at all. See `remit mandate show`.",
    "not_begun": "its window has not begun, so there is no time to count from. Give a moment: `--to "
    "2026-06-12T09:30Z`.",
    "past": "{leaves} is over. Send it now with `remit holds release`, or give a later moment.",
    "beyond_mandate": "not moved: its mandate ends on {leaves}. Give an earlier moment.",
    "beyond_approval": "not moved: its approval holds until {leaves}. Give an earlier moment.",
    "in_the_chain": "not allowed: this person stands in the chain of its run, and may not shorten its window. Ask "
    "somebody outside it.",
    "wrong_role": "not allowed: {detail} may shorten its window. Have it leave later, or keep it back.",
}
"""A sentence for each outcome of `remit.hold_changes`; the last part says what to do next where it was refused."""


def sentence(row: Row) -> str:
    """What one row of `remit.hold_changes` says: what really happened, as the database found it."""
    leaves = None if row["leaves"] is None else moment(row["leaves"])
    match row["outcome"], row["detail"]:
        case "released", None:
            return "released; it leaves now."
        case "released", obstacle:
            first = _FIRST.get(obstacle, f"nothing else stands in the way ({obstacle})")
            return f"released; it leaves as soon as {first}."
        case "rescheduled", "earliest":
            return f"leaves after its window, and no earlier than {leaves}."
    again = ", and it is not sent again" if row["verb"] == "cancel" else ""
    return _SAID[row["outcome"]].format(detail=row["detail"] or "nobody", leaves=leaves, again=again)


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
