"""What a command prints: sentences, tables, JSON, and what stands over every listing.

Keeps one rule for all screens: nothing is interpreted. Every cell is made safe, no markup is read, and JSON is ASCII.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remit.console.render import many, moment, quoted, safe, span
from remit.tools.doors import Met, remedy

if TYPE_CHECKING:
    from remit.checkpoints.database import Database, Row

STALE_SECONDS = 30.0
"""A worker sweeps about every second; after this long without one, people should know."""

_WIDE = 200
"""Columns where no terminal says otherwise: a log keeps whole lines."""


@cache
def _console() -> Console:
    return Console(
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=True,
        width=None if sys.stdout.isatty() else _WIDE,
    )


def say(*lines: str, style: str = "") -> None:
    """Sentences of our own; whatever they quote has to be quoted already. Made safe once more all the same."""
    for line in lines:
        _console().print(Text(safe(line), style=style))


def heading(line: str) -> None:
    """One line that stands out."""
    say(line, style="bold")


def complain(message: str) -> None:
    """A sentence or two for people on the error stream; their line breaks are kept."""
    for line in message.splitlines():
        print(safe(line), file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table. Numbers stand on the right; None is an empty cell."""
    kept = [list(row) for row in rows]
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(columns):
        numbers = bool(kept) and all(isinstance(row[index], int) or row[index] is None for row in kept)
        shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in kept:
        shown.add_row(*(Text("" if cell is None else safe(cell)) for cell in row))
    _console().print(shown)


def print_json(value: object) -> None:
    """One JSON document. Times are ISO 8601, durations seconds; everything beyond ASCII is escaped."""
    print(json.dumps(value, default=_plain, indent=2), flush=True)


def _plain(value: object) -> object:
    match value:
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form here")


_ORDER_KEYS = ("id", "kind", "scope", "value", "reason", "issued_by", "issued_at")


async def standing_orders(database: "Database") -> "list[Row]":
    """Every order that is in force, oldest first."""
    return [{key: row[key] for key in _ORDER_KEYS} for row in await database.rows("orders", all=False)]


def order_line(order: "Row") -> str:
    """One order as a sentence."""
    over = order["scope"] if order["scope"] == "all" else f"{order['scope']} {order['value']}"
    since = moment(order["issued_at"])
    first = "`remit db verify`, then " if order["kind"] == "restore" else ""
    reason = quoted(order["reason"]) if order["reason"] else "no reason given"
    return (
        f"{order['kind'].upper()} in force over {over} since {since}, by {order['issued_by']}: "
        f"{reason} (order {order['id']}; {first}`remit lift {order['id']}`)"
    )


_CLOSED = {
    "silent": "gives no answer",
    "gone": "cannot be reached",
    "credential": "refuses our credential",
}


async def closed_doors(database: "Database") -> "list[Row]":
    """Every receiver whose door is closed, with why, since when, when it is tried next, and how much waits for it."""
    return [row for row in await database.rows("receivers") if row["closed"] is not None]


def door_line(door: "Row") -> str:
    """One closed door as a sentence, and what a person does about it."""
    ahead = (door["probe_at"] - door["now"]).total_seconds()
    tried = (
        "is being tried"
        if door["probing"]
        else f"is tried again in {span(ahead)}"
        if ahead > 0
        else "is tried next"
    )
    return (
        f"CLOSED since {moment(door['since'])}: {door['name']} {_CLOSED[door['closed']]} ({door['detail']}); "
        f"{many(door['waiting'], 'action')} waiting, and it {tried}. {remedy(Met(door['closed']))}"
    )


async def sweep_warning(database: "Database") -> str | None:
    """A sentence when no worker has swept for a while, since settlement and expiry depend on one."""
    row = await database.row("last_sweep")
    if row is None or row["seen_at"] is None:
        ago = "yet"
    else:
        idle = row["now"] - row["seen_at"]
        if idle.total_seconds() < STALE_SECONDS:
            return None
        ago = f"for {span(idle)}"
    return f"No worker has swept {ago}, so nothing settles or expires by itself. Start `remit work`."


async def _warning(database: "Database") -> str | None:
    """What keeps a listing from being up to date, or people from knowing of it."""
    from remit.checkpoints.notices import untold

    sentences = [await sweep_warning(database)]
    if (lost := await untold(database)) is not None:
        count, since, error = lost
        sentences.append(
            f"{many(count, 'notice')} could not be delivered, the first of {moment(since)}: {error} "
            "See `remit notices`."
        )
    return " ".join(sentence for sentence in sentences if sentence) or None


STUCK_SECONDS = 300.0
"""A look at what was sent pushes the next one on by half a minute at most; ten times that without one is no waiting."""


async def stuck(database: "Database") -> "Row":
    """What was sent, is not final and no case, and was not looked at or not known for too long: {count, seconds}.

    `seconds` is the age of the oldest, None without any. Zero in a healthy installation: recovery has lost nothing.
    """
    return await database.row("stuck", seconds=STUCK_SECONDS) or {"count": 0, "seconds": None}


async def stuck_warning(database: "Database") -> str | None:
    """A sentence where something is stuck."""
    found = await stuck(database)
    if not found["count"]:
        return None
    oldest = span(found["seconds"])
    return (
        f"{many(found['count'], 'sent action')} stuck for more than {span(STUCK_SECONDS)}, the oldest for "
        f"{oldest}: sent, not final, and nobody's case. Start `remit work`, and look at the receivers."
    )


async def listing(
    database: "Database",
    noun: str,
    rows: Sequence[Any],
    *,
    as_json: bool,
    needs_worker: bool = False,
    **more: Any,
) -> bool:
    """What stands over a listing; with `as_json` the whole of it. True when the rows are still to be shown.

    The JSON is `{"orders": [...], "closed": [...], NOUN: [...]}`, `closed` being the receivers that nobody may call
    now, with `warning` (text or null) where a worker matters.
    """
    orders, doors = await standing_orders(database), await closed_doors(database)
    warning = await _warning(database) if needs_worker else None
    if as_json:
        document = {
            "orders": orders,
            "closed": doors,
            **({"warning": warning} if needs_worker else {}),
            **more,
            noun: rows,
        }
        print_json(document)
        return False
    for order in orders:
        say(order_line(order), style="bold red")
    for door in doors:
        say(door_line(door), style="bold red")
    if warning is not None:
        say(warning, style="yellow")
    return True
