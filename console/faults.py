"""`remit sandbox fault`: what goes wrong at the pretended company, by rule."""

from typing import Annotated, Any

import typer

from remit.console import pretended
from remit.console.edge import go
from remit.console.options import AsJson
from remit.console.render import many
from remit.console.screen import print_json, say, table
from remit.console.settings import load
from remit.tools.actions import Json
from remit.tools.errors import Refused

app = typer.Typer(no_args_is_help=True, help="Faults by rule.")


@app.command()
def add(
    service: Annotated[str, typer.Argument(help="accounts, payments, mail or model.")],
    kind: Annotated[
        str, typer.Argument(help="reply_lost, delay, slow_settle, refuse ...; sandbox/README.md has all.")
    ],
    route: Annotated[str, typer.Argument(help="Such as 'POST /credits'; * is every call.")] = "*",
    *,
    match: Annotated[
        list[str] | None, typer.Option("--match", metavar="FIELD=VALUE", help="Only such calls.")
    ] = None,
    times: Annotated[int, typer.Option("--times", min=0, help="How often; 0 is always.")] = 1,
    skip: Annotated[int, typer.Option("--skip", min=0, help="So many calls pass unharmed first.")] = 0,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0)] = None,
    stored: Annotated[bool, typer.Option("--stored", help="A 500 is kept under its key.")] = False,
) -> None:
    """Add a rule."""
    rule = {
        "match": _fields(match or []),
        "times": times or None,
        "skip": skip,
        "seconds": seconds,
        "stored": stored,
    }
    go(_add(service, kind, route, rule))


async def _add(service: str, kind: str, route: str, rule: dict[str, Any]) -> None:
    async with pretended.control(load()) as control:
        added = await control.add_fault(service, kind, route, **rule)
    often = "always" if added["times"] is None else many(added["times"], "time")
    say(f"Fault {added['id']}: {kind} at {service} {route}, {often}.")


def _fields(pairs: list[str]) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise Refused(f"{pair!r} is no FIELD=VALUE. Write it as customer=c-104.", code="usage")
        fields[name] = value
    return fields


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """The rules with their hits."""
    go(_list(as_json))


async def _list(as_json: bool) -> None:
    async with pretended.control(load()) as control:
        faults = await control.faults()
    if as_json:
        print_json({"faults": faults})
    elif not faults:
        say("There is no fault.")
    else:
        rows = [
            (
                f["id"],
                f["service"],
                f["route"],
                f["kind"],
                f["match"] or "",
                f["times"] or "always",
                f["hits"],
            )
            for f in faults
        ]
        table(("id", "service", "route", "kind", "match", "times", "hits"), rows)


@app.command()
def clear(
    id_: Annotated[int | None, typer.Argument(metavar="[ID]", help="One rule; all by default.")] = None,
) -> None:
    """Remove one rule, or all."""
    go(_clear(id_))


async def _clear(id_: int | None) -> None:
    async with pretended.control(load()) as control:
        await control.clear_faults(id_)
    say("All faults are removed." if id_ is None else f"Fault {id_} is removed.")
