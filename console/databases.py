"""`remit db`: the database's parts. Migrations run here, under their lock, and in no other command but `sandbox up`."""

import typer

from remit.checkpoints import embedded
from remit.console import access, identity
from remit.console.edge import DATABASE_AWAY, go
from remit.console.exits import Exit
from remit.console.options import AsJson
from remit.console.render import moment
from remit.console.screen import print_json, say
from remit.console.services import Services, opened
from remit.console.settings import Settings, load, require_installation
from remit.tools.errors import RemitError

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
    }
