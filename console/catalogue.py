"""`remit catalogue`: every tool with its contract, and what it guarantees."""

from typing import Annotated

import typer

from remit.console.options import AsJson
from remit.console.render import span
from remit.console.screen import print_json, say, table
from remit.tools.actions import Json
from remit.tools.catalogue import credit_catalogue


def catalogue(
    check: Annotated[
        bool, typer.Option("--check", help="Only check it as a whole; exit 1 where it does not fit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The tools: effect, authority, what undoes them, and what holds for at most once."""
    found = credit_catalogue()
    rows = found.rows()
    if as_json:
        print_json({"version": found.version, "tools": rows})
        return
    writes = [row for row in rows if row["kind"] == "write"]
    if not check:
        shown = [
            (row["name"], "read", row["receiver"], row["authority"], ", ".join(row["fields"]))
            for row in rows
            if row["kind"] == "read"
        ]
        table(("tool", "effect", "receiver", "authority", "returns"), shown)
        table(
            ("tool", "effect", "receiver", "reversibility", "undo", "visible within"),
            [_write(row) for row in writes],
        )
        for row in writes:
            say(f"{row['name']}, at most once: {row['at_most_once']}.")
    say(
        f"Catalogue {found.version}: {len(rows)} tools, {len(writes)} of them change something. It is complete."
    )


def _write(row: dict[str, Json]) -> tuple[object, ...]:
    undo = "none" if row["undo"] is None else f"{row['undo']['tool']} ({row['undo']['owner']})"
    bound = row["visible_within"]
    seen = "unbounded: absence proves nothing" if bound is None else span(bound)
    return row["name"], row["effect"], row["receiver"], row["reversibility"], undo, seen
