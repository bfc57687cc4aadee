"""`remit unapprove` and `remit edit`: a person takes a grant back, or says what an action should be instead.

Keeps I3: neither decides. A grant that was taken back is asked about anew; an edited action is another action, which
policy judges afresh, and whoever edited it stands in its chain and cannot approve it.
"""

from typing import Annotated

import typer

from remit.console import exact, identity, viewing
from remit.console import inbox as showing
from remit.console.decisions import Only, chosen_of
from remit.console.edge import go
from remit.console.options import Because, Token, Yes
from remit.console.prompts import at_terminal, confirm
from remit.console.render import exact as literal
from remit.console.render import many, quoted
from remit.console.screen import say
from remit.console.services import opened
from remit.tools.errors import Refused


def unapprove(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As in `remit inbox`, or `remit show OPERATION`.")],
    only: Only = None,
    because: Because = "",
    token: Token = None,
) -> None:
    """Take your own grant back, where nothing was claimed yet. It is asked about anew."""
    go(_unapprove(id_, only or [], because, token))


async def _unapprove(id_: str, only: list[str], because: str, token: str | None) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        (row,) = await showing.approvals(viewing.Viewer(database, secret), id_)
        chosen = chosen_of(await exact.actions(database, id_), only) if only else None
        done = await people.unapprove(secret, id_, rationale=because, only=chosen)
        back = [one for one in done if one["outcome"] == "taken back"]
        say(f"{many(len(back), 'action')} taken back, {many(len(done) - len(back), 'action')} too late.")
        for one in done:
            if one not in back:
                say(f"  operation {one['operation_id']}: {one['outcome']}")
        if back:
            say(
                f"Next: `remit resume {row['run_id']}` asks about them anew, and a standing `remit work` does."
            )


def edit(
    operation: Annotated[int, typer.Argument(metavar="OPERATION", help="Its number in `remit inbox ID`.")],
    values: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE...")],
    because: Because = "",
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Put your own version in the place of an action that waits for approval. Somebody else has to approve it."""
    go(_edit(operation, dict(_field(text) for text in values), because, token, yes))


def _field(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Refused(f"{quoted(text)} is no FIELD=VALUE. Write for example notes=TEXT.", code="usage")
    return name, value


async def _edit(operation: int, values: dict[str, str], because: str, token: str | None, yes: bool) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        found = await database.rows("operation", which=str(operation))
        rows = await viewing.Viewer(database, secret).named("run", found, "run_id")
        if not rows:
            raise Refused(
                f"There is no operation {operation}. See `remit inbox ID`.", code="no_such_operation"
            )
        row = rows[-1]
        intent = services.catalogue().write(row["tool"]).edited(row["intent"], values)
        for change in exact.differences(row, {**row, "intent": intent}):
            say(f"{change['field']}: {literal(change['old'])} -> {literal(change['new'])}")
        actor = await people.whoami(secret)
        if at_terminal():
            confirm(f"Does {actor['person']}, as {actor['role']}, propose this instead?", yes=yes)
        await people.edit(secret, operation, row["version"], intent, rationale=because)
        say(
            f"Operation {operation} is closed, and {actor['person']}'s version of it is proposed instead. Policy "
            "judges it afresh, and somebody else has to approve it where policy asks for that."
        )
        say(f"Next: `remit resume {row['run_id']}`, or a standing `remit work`.")
