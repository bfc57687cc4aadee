"""`remit db`: the database's parts. Migrations run here, under their lock, and in no other command but `sandbox up`.

A ledger that came out of a backup is said and verified here; `remit lift` lets things go on.
"""

import asyncio
from typing import Annotated

import typer

from remit.checkpoints import embedded
from remit.checkpoints.database import Row
from remit.checkpoints.restores import Restores, Verified, bound_seconds
from remit.console import access, identity
from remit.console.edge import DATABASE_AWAY, go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import many, moment
from remit.console.screen import order_line, print_json, say, stuck
from remit.console.services import Services, opened
from remit.console.settings import Settings, load, require_installation
from remit.tools.errors import Refused, RemitError

app = typer.Typer(no_args_is_help=True, help="The database: start, stop, look.")


@app.command()
def up() -> None:
    """Start the embedded Postgres where it is used, and bring the database to this version."""
    go(_up())


async def _up() -> None:
    async with opened(make=True) as services:
        for line in await bring_up(services):
            say(line)
    say("Next: `remit sandbox up` for the pretended company, or `remit mandate grant FILE`.")


async def bring_up(services: Services) -> list[str]:
    """Start, migrate, and mint the administrator of an empty database. Says what it did, a line each."""
    settings = services.settings
    installation = await access.migrate(settings)
    where = "REMIT_DATABASE_URL" if settings.database_url is not None else str(settings.home)
    lines = [
        f"The database of {installation} is up ({settings.environment}, tenant {settings.tenant}, {where})."
    ]
    database = await services.database()
    if not await database.rows("tokens"):
        people = await services.people()
        root = identity.ADMINISTRATOR
        _, file, expires = await identity.mint(people, settings, None, person=root, role=root)
        lines.append(f"The first token is the administrator's: {file}, until {moment(expires)}.")
    return lines


@app.command()
def down() -> None:
    """Stop the embedded Postgres; its data stays."""
    go(_down(load()))


async def _down(settings: Settings) -> None:
    require_installation(settings)
    if settings.database_url is not None:
        say("REMIT_DATABASE_URL is set, so there is no embedded Postgres to stop.")
    elif await embedded.down(settings.home):
        say("The embedded Postgres is stopped; its data stays. `remit db up` starts it again.")
    else:
        say("The embedded Postgres was not running.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Whether the database runs and fits. Starts nothing. Exit 1 when it cannot be used."""
    go(_status(as_json))


async def _status(as_json: bool) -> int:
    settings = load()
    require_installation(settings)
    found: dict[str, object] = {"running": False, "usable": False, "embedded": settings.database_url is None}
    if settings.database_url is None:
        state = await embedded.status(settings.home)
        found |= {"running": state.running, "pid": state.pid, "data": state.data and str(state.data)}
        if not state.running:
            found["why"] = DATABASE_AWAY
    if settings.database_url is not None or found["running"]:
        found |= await _look(settings)
    if as_json:
        print_json(found)
    else:
        for name, value in found.items():
            say(f"{name}: {value}")
    return Exit.DONE if found["usable"] else Exit.FAULT


async def _look(settings: Settings) -> dict[str, object]:
    try:
        async with opened(settings) as services:
            database = await services.database()
            row = await database.row("installation") or {}
            sweep = await database.row("last_sweep") or {}
            lost = await stuck(database)
    except RemitError as error:
        return {"usable": False, "why": str(error)}
    return {
        "running": True,
        "usable": True,
        "installation": row["id"],
        "environment": row["environment"],
        "tenant": row["tenant"],
        "company_time": row["company_now"],
        "last_sweep": sweep.get("seen_at"),
        "stuck": lost,
    }


@app.command()
def restored(
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Which backup, and why.")] = "",
    token: Token = None,
) -> None:
    """Say that this database came out of a backup: nothing is sent until it was verified and the order lifted."""
    go(_restored(because, token))


async def _restored(because: str, token: str | None) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        order = await (await _restores(services)).restored(secret, because)
    say(order_line(order), style="bold red")
    say(
        "What was said after the backup is lost too: place again what was stopped, revoked or decided since.",
        "Next: `remit db verify` asks the systems of record what this ledger does not know.",
    )


@app.command()
def verify(
    purpose: Annotated[
        str | None, typer.Argument(metavar="[PURPOSE]", help="Every purpose by default.")
    ] = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """After a restore: ask the systems of record for what was done here and the ledger lost. It is never sent again."""
    go(_verify(purpose, token, as_json))


async def _verify(purpose: str | None, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        restores = await _restores(services)
        order = await restores.standing()
        if order is None:
            raise Refused(
                "No restore is in force, so there is nothing to verify. See `remit runs`.", code="state"
            )
        if purpose is not None and purpose not in order["purposes"]:
            raise Refused(
                f"No mandate here has the purpose {purpose!r}. See `remit mandate list`.", code="nothing"
            )
        await _until_visible(order, bound_seconds(services.catalogue()), quiet=as_json)
        wanted = order["purposes"] if purpose is None else [purpose]
        done = await restores.verify(services.catalogue(), await services.transport(), secret, wanted)
        left = (await restores.standing() or order)["unverified"]
    if as_json:
        lost, found = done.lost, done.found
        print_json(
            {"verified": done.purposes, "found": found, "lost": lost, "unlisted": done.unlisted, "left": left}
        )
    else:
        _tell_verified(done, order, left)


async def _until_visible(order: Row, bound: float, *, quiet: bool) -> None:
    wait = bound - (order["now"] - order["noticed_at"]).total_seconds()
    if wait > 0:
        if not quiet:
            say(f"Waits {wait:.0f} seconds, until what was sent just before the restore would show.")
        await asyncio.sleep(wait)


def _tell_verified(done: Verified, order: Row, left: list[str]) -> None:
    for name in sorted({*done.purposes, *done.found}):
        say(
            f"{name}: {many(done.found.get(name, 0), 'effect')} of this installation at the systems of record."
        )
    say(f"{many(len(done.lost), 'effect')} the ledger did not know; none of them is sent again.")
    say(*(f"  {key}" for key in done.lost))
    if done.unlisted:
        names = ", ".join(done.unlisted)
        say(f"Their receivers list nothing, so look by hand for: {names}.", style="yellow")
    if left:
        say(f"Not verified yet: {', '.join(left)}. Next: `remit db verify`.")
    else:
        say(
            f"Every purpose is verified. A finance lead or an administrator lifts it: `remit lift {order['id']}`."
        )


async def _restores(services: Services) -> Restores:
    ledger = await services.ledger()
    return Restores(ledger.database, ledger.installation)


@app.command()
def tidy(
    older_than: Annotated[
        int, typer.Option("--older-than", min=1, metavar="DAYS", help="What is younger stays.")
    ],
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Forget what nothing needs. Operations, attempts, evidence, approvals and the journal are never removed."""
    go(_tidy(older_than, token, as_json))


async def _tidy(days: int, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        rows = await (await services.database()).rows("forget", secret=secret, days=days)
    removed = {row["what"]: row["removed"] for row in rows}
    if as_json:
        print_json({"removed": removed})
    else:
        counted = ", ".join(f"{count} {what}" for what, count in removed.items())
        say(
            f"Removed what is older than {many(days, 'day')} and nothing needs: {counted}. "
            "Every run and every fact stays."
        )
