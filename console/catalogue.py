"""`remit catalogue`: every tool with its contract, what it guarantees, and what an auditor asks about it."""

from dataclasses import asdict
from typing import Annotated

import typer

from remit.console.edge import Ended, go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token, Yes
from remit.console.render import quoted, span
from remit.console.screen import complain, print_json, say, table
from remit.tools.actions import Json
from remit.tools.catalogue import credit_catalogue
from remit.tools.errors import Refused


def catalogue(
    check: Annotated[
        bool,
        typer.Option("--check", help="Answer for each writing tool; exit 1 where an answer is missing."),
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Send to test subjects on purpose, and see whether receivers enforce keys."
        ),
    ] = False,
    *,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUBJECT]...", help="With --probe; REMIT_PROBE_SUBJECTS by default."),
    ] = None,
    token: Token = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """The tools: effect, authority, what undoes them, and what holds for at most once."""
    if probe and check:
        raise Refused("--check reads the contracts and --probe sends. Choose one.", code="usage")
    if subjects and not probe:
        raise Refused(
            f"Subjects belong to --probe, and {quoted(' '.join(subjects))} was given without it. Add it, or give none.",
            code="usage",
        )
    if probe:
        from remit.console import probes

        go(probes.probe(list(subjects or ()), token, yes=yes, as_json=as_json))
    elif check:
        _check(as_json)
    else:
        _list(as_json)


def _list(as_json: bool) -> None:
    found = credit_catalogue()
    rows = found.rows()
    if as_json:
        print_json({"version": found.version, "tools": rows})
        return
    writes = [row for row in rows if row["kind"] == "write"]
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
    say(f"Catalogue {found.version}: {len(rows)} tools, {len(writes)} of them change something.")


def _write(row: dict[str, Json]) -> tuple[object, ...]:
    undo = "none" if row["undo"] is None else f"{row['undo']['tool']} ({row['undo']['owner']})"
    bound = row["visible_within"]
    seen = "unbounded: absence proves nothing" if bound is None else span(bound)
    return row["name"], row["effect"], row["receiver"], row["reversibility"], undo, seen


def _check(as_json: bool) -> None:
    # Slow to import, and no list needs it.
    from remit.console.startup import checked
    from remit.policies.fit import Answers, audit

    def told(one: Answers) -> tuple[object, ...]:
        undo = one.undo
        taken_back = (
            "nothing"
            if undo is None
            else f"{undo['tool']}, owned by {undo['owner']}, shown by {undo['test']}"
        )
        approved = "" if undo is None else ", ".join(undo["approved_by"])
        behind = ", ".join(one.behind)
        return one.tool, "yes" if one.retry_safe else "no", taken_back, approved, one.irreversible, behind

    found, settings = checked()
    rows = audit(found, settings)
    if as_json:
        print_json({"version": found.version, "tools": [asdict(one) for one in rows]})
    else:
        columns = ("tool", "retry-safe", "taken back by", "approved by", "irreversible", "behind")
        table(columns, [told(one) for one in rows])
        say(
            *(
                f"What {one.tool} did, at most once: {one.at_most_once}. Told later by {one.records}."
                for one in rows
            )
        )
    missing = [remedy for one in rows for remedy in one.missing]
    if missing:
        complain("\n".join(missing))
        raise Ended(Exit.FAULT)
    if not as_json:
        say(f"Catalogue {found.version}: {len(rows)} tools change something. It is complete.")
