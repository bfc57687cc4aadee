"""`remit token`: identities. A token speaks for one person in one role until it expires or is revoked."""

from typing import Annotated

import typer

from remit.console import identity
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import many, moment, quoted, safe
from remit.console.screen import listing, say, table
from remit.console.services import opened
from remit.tools.errors import Refused

app = typer.Typer(no_args_is_help=True, help="Identities: who may say what.")

_LONGEST_NAME = 60
"""Characters of a person's name: it has to fit a listing, and be a file's name."""


@app.command()
def new(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="For whom, for example finance-lead.")],
    role: Annotated[str, typer.Option("--role", metavar="R", help="A role of the policy.")],
    days: Annotated[float, typer.Option("--days", min=0.001, max=3650, help="Until it expires.")] = 30,
    *,
    file: Annotated[
        str | None, typer.Option("--file", help="Its name in HOME/tokens; the person's by default.")
    ] = None,
    natural: Annotated[
        str | None,
        typer.Option(
            "--natural", metavar="NAME", help="Who that is, where one human being has several identities."
        ),
    ] = None,
    token: Token = None,
) -> None:
    """Mint a token. Takes an administrator's --token."""
    go(_new(person, role, days, file=file, natural=natural, token=token))


async def _new(
    person: str, role: str, days: float, *, file: str | None, natural: str | None, token: str | None
) -> None:
    for name in (person, natural or person):
        _check_person(name)
    name = file or person
    if "/" in name or name.startswith(".") or not _nameable(name):
        raise Refused(
            f"{quoted(name)} is no name for a token file. Use letters, digits and dashes.", code="token_file"
        )
    async with opened() as services:
        minter = identity.secret(services.settings, token)
        _check_role(role)
        people = await services.people()
        id_, kept, expires = await identity.mint(
            people, services.settings, minter, person=person, role=role, days=days, name=name, natural=natural
        )
        say(
            f"{id_}: {person} as {role}, until {moment(expires)}. The secret is in {kept}; give it to nobody else."
        )


def _check_person(person: str) -> None:
    if not _nameable(person):
        raise Refused(
            f"PERSON {quoted(person, _LONGEST_NAME)} is no name. Use 1 to {_LONGEST_NAME} visible characters, for "
            "example finance-lead.",
            code="usage",
        )


def _nameable(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and bool(name.strip()) and safe(name) == name


def _check_role(role: str) -> None:
    from remit.policies import load_policy

    # The canary's role exists for the engine's own check and is nobody's.
    known = sorted({*load_policy().settings.roles, identity.ADMINISTRATOR} - {"canary"})
    if role not in known:
        raise Refused(f"{role} is no role of this policy. Use one of: {', '.join(known)}.", code="role")


_KEYS = (
    "id",
    "person",
    "natural_person",
    "role",
    "minted_by",
    "created_at",
    "expires_at",
    "revoked_at",
    "expired",
)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Every token, without its secret."""
    go(_list(as_json))


async def _list(as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        rows = [{key: row[key] for key in _KEYS} for row in await database.rows("tokens")]
        if not await listing(database, "tokens", rows, as_json=as_json):
            return
        shown = [
            (r["id"], _who(r), r["role"], r["minted_by"], moment(r["expires_at"]), _state(r)) for r in rows
        ]
        table(("token", "person", "role", "minted by", "expires", "state"), shown)


def _who(row: dict[str, object]) -> str:
    same = row["person"] == row["natural_person"]
    return f"{row['person']}" if same else f"{row['person']} (is {row['natural_person']})"


def _state(row: dict[str, object]) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    return "expired" if row["expired"] else "live"


@app.command()
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As in `remit token list`.")], token: Token = None
) -> None:
    """Revoke a token, from now on: your own, or any as an administrator."""
    go(_revoke(id_, token))


async def _revoke(id_: str, token: str | None) -> None:
    async with opened() as services:
        people = await services.people()
        voided = await people.revoke_token(identity.secret(services.settings, token), id_)
        say(
            f"{id_} is revoked. What it granted and nobody had begun to send is void and asked anew: "
            f"{many(voided, 'action')}. What was sent before, or was rejected, stays so; see `remit inbox`."
        )
