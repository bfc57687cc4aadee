"""`remit stop`, `remit freeze` and `remit lift`: standing orders.

Keeps I4 and I6: the order is in force before anything else is looked at, and the summary says no more than the ledger
knows at that moment: what is done, what is still moving, what needs whom.
"""

from typing import Annotated

import typer

from remit.checkpoints.database import Database, Row
from remit.console import identity
from remit.console.edge import go
from remit.console.options import Token
from remit.console.render import many, money, quoted, subject_of
from remit.console.screen import order_line, say, sweep_warning
from remit.console.services import opened
from remit.tools.catalogue import credit_catalogue
from remit.tools.errors import Refused
from remit.tools.states import Fact

_SCOPES = ("all", "mandate", "run", "agent", "version", "tool", "effect", "subject")

_DONE = {"stop": "stopped", "freeze": "frozen"}

_LAST_ORDER = 2**63 - 1
"""The database numbers orders in 64 bits."""

Scope = Annotated[str, typer.Argument(metavar="|".join(_SCOPES))]
Over = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help="A purpose or mandate's hash, a run, an agent, an agent version, a tool, an effect, or a subject.",
    ),
]
Why = Annotated[str, typer.Option("--because", metavar="TEXT", help="The reason, shown wherever it stands.")]


def stop(scope: Scope, value: Over = "", because: Why = "", token: Token = None) -> None:
    """Let nothing forward begin any more within a scope, from now on. Anybody with a token may."""
    go(_order("stop", scope, value, because, token))


def freeze(scope: Scope, value: Over = "", because: Why = "", token: Token = None) -> None:
    """Keep everything back within a scope until it is lifted, and allow nothing new. For leads and administrators."""
    go(_order("freeze", scope, value, because, token))


async def _order(kind: str, scope: str, value: str, because: str, token: str | None) -> None:
    value = _checked(kind, scope, value)
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        people = await services.people()
        place = people.stop if kind == "stop" else people.freeze
        order = await place(secret, scope, value, because)
        say(order_line(order), style="bold red")
        database = await services.database()
        await _summary(database, order)
        if (warning := await sweep_warning(database)) is not None:
            say(warning, style="yellow")
        say("What is true for whom, by the systems of record: `remit status`.")


def _checked(kind: str, scope: str, value: str) -> str:
    """The value as the ledger writes it. A misspelled tool would stop nothing and look like a stop."""
    if scope not in _SCOPES or (scope == "all") != (value == ""):
        raise Refused(
            f"Write `remit {kind} all`, `remit {kind} mandate PURPOSE`, `remit {kind} run RUN`, or name an agent, "
            "version, tool, effect or subject in the same way.",
            code="usage",
        )
    contracts = [tool.contract for tool in credit_catalogue().writes()]
    known = {"tool": {c.name for c in contracts}, "effect": {c.effect for c in contracts}}.get(scope)
    if known is not None and value not in known:
        has = ", ".join(sorted(known))
        raise Refused(
            f"The catalogue has no {scope} {quoted(value)}, so nothing was {_DONE[kind]}. It has: {has}.",
            code="usage",
        )
    return subject_of(value) if scope == "subject" else value


async def _summary(database: Database, order: Row) -> None:
    for row in await database.rows("done_within", order=order["id"]):
        done = many(row["done"], "effect")
        say(f"  {row['purpose']} ({row['mandate_hash'][:15]}): {done} completed, as far as the ledger knows.")
    moving = await database.rows("in_motion", order=order["id"])
    for row in moving:
        say(f"  {_line(row)}")
    if not moving:
        say("  Nothing is under way.")


def _line(row: Row) -> str:
    amount = f" ({money(row['amount'], row['currency'])})" if row["currency"] and row["amount"] else ""
    what = f"{row['count']} x {row['step']}{amount}"
    match row["fact"], row["obstacle"]:
        case _, "case":
            return f"{what}: {_word(row['fact'])}; a person has to look: `remit cases`."
        case Fact.NOT_SENT, "freeze":
            return f"{what}: not sent; it waits until the freeze is lifted."
        case Fact.NOT_SENT, _:
            return f"{what}: not sent and kept back; the sweep closes it, or `remit lift` does."
        case _, "sending":
            return f"{what}: in the hands of a sender; what was not begun is not begun any more, the rest is followed."
        case Fact.IN_PROGRESS, _:
            return f"{what}: sent, and still moving at the receiver; the sweep follows it to its end."
    return f"{what}: sent, and the outcome is not known yet; the sweep asks the system of record."


def _word(fact: str) -> str:
    return fact.lower().replace("_", " ")


def lift(
    order: Annotated[int, typer.Argument(metavar="ORDER", help="Its number, as every listing shows it.")],
    token: Token = None,
) -> None:
    """Lift an order. What it kept back is closed first: nothing starts by itself, it has to be proposed again."""
    go(_lift(order, token))


async def _lift(order: int, token: str | None) -> None:
    if not 0 < order <= _LAST_ORDER:
        raise Refused(
            "ORDER is the number of no order. Give one that stands over the listing of `remit runs`.",
            code="usage",
        )
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        people = await services.people()
        done = await people.lift(secret, order)
        say(
            f"Order {done['order_id']} is lifted. {many(done['cancelled'], 'waiting action')} closed as cancelled."
        )
        say(
            "Nothing starts by itself. `remit run PURPOSE` proposes what is still missing, once more under policy."
        )
