"""`remit stop` and `remit lift`: standing orders.

Keeps I4 and I6: the order is in force before anything else is looked at, and the summary says no more than the ledger
knows at that moment: what is done, what is still moving, what needs whom.
"""

from typing import Annotated

import typer

from remit.checkpoints.database import Database, Row
from remit.console import identity
from remit.console.edge import go
from remit.console.options import Token
from remit.console.render import many, money
from remit.console.screen import order_line, say, sweep_warning
from remit.console.services import opened
from remit.tools.errors import Refused
from remit.tools.states import Fact

_SCOPES = ("all", "mandate", "run")

_LAST_ORDER = 2**63 - 1
"""The database numbers orders in 64 bits."""


def stop(
    scope: Annotated[str, typer.Argument(metavar="all|mandate|run")],
    value: Annotated[
        str, typer.Argument(metavar="[M|R]", help="The mandate's purpose or hash, or the run.")
    ] = "",
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="The reason, shown wherever it stands.")
    ] = "",
    token: Token = None,
) -> None:
    """Let nothing forward begin any more within a scope, from now on. Anybody with a token may."""
    go(_stop(scope, value, because, token))


async def _stop(scope: str, value: str, because: str, token: str | None) -> None:
    if scope not in _SCOPES or (scope == "all") != (value == ""):
        raise Refused(
            "Write `remit stop all`, `remit stop mandate PURPOSE` or `remit stop run RUN`.", code="usage"
        )
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        people = await services.people()
        order = await people.stop(secret, scope, value, because)
        say(order_line(order), style="bold red")
        database = await services.database()
        await _summary(database, scope, value)
        if (warning := await sweep_warning(database)) is not None:
            say(warning, style="yellow")
        say("What is true for whom, by the systems of record: `remit status`.")


async def _summary(database: Database, scope: str, value: str) -> None:
    for purpose, mandate_hash, run in await _within(database, scope, value):
        rows = await database.rows("operations_of_purpose", purpose=purpose, subject=None)
        mine = [row for row in rows if run in (None, row["run_id"])]
        done = sum(row["fact"] == Fact.COMPLETED for row in mine)
        say(
            f"  {purpose} ({mandate_hash[:15]}): {many(done, 'effect')} completed, as far as the ledger knows."
        )
    moving = await database.rows("in_motion", scope=scope, value=value)
    for row in moving:
        say(f"  {_line(row)}")
    if not moving:
        say("  Nothing is under way.")


def _line(row: Row) -> str:
    amount = f" ({money(row['amount'], row['currency'])})" if row["currency"] and row["amount"] else ""
    what = f"{row['count']} x {row['step']}{amount}"
    match row["fact"], row["obstacle"]:
        case _, "case":
            return f"{what}: {_word(row['fact'])}; a person has to look: `remit status`."
        case Fact.NOT_SENT, _:
            return f"{what}: not sent and kept back; the sweep closes it, or `remit lift` does."
        case _, "sending":
            return f"{what}: in the hands of a sender; what was not begun is not begun any more, the rest is followed."
        case Fact.IN_PROGRESS, _:
            return f"{what}: sent, and still moving at the receiver; the sweep follows it to its end."
    return f"{what}: sent, and the outcome is not known yet; the sweep asks the system of record."


def _word(fact: str) -> str:
    return fact.lower().replace("_", " ")


async def _within(database: Database, scope: str, value: str) -> list[tuple[str, str, str | None]]:
    """(purpose, mandate, run or None) of each purpose with open work within the scope."""
    rows = await database.rows("runs", all=False, limit=1_000)
    match scope:
        case "run":
            return [(row["purpose"], row["mandate_hash"], value) for row in rows if row["id"] == value]
        case "mandate":
            found = [row for row in rows if value in (row["purpose"], row["mandate_hash"])]
        case _:
            found = [row for row in rows if row["ended_at"] is None]
    return [
        (purpose, hash_, None)
        for purpose, hash_ in {row["purpose"]: row["mandate_hash"] for row in found}.items()
    ]


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
