"""`remit limits`: every limit and automatic budget in its current window, with what is reserved of it.

Keeps one rule for whoever reads it: what nobody knows the outcome of is counted, and shown apart.
"""

from typing import Annotated

import typer

from remit.checkpoints.database import Row
from remit.console import viewing
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import moment, money
from remit.console.screen import listing, say, table
from remit.console.services import opened

_MOST = 1_000


def limits(
    which: Annotated[
        str | None, typer.Argument(metavar="PURPOSE|EFFECT|SUBJECT", help="Only those of this one.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also windows that are over.")] = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """What is used of each limit, of which unknown, and what waits for it."""
    go(_limits(which, every, token, as_json))


async def _limits(which: str | None, every: bool, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        zone = (await database.rows("installation"))[0]["zone"]
        viewer = await viewing.viewer(services, token)
        found = await database.rows("limits", which=which, every=every, limit=_MOST)
        rows = await viewer.listed("purpose", found, "purpose")
        if not await listing(database, "limits", rows, as_json=as_json, zone=zone):
            return
        columns = ("limit", "of", "window", "used", "of which unknown", "waiting")
        table(columns, [(r["name"], _of(r), _window(r), _used(r), _unknown(r), r["waiting"]) for r in rows])
        say(
            f"Days and months are those of {zone}. What is above an automatic budget is asked about."
            if rows
            else "Nothing was claimed under a limit yet. Next: `remit runs`."
        )


def _of(row: Row) -> str:
    return " ".join(part for part in (row["purpose"] or "all purposes", row["subject"]) if part)


def _window(row: Row) -> str:
    return "ever" if row["ends"] is None else f"{row['window']} until {moment(row['ends'])}"


def _used(row: Row) -> str:
    parts = []
    if row["most_count"] is not None:
        parts.append(f"{row['count']} of {row['most_count']}")
    if row["most_amount_minor"] is not None:
        used, most = (money(row[name], row["currency"]) for name in ("amount_minor", "most_amount_minor"))
        parts.append(f"{used} of {most}")
    return ", ".join(parts)


def _unknown(row: Row) -> str | None:
    if not row["unknown_count"]:
        return None
    amount = money(row["unknown_amount_minor"], row["currency"]) if row["currency"] else ""
    return ", ".join(part for part in (str(row["unknown_count"]), amount) if part)
