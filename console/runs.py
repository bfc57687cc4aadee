"""`remit run` starts a run of a granted mandate, `remit runs` lists them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from remit.checkpoints.database import Row
from remit.console import carrying, identity, mandates, viewing
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import many, moment
from remit.console.screen import listing, print_json, say, table
from remit.console.services import opened

_MOST = 1_000


def run(
    mandate: Annotated[
        str, typer.Argument(metavar="MANDATE", help="A purpose, a hash, or a mandate's file.")
    ],
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Start a run of a granted mandate and carry it on until it pauses or ends.

    Exit 0 completed, 3 paused, 4 stopped or blocked, 5 open cases.
    """
    go(_run(mandate, token, as_json))


async def _run(which: str, token: str | None, as_json: bool) -> int:
    async with opened(acts=True) as services:
        database = await services.database()
        secret = identity.secret(services.settings, token)
        row = await mandates.find(viewing.Viewer(database, secret), which)
        driver = await services.driver(row["purpose"])
        run_id = await driver.start(secret, row["hash"])
        if not as_json:
            say(f"{run_id} for {row['purpose']} ({row['hash'][:15]}) has begun.")
        progress = None if as_json else carrying.Progress(database)
        stood = await carrying.drive(services, run_id, by_person=True, progress=progress)
        end = await carrying.described(services, stood)
    if as_json:
        print_json(end.document())
    else:
        carrying.tell(end)
    return end.code


_KEYS = (
    *("id", "purpose", "mandate_hash", "owner", "agent", "agent_version", "status", "reason", "waits"),
    *("created_at", "ended_at", "worker", "held", "order_id"),
)


def runs(
    every: Annotated[
        bool, typer.Option("--all", help="Also those that ended more than seven days ago.")
    ] = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """What is going on, newest first; with a token, as far as it may see."""
    go(_runs(every, token, as_json))


async def _runs(every: bool, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        found = await viewer.listed("run", await database.rows("runs", all=every, limit=_MOST), "id")
        waited = await database.rows("limits_waited_for")
        rows = [
            {key: row[key] for key in _KEYS} | {"limits": _waited_for(row["id"], waited)} for row in found
        ]
        if not await listing(database, "runs", rows, as_json=as_json):
            return
        shown = [
            (
                r["id"],
                r["purpose"],
                r["status"],
                "; ".join(part for part in (r["reason"], *map(_limit, r["limits"])) if part),
                r["worker"] if r["held"] else "nobody",
                moment(r["created_at"]),
            )
            for r in rows
        ]
        table(("run", "purpose", "status", "reason", "held by", "since"), shown)
        if not rows:
            say("There is no run yet. Next: `remit mandate grant FILE`, then `remit run PURPOSE`.")


def _waited_for(run_id: str, waited: Sequence[Row]) -> list[Row]:
    """The limits that actions of this run wait for: {name, count, turns}, `turns` null where no time brings it."""
    return [
        {key: row[key] for key in ("name", "count", "turns")} for row in waited if row["run_id"] == run_id
    ]


def _limit(waited: Row) -> str:
    return f"{many(waited['count'], 'action')} behind limit: {waited['name']}{carrying.until(waited)}"
