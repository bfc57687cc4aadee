"""`remit approve` and `remit reject`: a person's decision about the exact set that was shown.

Keeps I3: the decision names the approval and the hash of the set that stood on the screen; the database checks both,
the token, the role, the time, and that nobody of the chain decides.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from remit.console import exact, identity, viewing
from remit.console import inbox as showing
from remit.console.edge import go
from remit.console.options import Because, Token, Yes
from remit.console.prompts import at_terminal, confirm
from remit.console.render import many, quoted, subject_of
from remit.console.screen import say
from remit.console.services import opened
from remit.tools.errors import Refused

_Id = Annotated[str, typer.Argument(metavar="ID", help="As in `remit inbox`.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="WHICH", help="Only this subject's actions, or one by key or hash; may be repeated."
    ),
]
_Set = Annotated[
    str | None,
    typer.Option("--set", metavar="HASH", help="Decide only if the set is still this one, as seen before."),
]


def approve(
    id_: _Id,
    *,
    only: Only = None,
    because: Because = "",
    set_hash: _Set = None,
    reject_rest: Annotated[
        bool, typer.Option("--reject-rest", help="Reject what --only does not name, in the same breath.")
    ] = False,
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Grant what an approval asks for, as it stands on the screen."""
    go(_decide(_Decision(id_, True, only or [], because, set_hash, reject_rest), token, yes))


def reject(
    id_: _Id,
    *,
    only: Only = None,
    because: Because = "",
    set_hash: _Set = None,
    token: Token = None,
    yes: Yes = False,
) -> None:
    """Refuse what an approval asks for; it is closed and not proposed again without a person."""
    go(_decide(_Decision(id_, False, only or [], because, set_hash), token, yes))


@dataclass(frozen=True)
class _Decision:
    """What was said on the command line. `only` empty: the whole set; `set_hash` None: the one that is shown.

    `reject_rest`: what is left undecided by a grant of some is rejected.
    """

    id: str
    grant: bool
    only: list[str]
    because: str
    set_hash: str | None
    reject_rest: bool = False


async def _decide(said: _Decision, token: str | None, yes: bool) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        database, people = await services.database(), await services.people()
        actor = await people.whoami(secret)
        if said.reject_rest and not said.only:
            raise Refused("The rest of everything is nothing. Name what to grant with --only.", code="usage")
        (row,) = await showing.approvals(viewing.Viewer(database, secret), said.id)
        approval = await showing.described(database, row)
        showing.show(approval, await database.value("company_now"))
        chosen = chosen_of(await exact.actions(database, said.id), said.only) if said.only else None
        verb = "approve" if said.grant else "reject"
        count = approval["undecided"] if chosen is None else len(chosen)
        also = " and reject the rest" if said.reject_rest else ""
        # A script that names an approval has decided; somebody at a terminal has only now seen what it is about.
        if at_terminal():
            question = f"Does {actor['person']}, as {actor['role']}, {verb} {many(count, 'action')}{also}?"
            confirm(question, yes=yes)
        set_hash = said.set_hash or approval["set_hash"]
        done = await people.decide(
            secret, said.id, set_hash, grant=said.grant, rationale=said.because, only=chosen
        )
        _tell(done, approval, said.grant)
        if said.reject_rest and chosen is not None:
            found = await exact.actions(database, said.id)
            rest = [one["operation"] for one in found if _undecided(one) and one["operation"] not in chosen]
            if rest:
                done = await people.decide(
                    secret, said.id, set_hash, grant=False, rationale=said.because, only=rest
                )
                _tell(done, approval, grant=False)
        say(f"Next: `remit resume {approval['run']} --wait`, or a standing `remit work`.")


def _undecided(action: dict[str, Any]) -> bool:
    return action["decision"] is None and action["state"] == "PENDING"


def chosen_of(found: list[dict[str, Any]], only: list[str]) -> list[int]:
    """The operations of these subjects, keys or hashes, never by a place in a list. Refused where one is unknown."""
    chosen: list[int] = []
    for text in only:
        names = {text, subject_of(text)}
        named = [
            one["operation"] for one in found if names & {one["subject"], one["key"], one["action_hash"]}
        ]
        if not named:
            raise Refused(
                f"This approval has no action for {quoted(text)}. See `remit inbox ID`.",
                code="not_in_this_set",
            )
        chosen += named
    return sorted(set(chosen))


def _tell(done: dict[str, Any], approval: dict[str, Any], grant: bool) -> None:
    if done["outcome"] == "noted":
        say(
            f"Noted for {done['person']}. The quorum of {approval['quorum']} waits for somebody else: `remit inbox`."
        )
        return
    verb = "granted" if grant else "rejected"
    say(f"{done['person']} {verb} {many(done['decided'], 'action')}; {done['undecided']} undecided.")
