"""Policy's data as people edit it: roles, ceilings, matrix, holds, approvers and limits, checked when read.

Keeps I10 from the side of whoever edits a limit: what is incomplete stops the start, never a decision.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from babel.numbers import get_currency_precision
from pydantic import Field, ValidationError, model_validator

from remit.tools.actions import Strict
from remit.tools.errors import Misconfigured
from remit.tools.mandates import Minor
from remit.tools.questions import OnExpiry, Window

Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
EffectId = Annotated[str, Field(pattern=r"^[a-z]+\.[a-z_]+$")]
Amounts = dict[Currency, Minor]
Times = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[int, Field(ge=1, le=2_592_000)]
Row = Literal["reversible", "compensable", "irreversible"]
Column = Literal["low", "medium", "high"]


class Cell(Strict):
    """What one row and column of the matrix ask for. DESIGN section 7."""

    verdict: Literal["allow", "needs_approval"]
    hold: bool
    verify: bool


class Bounds(Strict):
    """What a `bounded` effect may do without a person, whatever the mandate says; amounts in minor units."""

    count: Times
    amounts: Amounts


class AtLeast(Strict):
    """The row and column that policy never goes below, whatever the tool's contract says."""

    reversibility: Row
    consequence: Column


class SubjectLimit(Strict):
    """The most that one subject may get of one effect under one purpose; more is denied.

    Counts and adds up what is in `currency`, or whatever its currency where that is null; amounts in minor units.
    """

    count: Times | None
    amount_minor: Minor | None
    currency: Currency | None

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.count is None and self.amount_minor is None:
            raise ValueError("a limit needs a count or an amount_minor")
        if (self.amount_minor is None) != (self.currency is None):
            raise ValueError("amount_minor and currency go together")
        return self


class PolicyLimit(SubjectLimit):
    """The most that one effect may do under one purpose or over all, ever or in each calendar window.

    Windows are those of the installation's zone. As `volume` what does not fit waits; as `auto_budget` it asks.
    """

    scope: Literal["purpose", "effect"]
    window: Window

    @property
    def name(self) -> tuple[str, str, str | None]:
        """What tells the limits of one list apart, as in the buckets of the ledger."""
        return self.scope, self.window, self.currency


class Effect(Strict):
    """Everything that policy holds about one effect; times in seconds, amounts in minor units."""

    reached_by: Literal["agents", "recovery", "nobody"]
    """By whose mandates: those of agents, only those that take something back, or by no tool of this installation."""
    autonomy: Literal["supervised", "bounded", "autonomous"]
    bounds: Bounds | None
    money: bool
    message: bool
    fields: tuple[str, ...]
    at_least: AtLeast
    high_above: Amounts
    hold_seconds: Annotated[int, Field(ge=0, le=604_800)]
    release_by: tuple[str, ...]
    """Which of the approvers' roles may let it leave before its window is over, outside the chain; none: nobody may."""
    approvers: Annotated[tuple[str, ...], Field(min_length=1)]
    quorum: Annotated[int, Field(ge=1, le=5)]
    quorum_of: dict[str, Annotated[int, Field(ge=1, le=5)]]
    decide_within: Seconds
    on_expiry: OnExpiry | None
    execute_within: Seconds
    volume: Annotated[tuple[PolicyLimit, ...], Field(min_length=1)]
    auto_budget: tuple[PolicyLimit, ...]
    per_subject: tuple[SubjectLimit, ...]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.autonomy == "bounded") != (self.bounds is not None):
            raise ValueError("bounds belong to a bounded effect, and to no other")
        if foreign := set(self.release_by) - set(self.approvers):
            raise ValueError(f"release_by names roles that are no approvers: {sorted(foreign)}")
        if not set(self.quorum_of) <= set(self.approvers) or sum(self.quorum_of.values()) > self.quorum:
            raise ValueError("quorum_of names approvers, and no more of them than the quorum is")
        if self.auto_budget and self.autonomy != "bounded":
            raise ValueError("auto_budget belongs to a bounded effect, and to no other")
        limits = (*self.volume, *self.auto_budget, *self.per_subject)
        if not self.money and any(one.currency is not None for one in limits):
            raise ValueError("amounts belong to an effect that moves money")
        if self.money and all(one.currency is None for one in self.volume):
            raise ValueError("volume needs a limit with an amount where money moves")
        _distinct([one.name for one in self.volume])
        _distinct([one.name for one in self.auto_budget])
        _distinct([one.currency for one in self.per_subject])
        return self

    @property
    def asked(self) -> frozenset[str]:
        """Every role that may be asked about this effect, at first or after an escalation."""
        later = () if self.on_expiry is None else self.on_expiry.approvers
        return frozenset({*self.approvers, *later})


def _distinct(names: Sequence[object]) -> None:
    if len(set(names)) != len(names):
        raise ValueError("two limits of one list have the same scope, window and currency")


class Ceiling(Strict):
    """How far one role may delegate one effect: actions, minor units per action and per mandate."""

    count: Times
    each: Amounts
    total: Amounts


class Settings(Strict):
    """The document under `data.remit.settings`."""

    currencies: dict[Currency, Annotated[int, Field(ge=0, le=4)]]
    rows: tuple[Literal["reversible"], Literal["compensable"], Literal["irreversible"]]
    columns: tuple[Literal["low"], Literal["medium"], Literal["high"]]
    matrix: dict[Row, dict[Column, Cell]]
    effects: dict[EffectId, Effect]
    roles: dict[str, dict[EffectId, Ceiling]]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if set(self.matrix) != set(self.rows) or any(
            set(row) != set(self.columns) for row in self.matrix.values()
        ):
            raise ValueError("the matrix needs a cell for each row and column")
        if foreign := {effect for role in self.roles.values() for effect in role} - set(self.effects):
            raise ValueError(f"roles delegate effects that are not listed: {sorted(foreign)}")
        approvers = {role for effect in self.effects.values() for role in effect.asked}
        if foreign := approvers - set(self.roles):
            raise ValueError(f"approvers that are no role: {sorted(foreign)}")
        if "administrator" in approvers:
            raise ValueError("administrators make identities, so they approve nothing")
        for currency, digits in self.currencies.items():
            if get_currency_precision(currency) != digits:
                raise ValueError(
                    f"{currency} has {get_currency_precision(currency)} decimal digits, not {digits}"
                )
        return self


class _Remit(Strict):
    settings: Settings


class _Document(Strict):
    remit: _Remit


def read_settings(file: Path) -> Settings:
    """The checked policy data. Raises Misconfigured, which names each place that is wrong."""
    try:
        return _Document.model_validate_json(file.read_bytes()).remit.settings
    except FileNotFoundError as error:
        raise Misconfigured(
            f"{file.name} is missing beside the Rego. Restore it.", code="policy_data"
        ) from error
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        raise Misconfigured(f"{file.name}: {places}. Correct the policy data.", code="policy_data") from error
