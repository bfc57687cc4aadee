"""`remit approve` and `remit reject`: a person's decision about the exact set that was shown.

Keeps I3: the decision names the approval and the hash of the set that stood on the screen; the database checks both,
the token, the role, the time, and that nobody of the chain decides.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from remit.console import identity
from remit.console import inbox as showing
from remit.console.edge import go
from remit.console.options import Because, Token, Yes
from remit.console.prompts import at_terminal, confirm
from remit.console.render import many, quoted, subject_of
from remit.console.screen import say
from remit.console.services import opened
from remit.tools.errors import Refused

_Id = Annotated[str, typer.Argument(metavar="ID", help="As in `remit inbox`.")]
_Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="SUBJECT", help="Only this subject's actions; may be repeated."),
]
_Set = Annotated[
    str | None,
    typer.Option("--set", metavar="HASH", help="Decide only if the set is still this one, as seen before."),
]


def approve(
    id_: _Id,
    *,
    only: _Only = None,
    because: Because = "",
    set_hash: _Set = None,
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Grant what an approval asks for, as it stands on the screen."""
    go(_decide(_Decision(id_, True, only or [], because, set_hash), token, yes))


def reject(
    id_: _Id,
    *,
    only: _Only = None,
    because: Because = "",
    set_hash: _Set = None,
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Refuse what an approval asks for; it is closed and not proposed again without a person."""
    go(_decide(_Decision(id_, False, only or [], because, set_hash), token, yes))


@dataclass(frozen=True)
class _Decision:
    """What was said on the command line. `only` empty: the whole set; `set_hash` None: the one that is shown."""

    id: str
    grant: bool
    only: list[str]
    because: str
    set_hash: str | None


async def _decide(said: _Decision, token: str | None, yes: bool) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        actor = await people.whoami(secret)
        (row,) = await showing.approvals(database, said.id)
        approval = await showing.described(database, row)
        showing.show(approval, await database.value("company_now"))
        chosen = _chosen(await showing.actions(database, said.id), said.only) if said.only else None
        verb = "approve" if said.grant else "reject"
        count = approval["undecided"] if chosen is None else len(chosen)
        # A script that names an approval has decided; somebody at a terminal has only now seen what it is about.
        if at_terminal():
            confirm(f"Does {actor['person']}, as {actor['role']}, {verb} {many(count, 'action')}?", yes=yes)
        set_hash = said.set_hash or approval["set_hash"]
        done = await people.decide(
            secret, said.id, set_hash, grant=said.grant, rationale=said.because, only=chosen
        )
        _tell(done, approval, said.grant)


def _chosen(found: list[dict[str, Any]], only: list[str]) -> list[int]:
    wanted = {subject_of(text) for text in only}
    if missing := wanted - {one["subject"] for one in found}:
        raise Refused(
            f"This approval has no action for {quoted(', '.join(sorted(missing)))}. See `remit inbox ID`.",
            code="not_in_this_set",
        )
    return [one["operation"] for one in found if one["subject"] in wanted]


def _tell(done: dict[str, Any], approval: dict[str, Any], grant: bool) -> None:
    if done["outcome"] == "noted":
        say(
            f"Noted for {done['person']}. The quorum of {approval['quorum']} waits for somebody else: `remit inbox`."
        )
        return
    verb = "granted" if grant else "rejected"
    say(f"{done['person']} {verb} {many(done['decided'], 'action')}; {done['undecided']} undecided.")
    say(f"Next: `remit resume {approval['run']} --wait`, or a standing `remit work`.")
