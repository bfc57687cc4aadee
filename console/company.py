"""`remit sandbox`: the pretended company from outside: its process, its strings, an employee's hand, its clock.

Keeps company time one with the database's: both are moved by the same command, and whichever lags is brought up.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from remit.console import faults, pretended, records
from remit.console.edge import go
from remit.console.options import Yes
from remit.console.prompts import confirm
from remit.console.render import moment, quoted, span, subject_of
from remit.console.screen import say
from remit.console.settings import Settings, load, require_installation
from remit.console.times import seconds_of
from remit.tools.actions import subject_id
from remit.tools.errors import Refused

if TYPE_CHECKING:
    from remit.checkpoints.database import Database
    from remit.console.services import Services
    from remit.sandbox import Control

app = typer.Typer(
    no_args_is_help=True, help="The pretended company: its process, its faults, its own records."
)
app.add_typer(faults.app, name="fault")
app.command()(records.dump)
app.command()(records.check)


@app.command()
def up() -> None:
    """Start database and company, with tokens for a support manager and a finance lead."""
    go(_up())


async def _up() -> None:
    # Faults and records, which stand in this group too, need no database; its parts are slow to import.
    from remit.console import databases
    from remit.console.services import opened
    from remit.sandbox import start

    async with opened(make=True) as services:
        with pretended.asking(services.settings) as home:
            for line in await databases.bring_up(services):
                say(line)
            for line in await _newcomers(services):
                say(line)
            info = await start(home)
            say(f"The company runs (process {info.pid}, {', '.join(sorted(info.urls))}).")
        async with pretended.control(services.settings) as control:
            await _one_clock(control, await services.database(), 0)
    say(
        "Next: `remit mandate grant mandates/outage-0611.yaml --token support-manager`, then `remit run outage-0611`."
    )


async def _newcomers(services: "Services") -> list[str]:
    """Tokens for those whom a newcomer plays; only where the administrator's file is here to mint them."""
    from remit.console import identity

    settings = services.settings
    administrator = settings.tokens / identity.ADMINISTRATOR
    missing = {
        name: role for name, role in identity.NEWCOMERS.items() if not (settings.tokens / name).exists()
    }
    if not missing or not administrator.is_file():
        return []
    people, secret, lines = await services.people(), identity.secret(settings, identity.ADMINISTRATOR), []
    for name, role in missing.items():
        _, file, expires = await identity.mint(people, settings, secret, person=name, role=role)
        lines.append(f"A token for the {name}: {file}, until {moment(expires)}.")
    return lines


@app.command()
def down() -> None:
    """Stop the company; its records stay. `remit db down` stops the database."""
    go(_down(load()))


async def _down(settings: Settings) -> None:
    from remit.sandbox import stop

    with pretended.asking(settings) as home:
        stopped = await stop(home)
    if not stopped:
        require_installation(settings)
    say("The company is stopped; what it knows stays." if stopped else "The company was not running.")


@app.command()
def reset(
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Delete the embedded database as well, tokens and all.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Replace the company by a fresh one. The ledger still knows the old one, unless --ledger."""
    go(_reset(load(), ledger, yes))


async def _reset(settings: Settings, ledger: bool, yes: bool) -> None:
    if ledger and settings.database_url is not None:
        raise Refused(
            "REMIT_DATABASE_URL is set, and this command deletes only the embedded database. Unset it first.",
            code="usage",
        )
    what = "the company's records and the ledger with its tokens" if ledger else "the company's records"
    confirm(f"This deletes {what} in {settings.home} for good. Go on?", yes=yes)
    from remit.console.services import opened
    from remit.sandbox import reset as make_afresh

    with pretended.asking(settings) as home:
        running = await make_afresh(home) is not None
    if ledger:
        await _forget(settings)
        say("Company and ledger are fresh. Next: `remit sandbox up`.")
        return
    if running:
        async with opened(settings, make=True) as services, pretended.control(settings) as control:
            await _one_clock(control, await services.database(), 0)
    say(
        "The company is fresh. The ledger still holds what was done at the old one; --ledger makes that fresh, too."
    )


async def _forget(settings: Settings) -> None:
    from remit.checkpoints import embedded
    from remit.console import identity

    await embedded.remove(settings.home)
    for name in (identity.ADMINISTRATOR, *identity.NEWCOMERS):
        (settings.tokens / name).unlink(missing_ok=True)


@app.command()
def edit(
    account: Annotated[str, typer.Argument(metavar="CUSTOMER", help="For example 104.")],
    changes: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE...", help="For example plan=basic.")],
) -> None:
    """Change an account as an employee does."""
    go(_edit(account, changes))


async def _edit(account: str, changes: list[str]) -> None:
    pairs = [change.partition("=") for change in changes]
    if not all(name and equals for name, equals, _ in pairs):
        raise Refused("Write each change as FIELD=VALUE, for example plan=basic.", code="usage")
    async with pretended.control(load()) as control:
        done = await control.edit(subject_id(subject_of(account)), {name: value for name, _, value in pairs})
    fields = ", ".join(f"{name} is {quoted(str(done.get(name)))}" for name, _, _ in pairs if name in done)
    say(f"The employee changed {done['id']}, now version {done['version']}: {fields}.")


@app.command()
def clock(
    by: Annotated[str | None, typer.Argument(metavar="[+2h]", help="How far: +30s, +5m, +2h, +1d.")] = None,
) -> None:
    """Show company time, or move it on, at the company and in the database together."""
    go(_clock(_seconds(by)))


async def _clock(seconds: float) -> None:
    from remit.console.services import opened

    async with opened() as services, pretended.control(services.settings) as control:
        database = await services.database()
        offset = await _one_clock(control, database, seconds)
        now = await database.value("company_now")
    ahead = f", {span(offset)} ahead of real time" if offset else ""
    say(f"Company time is {moment(now)}{ahead}.")


async def _one_clock(control: "Control", database: "Database", seconds: float) -> float:
    """Moves both clocks to the later of the two and `seconds` on; neither ever goes back. Returns the new offset."""
    row = await database.row("installation") or {}
    here: timedelta = row["clock_offset"]
    there = float((await control.clock())["offset_seconds"])
    target = max(here.total_seconds(), there) + seconds
    if target > there:
        await control.advance(target - there)
    if target > here.total_seconds():
        await database.rows("advance_clock", seconds=target - here.total_seconds())
    return target


def _seconds(by: str | None) -> float:
    seconds = 0.0 if by is None else seconds_of(by)
    if seconds is None or seconds < 0:
        raise Refused(f"{by!r} is no step of the clock. Write +30s, +5m, +2h or +1d.", code="usage")
    return seconds
