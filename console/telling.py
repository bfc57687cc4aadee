"""People are told while a worker works: the outbox is emptied beside its passes. `remit notices` shows what is in it.

Keeps the worker's passes free of whoever is told: a channel that hangs holds up notices and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import psycopg
import typer

from remit.checkpoints.notices import Notices
from remit.console import viewing
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import many, moment, quoted
from remit.console.screen import complain, listing, say, table
from remit.console.services import Services, opened
from remit.tools.errors import RemitError

_REST = 1.0
"""Seconds between two looks at the outbox."""

_MOST = 200


@asynccontextmanager
async def telling(services: Services) -> AsyncIterator[None]:
    """Empties the outbox while the block runs and once more at its end; does nothing where no channel is set."""
    notices = await services.notices()
    if notices is None:
        yield
        return
    ending = asyncio.Event()
    task = asyncio.create_task(_keep_telling(notices, ending))
    try:
        yield
    finally:
        ending.set()
        await task


async def _keep_telling(notices: Notices, ending: asyncio.Event) -> None:
    last = False
    while not last:
        last = ending.is_set()
        try:
            await notices.deliver()
        except (RemitError, psycopg.Error) as error:
            complain(
                f"Nobody could be told ({type(error).__name__}); it is tried again. See `remit db status`."
            )
        if not last:
            await _rest(ending)


async def _rest(ending: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_REST):
            await ending.wait()
    except TimeoutError:
        return


_KEYS = ("id", "kind", "run_id", "data", "at", "tries", "told_at", "error", "given_up")


def notices(
    all_: Annotated[bool, typer.Option("--all", help="Also what was told.")] = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """What people were not told yet, and why."""
    go(_list(all_, token, as_json))


async def _list(all_: bool, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        rows = await viewer.listed("run", await database.rows("notices", all=all_, limit=_MOST), "run_id")
        found = [{key: row[key] for key in _KEYS} for row in rows]
        if not await listing(database, "notices", found, as_json=as_json, needs_worker=True):
            return
        settings = services.settings
        if settings.notify_url is None and settings.notify_command is None:
            say("Nobody is told anything: set REMIT_NOTIFY_URL or REMIT_NOTIFY_COMMAND for `remit work`.")
        say(f"{many(len(found), 'notice')} {'in all' if all_ else 'not told'}.")
        if found:
            shown = [(r["kind"], r["run_id"] or "", moment(r["at"]), r["tries"], _state(r)) for r in found]
            table(("notice", "run", "since", "tries", "state"), shown)


def _state(row: dict[str, object]) -> str:
    if row["told_at"] is not None:
        return "told"
    if row["given_up"]:
        return "given up after a week"
    return f"not told: {quoted(str(row['error']))}" if row["error"] else "not told yet"
