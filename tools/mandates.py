"""The compiled mandate: what every layer reads once `remit.policies` has parsed the manager's YAML.

Times are whole seconds since 1970 UTC, amounts are minor units of their currency. Immutable: its hash is its name.
"""

from typing import Annotated, Literal

from pydantic import Field

from remit.tools.actions import Json, Purpose, StepName, Strict, canonical_hash

Minor = Annotated[int, Field(ge=1, le=1_000_000_000_000)]


class Money(Strict):
    """An amount in minor units and its ISO 4217 currency."""

    amount_minor: Minor
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


class Who(Strict):
    """The cohort: by incident or by list, never unbounded. Frozen into subjects when the mandate is granted."""

    affected_by: str | None = None
    subjects: tuple[str, ...] = ()
    at_most: Annotated[int, Field(ge=1, le=100_000)]


class Step(Strict):
    """One named thing wanted per subject: its effect, fixed values, the fields and the promise it may make."""

    name: StepName
    effect: str
    exactly: Money | None = None
    fields: tuple[str, ...] = ()
    template: str | None = None
    promise: str | None = None
    announces: Money | None = None
    """The amount that a message may name: that of a step which must be COMPLETED before it."""
    after: tuple[StepName, ...] = ()


class AskAbove(Strict):
    """Whole proposals above this count or total amount need a person, so that all alike actions ask or none does."""

    count: Annotated[int, Field(ge=0)] | None = None
    money: Money | None = None


class Limit(Strict):
    """The most that one effect may do under this purpose, over all runs; reserved at claim."""

    effect: str
    count: Annotated[int, Field(ge=1)]
    money: Money | None = None


class Mandate(Strict):
    """One delegation by a principal to an agent. `remit mandate show` says it back in words."""

    format: Literal[1] = 1
    purpose: Purpose
    why: str
    agent: str
    who: Who
    valid_from: int
    valid_until: int
    steps: tuple[Step, ...]
    never: tuple[str, ...]
    ask_above: AskAbove
    limits: tuple[Limit, ...]

    @property
    def hash(self) -> str:
        return canonical_hash(self.document())

    def document(self) -> dict[str, Json]:
        """The JSON object that is stored and hashed."""
        document: dict[str, Json] = self.model_dump(mode="json")
        return document

    def steps_for(self, effect: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.effect == effect)

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)
