"""The contract of a tool: what its receiver guarantees and what it does not. DESIGN section 4.

A side-effecting tool whose contract is incomplete does not load, so that no effect can be tried whose outcome
could not be established afterwards.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from remit.tools.actions import Json, Request, Strict, SubjectId
from remit.tools.errors import Refused
from remit.tools.mandates import Step
from remit.tools.states import Consequence, Reversibility, Seen, Sight
from remit.tools.transport import Response, Transport

Seconds = Annotated[float, Field(gt=0, le=604_800)]


class Undo(Strict):
    """Who takes an effect back and how. All four or none: an undo without them does not load."""

    tool: Annotated[str, Field(min_length=1)]
    owner: Annotated[str, Field(pattern=r"^[a-z][a-z_]{1,40}$")]
    """A role of policy data."""
    approval: Annotated[str, Field(min_length=1)]
    test: Annotated[str, Field(min_length=1)]


class Probe(Strict):
    """What showed that a receiver enforces its keys, and when (ISO date)."""

    shown_by: Annotated[str, Field(min_length=1)]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class Budget(Strict):
    """How often and how long one operation may be tried before it becomes a case."""

    attempts: Annotated[int, Field(ge=1, le=50)]
    seconds: Seconds


class Contract(Strict):
    """Execution semantics of one side-effecting tool. Durations in seconds."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{1,60}$")]
    version: Annotated[str, Field(pattern=r"^\d+$")]
    effect: Annotated[str, Field(pattern=r"^[a-z]+(\.[a-z]+)+$")]
    summary: Annotated[str, Field(min_length=10)]
    receiver: Literal["accounts", "payments", "mail"]
    reads_from: tuple[str, ...]
    """Other receivers whose records `snapshot_many` reads: while one of them is closed, nothing can be sent either."""
    credential: Annotated[str, Field(min_length=1)]
    authority: Annotated[str, Field(min_length=1)]
    writes: Annotated[tuple[str, ...], Field(min_length=1)]
    records: Annotated[str, Field(min_length=10)]
    """Which records tell later what a version of the tool did, and by what they are found."""
    for_agents: bool
    """False for undo tools: only a recovery mandate reaches them."""
    retry_safe: bool
    reversibility: Reversibility
    undo: Undo | None
    consequence: Consequence
    receiver_enforces_key: bool
    key_probe: Probe | None
    key_retention: Seconds | None
    conditional: Literal["if-match"] | None
    relies_on: tuple[str, ...]
    visible_within: Seconds | None
    """From the last possible send to searchable, queues included; None is unbounded: absence proves nothing."""
    timeout: Seconds
    concurrency: Annotated[int, Field(ge=1, le=100)]
    batch: Annotated[int, Field(ge=1, le=100)]
    """How many operations one call carries; more than one needs `batch_request` and `split`."""
    budget: Budget
    expires_after: Seconds | None
    fallback: str | None = None

    @property
    def receivers(self) -> tuple[str, ...]:
        """Where it is sent, and then whose records are read before."""
        return (self.receiver, *self.reads_from)

    @model_validator(mode="after")
    def _complete(self) -> "Contract":
        if self.receiver_enforces_key and (self.key_probe is None or self.key_retention is None):
            raise ValueError(
                "receiver_enforces_key needs key_probe and key_retention: say what showed it and for how long"
            )
        if self.reversibility is not Reversibility.IRREVERSIBLE and self.undo is None:
            raise ValueError(f"{self.reversibility} needs an undo with tool, owner, approval and test")
        if self.batch > 1 and self.conditional is not None:
            raise ValueError("batch is 1 where writes are conditional: a call carries one condition")
        if self.retry_safe and not self.receiver_enforces_key:
            raise ValueError("retry_safe is only true where the receiver enforces the key")
        return self


class ReadContract(Strict):
    """What a reading tool may return. `pii` fields never reach the model or a journal."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{1,60}$")]
    version: Annotated[str, Field(pattern=r"^\d+$")]
    summary: Annotated[str, Field(min_length=10)]
    receiver: Literal["accounts", "payments", "mail"]
    credential: Annotated[str, Field(min_length=1)]
    authority: Annotated[str, Field(min_length=1)]
    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    pii: tuple[str, ...]
    most_subjects: Annotated[int, Field(ge=1, le=100_000)]
    timeout: Seconds

    @model_validator(mode="after")
    def _disjoint(self) -> "ReadContract":
        if both := sorted({*self.fields} & {*self.pii}):
            raise ValueError(
                f"{both} are marked pii and returned as well: what is pii leaves no reading tool"
            )
        return self

    def check(self, rows: Sequence[Mapping[str, Json]]) -> None:
        """Raises Refused where a read brought other fields than the contract names, or too many subjects."""
        if len(rows) > self.most_subjects:
            raise Refused(
                f"{self.name} brought more than {self.most_subjects} subjects, so nothing of it is used. Choose a "
                "smaller cohort.",
                code="too_many_subjects",
            )
        foreign = {name for row in rows for name in row} - {"subject", *self.fields}
        if foreign:
            raise Refused(
                f"{self.name} brought fields that its contract does not name ({', '.join(sorted(foreign))}), so "
                "nothing of it is used. Ask for something else, and have its contract looked at.",
                code="fields_outside_contract",
            )


class Arguments(Strict):
    """Base of what a model may say in a call of a writing tool: exactly one of `subject` and `cohort`."""

    subject: SubjectId | None = None
    cohort: Annotated[str, Field(pattern=r"^cohort-\d{1,3}-\d{1,3}$")] | None = None

    @model_validator(mode="after")
    def _one_target(self) -> "Arguments":
        if (self.subject is None) == (self.cohort is None):
            raise ValueError("give exactly one of subject and cohort")
        return self


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the company's records said about one subject: the values that a decision may rely on, and a version.

    `values` always holds `exists`. `etag` is for conditional writes only and is never hashed.
    """

    values: dict[str, Json]
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One operation in a call that carries several: its own wire key, and the request that it would be alone."""

    wire_key: str
    request: Request


@dataclass(frozen=True, slots=True)
class Sought:
    """One operation that verification looks for in the system of record."""

    reference: str
    subject: str
    intent: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the system of record showed for one reference. `complete` is False where the read was cut short.

    `asked` is False where the receiver's door was closed, so that nobody was asked at all.
    """

    reference: str
    sight: Sight
    source: str
    as_of: str
    complete: bool
    records: list[Json] = field(default_factory=list)
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Trace:
    """One effect in force that a system of record lists, whoever made it. `reference` as it was written there."""

    reference: str
    record: Json


@dataclass(frozen=True, slots=True)
class Listed:
    """Every effect of one kind since some time, by a complete reading."""

    source: str
    as_of: str
    traces: list[Trace]


class WriteTool(ABC):
    """One side-effecting tool: data in its contract, and the few functions that know its receiver."""

    contract: ClassVar[Contract]
    arguments: ClassVar[type[Arguments]]

    @abstractmethod
    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        """The effect-level fields after normalisation: no tool, no snapshot. A step of None is an undelegated try."""

    def edited(self, intent: dict[str, Json], values: Mapping[str, str]) -> dict[str, Json]:
        """The intent with a person's values of its fields, checked as a model's are. Refused for anything else of it.

        Which of these fields may be edited at all is the mandate's to say, and the ledger checks it.
        """
        raise Refused(
            f"Nothing of {self.contract.name} can be edited: the mandate fixes it. Reject it, or correct the mandate.",
            code="not_editable",
        )

    @abstractmethod
    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        """Exactly what would be sent, the reference included."""

    @abstractmethod
    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        """By reference. Everything asked for has an entry; what does not exist has `exists` False."""

    def headers(self, wire_key: str, etag: str | None) -> dict[str, str]:
        """How this receiver carries the key and the condition; the runner adds them to the stored request.

        `etag` is the snapshot's. Raises NotSent where the key or the condition cannot be carried.
        """
        return {}

    @abstractmethod
    def classify(self, response: Response, request: Request) -> Seen:
        """What an answer to `request` proves. What is not documented, or speaks of another, is UNKNOWN."""

    def batch_request(self, items: Sequence[Item]) -> Request:
        """One call for all of them, each under its own wire key. Needed where the contract's `batch` is above one."""
        raise NotImplementedError(f"{self.contract.name} sends one operation per call. Set its batch to 1.")

    def split(self, response: Response, items: Sequence[Item]) -> dict[str, Response]:
        """By wire key, what the answer to a batch call says of each item, as `classify` reads it.

        An item that is not mentioned exactly once is left out, and its outcome is unknown.
        """
        return {}

    @abstractmethod
    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        """One sighting per reference, over all tools of the effect, from the system of record."""

    async def enumerate(self, transport: Transport, since: datetime) -> Listed | None:
        """Every effect of this kind since a company time, over all its tools; None where the receiver lists none.

        What was withdrawn is no effect. Raises what `ask` raises, for a gap in it too.
        """
        return None

    async def withdraw(self, transport: Transport, records: list[Json]) -> Seen:
        """Take back what is still queued. UNKNOWN where the receiver has no such call."""
        return Seen.UNKNOWN


class ReadTool(ABC):
    """One reading tool: its answer becomes a cohort in the ledger, or a bounded record for the model."""

    contract: ClassVar[ReadContract]
    arguments: ClassVar[type[Strict]]

    @abstractmethod
    async def read(self, transport: Transport, arguments: Strict) -> list[dict[str, Json]]:
        """Rows with `subject` and the contract's fields, at most `most_subjects` of them."""
