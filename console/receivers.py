"""`remit receivers`: which company systems may be called now, which not, why, and what waits for them."""

from typing import Any

from remit.checkpoints.database import Row
from remit.console.edge import go
from remit.console.options import AsJson
from remit.console.render import moment
from remit.console.screen import listing, say, table
from remit.console.services import opened
from remit.tools.catalogue import RECEIVERS

_KEYS = ("detail", "failures", "since", "waiting")


def receivers(as_json: AsJson = False) -> None:
    """The company's systems: whose door is open, whose closed, since when and why, and how many actions wait."""
    go(_receivers(as_json))


async def _receivers(as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        known = {row["name"]: row for row in await database.rows("receivers")}
        rows = [_described(name, known.get(name)) for name in sorted({*RECEIVERS, *known})]
        if not await listing(database, "receivers", rows, as_json=as_json):
            return
        names = ("receiver", "state", "since", "why", "failures in a row", "next try", "waiting")
        table(names, [_shown(row) for row in rows])
        if all(row["state"] == "open" for row in rows):
            say("All are open.")


def _described(name: str, row: Row | None) -> dict[str, Any]:
    """`state` is open, closed or probing; `reason` and `next_probe` are null while it is open."""
    # Nobody had trouble with it yet: open, for as long as anybody knows.
    row = row or {"closed": None, "probe_at": None, "detail": "", "failures": 0, "since": None, "waiting": 0}
    state = "open" if row["closed"] is None else "probing" if row["probing"] else "closed"
    described = {"name": name, "state": state, "reason": row["closed"], "next_probe": row["probe_at"]}
    return described | {key: row[key] for key in _KEYS}


def _shown(row: dict[str, Any]) -> tuple[object, ...]:
    since = "" if row["since"] is None else moment(row["since"])
    probe = "" if row["next_probe"] is None else moment(row["next_probe"])
    return row["name"], row["state"], since, row["detail"], row["failures"], probe, row["waiting"]
