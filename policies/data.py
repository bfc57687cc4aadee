"""Policy's data as people edit it: roles, ceilings, matrix, holds, approvers and limits, checked when read.

Keeps I10 from the side of whoever edits a limit: what is incomplete stops the start, never a decision.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from babel.numbers import get_currency_precision
from pydantic import Field, ValidationError, model_validator

from remit.tools.actions import Strict
from remit.tools.errors import Misconfigured
from remit.tools.mandates import Minor

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


class PolicyVolume(Strict):
    """The most that one effect may do under one purpose; reserved beside the mandate's own limit."""

    count: Times
    amount_minor: Minor | None
    currency: Currency | None


class Effect(Strict):
    """Everything that policy holds about one effect; times in seconds, amounts in minor units."""

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
    decide_within: Seconds
    execute_within: Seconds
    volume: PolicyVolume

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.autonomy == "bounded") != (self.bounds is not None):
            raise ValueError("bounds belong to a bounded effect, and to no other")
        if foreign := set(self.release_by) - set(self.approvers):
            raise ValueError(f"release_by names roles that are no approvers: {sorted(foreign)}")
        has_money = self.volume.amount_minor is not None and self.volume.currency is not None
        if self.money != has_money or (not self.money and self.volume.currency is not None):
            raise ValueError(
                "volume needs amount_minor and currency where money moves, and neither elsewhere"
            )
        return self


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
        if foreign := {role for effect in self.effects.values() for role in effect.approvers} - set(
            self.roles
        ):
            raise ValueError(f"approvers that are no role: {sorted(foreign)}")
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
