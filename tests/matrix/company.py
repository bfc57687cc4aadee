"""What one row of the matrix is about: the wanted effect, what was there before, and what the records show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from remit.sandbox.worlds import World
from remit.tools.accounts import accounts_of
from remit.tools.actions import Json
from remit.tools.catalogue import Catalogue, credit_catalogue
from remit.tools.contracts import Snapshot, Sought, WriteTool
from remit.tools.mandates import AskAbove, Mandate, Money, Step, Who
from remit.tools.transport import Transport
from tests.fixtures import AGENT
from tests.matrix.rows import Kind, Weather

AMOUNT: dict[str, Json] = {"amount_minor": 1000, "currency": "USD"}
_MONEY = Money(amount_minor=1000, currency="USD")

_EFFECTS: dict[Kind, dict[str, Any]] = {
    Kind.CREDIT: {"effect": "credit.issue", "exactly": _MONEY},
    Kind.LEGACY: {"effect": "credit.issue", "exactly": _MONEY},
    Kind.NOTE: {"effect": "account.annotate", "fields": ("notes",)},
    Kind.MAIL: {
        "effect": "email.send",
        "template": "one_time_credit",
        "promise": "one_time_credit",
        "announces": _MONEY,
    },
    Kind.REVERSAL: {"effect": "credit.reverse", "exactly": _MONEY},
    Kind.REMOVAL: {"effect": "account.unannotate"},
    Kind.CORRECTION: {"effect": "email.correct"},
}

CALLS: dict[Kind, tuple[str, str]] = {
    Kind.CREDIT: ("payments", "POST /credits"),
    Kind.LEGACY: ("payments", "POST /legacy/credits"),
    Kind.NOTE: ("accounts", "PATCH /accounts/{id}"),
    Kind.MAIL: ("mail", "POST /messages"),
    Kind.REVERSAL: ("payments", "POST /credits/{id}/reverse"),
    Kind.REMOVAL: ("accounts", "PATCH /accounts/{id}"),
    Kind.CORRECTION: ("mail", "POST /messages"),
}
"""Service and route of the call that has the effect."""

_FAULTS = {
    Weather.REPLY_LOST: "reply_lost",
    Weather.ERROR_AFTER: "error_after",
    Weather.SLOW: "slow_settle",
}

SETTLES_LATE = 0.5
"""Seconds; a little more than any receiver of the matrix needs in calm weather."""


class _Watchful:
    """A tool whose decision also relies on the customer's plan, so that an employee can change what was approved."""

    @staticmethod
    def of(tool: WriteTool, timeout: float, visible_within: float) -> WriteTool:
        relies_on = (*tool.contract.relies_on, "plan")
        changes = {"timeout": timeout, "visible_within": visible_within, "relies_on": relies_on}
        contract = tool.contract.model_copy(update=changes)

        async def snapshot_many(
            self: WriteTool, transport: Transport, asked: Sequence[Sought]
        ) -> dict[str, Snapshot]:
            found = await type(tool).snapshot_many(self, transport, asked)
            known = await accounts_of(transport, [one.subject for one in asked], timeout)
            return {
                one.reference: Snapshot(
                    {**found[one.reference].values, "plan": known[one.subject].plan},
                    found[one.reference].etag,
                )
                for one in asked
            }

        made: WriteTool = type(
            type(tool).__name__, (type(tool),), {"contract": contract, "snapshot_many": snapshot_many}
        )()
        return made


class MatrixCatalogue(Catalogue):
    """The credit agent's tools with shorter waits; its model may propose the undo tools as a recovery mandate does."""

    def for_agents(self) -> list[WriteTool]:
        return self.writes()

    def openai_tools(self) -> list[dict[str, Json]]:
        return self._told

    @cached_property
    def _told(self) -> list[dict[str, Json]]:
        return super().openai_tools()


@cache
def matrix_catalogue(*, timeout: float = 2.0, visible_within: float = 0.3) -> MatrixCatalogue:
    """Long enough for a slow machine: a call that times out is verified, and only costs time. One per process."""
    usual = credit_catalogue()
    writes = [_Watchful.of(tool, timeout, visible_within) for tool in usual.writes()]
    return MatrixCatalogue(writes=writes, reads=usual.reads())


def step_of(kind: Kind) -> str:
    """The step of the mandate that wants this kind of effect."""
    return kind.name.lower()


def mandate_for(kinds: Sequence[Kind], purpose: str, subject: str, why: str = "It is wanted.") -> Mandate:
    """A mandate over one subject, with a step for each kind."""
    return Mandate(
        purpose=purpose,
        why=why,
        agent=AGENT,
        who=Who(subjects=(subject,), at_most=1),
        valid_from=0,
        valid_until=4_000_000_000,
        steps=tuple(Step(name=step_of(kind), **_EFFECTS[kind]) for kind in kinds),
        never=(),
        ask_above=AskAbove(),
        limits=(),
    )


async def before(world: World, kind: Kind, purpose: str, customer: str) -> dict[str, Json]:
    """What an earlier day left that this row undoes; returns the arguments of the call that a model is to make."""
    reference = f"{purpose}/earlier"
    match kind:
        case Kind.CREDIT | Kind.LEGACY:
            return AMOUNT
        case Kind.NOTE:
            return {"note": f"Written for {purpose}."}
        case Kind.MAIL:
            return {"template": "one_time_credit"}
        case Kind.REVERSAL:
            body = {"customer": customer, **AMOUNT, "reason": "an earlier day", "reference": reference}
            credit = await world.ask("payments", "POST", "/credits", body, key=reference)
            return {"undoes": reference, "record": credit.body["id"], **AMOUNT}
        case Kind.REMOVAL:
            noted = {"changes": {"notes": f"Wrong, for {purpose}."}, "reference": reference}
            await world.ask("accounts", "PATCH", f"/accounts/{customer}", noted)
        case Kind.CORRECTION:
            wrong = {"template": "one_time_credit", "values": {"amount": "10.00 USD"}}
            await world.ask(
                "mail", "POST", "/messages", {"customer": customer, **wrong, "reference": reference}
            )
    return {"undoes": reference}


async def arrange(world: World, kind: Kind, weather: Weather, reference: str, *, lies: bool) -> None:
    """The company's part: its fault hits the first call that bears this reference, and no other call.

    `lies`: the first one is said to be accepted and has no effect; the weather is that of the second.
    """
    service, route = CALLS[kind]
    named = "memo" if kind is Kind.LEGACY else "reference"
    if lies:
        await world.control.add_fault(service, "lying_ok", route, match={named: reference})
    if weather is Weather.CALM:
        return
    fault = _FAULTS[weather]
    if weather is Weather.SLOW and service == "accounts":
        # A change of an account has no stage before it holds; the call itself is what takes long.
        fault = "delay"
    seconds = SETTLES_LATE if weather is Weather.SLOW else None
    match: dict[str, object] = {named: reference}
    await world.control.add_fault(service, fault, route, match=match, seconds=seconds, skip=int(lies))


def count(records: dict[str, Any], kind: Kind, reference: str) -> int:
    """How often the records show the effect of this reference, whatever became of it later."""
    match kind:
        case Kind.CREDIT | Kind.LEGACY:
            return sum(credit["reference"] == reference for credit in records["credits"])
        case Kind.REVERSAL:
            return sum(reversal["reference"] == reference for reversal in records["reversals"])
        case Kind.MAIL | Kind.CORRECTION:
            return sum(message["reference"] == reference for message in records["messages"])
        case Kind.NOTE | Kind.REMOVAL:
            changes = [c for c in records["changes"] if c["reference"] == reference]
            return len({(change["account"], change["version"]) for change in changes})
