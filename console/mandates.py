"""`remit mandate`: delegate, look, take back. What is granted is read back in words first, over a frozen cohort."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from remit.checkpoints.database import Database, Row
from remit.console import identity, mandate_new, mandate_try, viewing
from remit.console.cohorts import check_role, cohort, overlap_line
from remit.console.edge import go
from remit.console.options import AsJson, Token, Yes
from remit.console.prompts import confirm
from remit.console.render import many, moment
from remit.console.screen import heading, listing, print_json, say, table
from remit.console.services import opened
from remit.tools.errors import Refused
from remit.tools.mandates import Mandate

app = typer.Typer(no_args_is_help=True, help="Delegations: what an agent may do, for whom, how far.")
app.command("new")(mandate_new.new)
app.command("try")(mandate_try.try_)

_Which = Annotated[
    str, typer.Argument(metavar="WHICH", help="A purpose, a hash (or its beginning), or a file.")
]


@app.command()
def grant(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A mandate as YAML.")],
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Read a mandate back in words, freeze for whom it is, and grant it as the token's person."""
    go(_grant(file, token, yes))


async def _grant(file: Path, token: str | None, yes: bool) -> None:
    from remit.policies import in_words, load_policy, read_mandate

    async with opened(acts=True) as services:
        settings = load_policy().settings
        mandate = read_mandate(file, settings=settings)
        secret = identity.secret(services.settings, token)
        people = await services.people()
        actor = await people.whoami(secret)
        heading(f"The mandate in {file}, in words:")
        say(*(f"  {line}" for line in in_words(mandate)))
        if await _standing(await services.database(), mandate) != "granted":
            check_role(mandate, actor["role"], settings)
            subjects = await cohort(services, mandate)
            await _point_out(await services.database(), mandate, subjects)
            say(f"  {many(len(subjects), 'subject')} as of now, from {subjects[0]} to {subjects[-1]}.")
            confirm(f"Does {actor['person']}, as {actor['role']}, grant this?", yes=yes)
            result = await people.grant(secret, mandate.hash, mandate.document(), subjects)
        else:
            result = {"outcome": "already granted", "superseded": None}
        _tell(result, mandate, actor)


async def _point_out(database: Database, mandate: Mandate, subjects: list[str]) -> None:
    """What another live mandate may do to the same people: nothing forbids it, and nobody should be surprised by it."""
    rows = await database.rows(
        "overlapping_mandates",
        purpose=mandate.purpose,
        effects=sorted({step.effect for step in mandate.steps}),
        subjects=subjects,
    )
    say(*(f"  {overlap_line(row)}" for row in rows), style="yellow")


def _tell(result: Row, mandate: Mandate, actor: Row) -> None:
    match result["outcome"]:
        case "granted":
            if result["superseded"]:
                say(f"It supersedes {result['superseded']}: what that had not sent is closed.")
            say(
                f"Granted by {actor['person']} ({actor['role']}): {mandate.hash}",
                f"Next: `remit run {mandate.purpose}`.",
            )
        case "already granted":
            say(f"This mandate is already granted: {mandate.hash}", f"Next: `remit run {mandate.purpose}`.")
        case "superseded" | "revoked" as over:
            raise Refused(
                f"This very mandate was granted before and is {over}, so it does not come back. Change it (its text is "
                "part of its hash) and grant the new one.",
                code=over,
            )


async def _standing(database: Database, mandate: Mandate) -> str:
    for row in await database.rows("mandates", which=mandate.hash):
        if row["revoked_at"] is None and row["superseded_at"] is None:
            return "granted"
    return "new"


async def find(viewer: viewing.Viewer, which: str) -> Row:
    """One granted mandate by file, purpose (the live or newest one) or beginning of its hash.

    Raises Refused where there is none that the viewer may see.
    """
    database = viewer.database
    if Path(which).is_file():
        from remit.policies import read_mandate

        which = read_mandate(Path(which)).hash
    rows = await database.rows("mandates", which=which)
    if not rows and len(which) >= 4:
        prefix = which.removeprefix("v1:")
        found = [
            row for row in await database.rows("mandates", which=None) if row["hash"][3:].startswith(prefix)
        ]
        rows = await viewer.listed("mandate", found, "hash") or found
        if len({row["hash"] for row in rows}) > 1 and rows is not found:
            raise Refused(
                f"More than one mandate begins with {which}. Give more of its hash.", code="ambiguous"
            )
    rows = await viewer.named("mandate", rows, "hash")
    if not rows:
        raise Refused(
            f"No mandate {which} is granted here. Grant it: `remit mandate grant FILE`.",
            code="no_such_mandate",
        )
    return next((row for row in rows if state(row) == "live"), rows[0])


def state(row: Row) -> str:
    """live, revoked, superseded, or outside its time."""
    if row["revoked_at"] is not None:
        return "revoked"
    if row["superseded_at"] is not None:
        return "superseded"
    return "live" if row["live"] else "outside its time"


def compiled(row: Row) -> Mandate:
    """The mandate of a row of the ledger."""
    return Mandate.model_validate_json(json.dumps(row["document"]))


@app.command()
def show(which: _Which, token: Token = None, as_json: AsJson = False) -> None:
    """One mandate in words, who granted it, for whom, and whether it is in force."""
    go(_show(which, token, as_json))


async def _show(which: str, token: str | None, as_json: bool) -> None:
    from remit.policies import in_words

    async with opened() as services:
        database = await services.database()
        row = await find(await viewing.viewer(services, token), which)
        mandate = compiled(row)
        subjects = [r["subject"] for r in await database.rows("mandate_subjects", mandate=row["hash"])]
        if as_json:
            print_json(
                {**_brief(row), "words": in_words(mandate), "document": row["document"], "subjects": subjects}
            )
            return
        heading(f"{row['purpose']} {row['hash']}: {state(row)}")
        say(*(f"  {line}" for line in in_words(mandate)))
        say(f"  {many(len(subjects), 'subject')}: {', '.join(subjects)}.")
        say(f"Granted by {row['grantor']} ({row['grantor_role']}) on {moment(row['granted_at'])}.")
        if row["revoked_at"] is not None:
            say(f"Revoked by {row['revoked_by']} on {moment(row['revoked_at'])}.")
        if row["superseded_at"] is not None:
            say(f"Superseded on {moment(row['superseded_at'])} by {row['superseded_by']}.")


_KEYS = (
    *("hash", "purpose", "agent", "grantor", "grantor_role", "granted_at", "valid_from", "valid_until"),
    *("superseded_at", "superseded_by", "revoked_at", "revoked_by"),
)


def _brief(row: Row) -> dict[str, Any]:
    return {**{key: row[key] for key in _KEYS}, "state": state(row)}


@app.command("list")
def list_(token: Token = None, as_json: AsJson = False) -> None:
    """Every mandate that was ever granted here; with a token, as far as it may see."""
    go(_list(token, as_json))


async def _list(token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        found = await viewer.listed("mandate", await database.rows("mandates", which=None), "hash")
        rows = [{**_brief(row), "subjects": row["subjects"]} for row in found]
        if await listing(database, "mandates", rows, as_json=as_json):
            shown = [
                (
                    r["purpose"],
                    r["hash"][:15],
                    r["state"],
                    r["subjects"],
                    r["grantor"],
                    moment(r["granted_at"]),
                )
                for r in rows
            ]
            table(("purpose", "hash", "state", "subjects", "granted by", "at"), shown)


@app.command()
def revoke(which: _Which, token: Token = None, yes: Yes = False) -> None:
    """Take a mandate back, for good: nothing is begun under it any more."""
    go(_revoke(which, token, yes))


async def _revoke(which: str, token: str | None, yes: bool) -> None:
    async with opened() as services:
        database = await services.database()
        secret = identity.secret(services.settings, token)
        row = await find(viewing.Viewer(database, secret), which)
        if row["revoked_at"] is None:
            confirm(f"Revoke {row['purpose']} {row['hash'][:15]} for good?", yes=yes)
        since = await (await services.people()).revoke_mandate(secret, row["hash"])
        say(f"{row['purpose']} {row['hash'][:15]} is revoked since {moment(since)}.")
        say(f"What was sent before is followed to its end: `remit status {row['purpose']}`.")
