"""The question that policy is asked and the only answer that counts. AuthZEN-shaped; DESIGN section 7.

Keeps I3 and I10: the answer is parsed strictly, ids must match one to one, and anything else is no answer.
"""

from typing import Annotated, Literal

from pydantic import Field

from remit.tools.actions import Json, Strict
from remit.tools.states import Verdict

BATCH = 100
"""Actions per question. The compiled engine's memory grows beyond that: 1,000 actions take 42 times as long."""

Count = Annotated[int, Field(ge=0, le=10_000_000)]
Amount = Annotated[int, Field(ge=0, le=1_000_000_000_000_000)]
"""A sum in minor units. Larger ones stop here: every limit lies far below, so each comparison comes out the same."""

OneAmount = Annotated[int, Field(ge=0, le=1_000_000_000_000)]
"""One action's amount in minor units; the border that `tools.mandates.Minor` and the Rego keep too."""


class Link(Strict):
    """One link of the delegation chain: who stands in it, as which natural person, in which role."""

    part: Literal["grantor", "requester", "owner"]
    person: str
    role: str


class Agent(Strict):
    """Who asks: the agent at its version, behind its whole delegation chain."""

    type: Literal["agent"] = "agent"
    id: str
    version: str
    chain: tuple[Link, ...]


class Total(Strict):
    """How many, and how much by currency (minor units)."""

    count: Count = 0
    amounts: dict[str, Amount] = Field(default_factory=dict)


class Context(Strict):
    """What holds for every action of the question. `now` is remit.clock() in whole seconds."""

    now: int
    environment: Literal["sandbox", "staging", "production"]
    mandate_hash: str
    mandate: dict[str, Json]
    revoked: bool
    totals: dict[str, Total]
    """By effect, under this purpose: completed, in flight and unknown, without this proposal."""
    proposal: dict[str, Total]
    """By step: the whole proposal, over all its batches, with what is already waiting of it."""
    used: dict[str, Total] = Field(default_factory=dict)
    """By a limit's name: what is reserved in its current window, of this purpose or of all."""


class Required(Strict):
    """Where a step that must come first stands for this subject."""

    step: str
    fact: Literal["NOT_SENT", "IN_PROGRESS", "COMPLETED", "UNKNOWN"]
    live: bool
    """False when there is no operation that could still complete."""


class Properties(Strict):
    """The typed fields that policy decides on; free text never reaches it."""

    tool: str
    tool_version: str
    step: str
    reversibility: Literal["reversible", "compensable", "irreversible"]
    consequence: Literal["low", "medium", "high"]
    amount_minor: OneAmount | None = None
    currency: str | None = None
    fields: tuple[str, ...] = ()
    template: str | None = None
    promise: str | None = None
    """The promise that the receiver itself declares for the template, from the snapshot."""


class EffectName(Strict):
    name: str
    properties: Properties


class ResourceProperties(Strict):
    in_cohort: bool
    rejected_before: bool
    """A person said no under this key: whatever policy allows by itself, a person is asked now."""
    barred: Literal["stop", "freeze"] | None = None
    """The kind of the standing order over exactly this action, as the database says it and nobody else."""
    snapshot: dict[str, Json]
    requires: tuple[Required, ...]
    given: Total = Field(default_factory=Total)
    """What this subject has of this effect under this purpose already: completed, in flight and unknown."""


class Resource(Strict):
    type: str
    id: str
    properties: ResourceProperties


class Evaluation(Strict):
    """One action in question; `id` comes back in its decision."""

    id: str
    action: EffectName
    resource: Resource


class Question(Strict):
    """At most 100 actions of one run, with everything that their verdicts may depend on."""

    v: Literal[1] = 1
    subject: Agent
    context: Context
    evaluations: Annotated[tuple[Evaluation, ...], Field(min_length=1, max_length=BATCH)]


class Reason(Strict):
    """Why, as a stable code; `field`, `limit` and the like say which."""

    code: Annotated[str, Field(pattern=r"^[a-z][a-z_]{2,40}$")]
    detail: str = ""


Window = Literal["ever", "hour", "day", "month"]
"""How long a limit counts: as long as its purpose lives, or by the calendar of the installation's zone."""


class Volume(Strict):
    """A limit that policy compared; the ledger reserves its share at claim.

    `scope`: counted under this purpose, over all purposes of the effect, or for this subject under this purpose. `name`
    tells limits apart, so it holds kind, effect, scope, window and currency.
    """

    name: str
    scope: Literal["purpose", "effect", "subject"]
    window: Window
    count: Count | None
    amount_minor: Amount | None
    currency: str | None


Wait = Annotated[int, Field(ge=0, le=2_592_000)]


class OnExpiry(Strict):
    """Who is asked, and for how many seconds, when nobody decided in time."""

    approvers: Annotated[tuple[str, ...], Field(min_length=1)]
    quorum: Annotated[int, Field(ge=1, le=5)]
    decide_within: Annotated[Wait, Field(ge=1)]


class Obligations(Strict):
    """What the ledger must see to before or after sending; times in seconds.

    `quorum_of`: how many of which role at least; the other voices of the quorum may be of any of the approvers.
    """

    hold_seconds: Annotated[int, Field(ge=0, le=604_800)]
    release_by: tuple[str, ...]
    approvers: tuple[str, ...]
    quorum: Annotated[int, Field(ge=0, le=5)]
    quorum_of: dict[str, Annotated[int, Field(ge=1, le=5)]]
    decide_within: Wait
    on_expiry: OnExpiry | None
    execute_within: Wait
    volume: tuple[Volume, ...]
    """What does not fit waits, for the window or for a share; for one subject it is asked about again, and denied."""
    auto_budget: tuple[Volume, ...]
    """What may go out without a person; what does not fit is asked about again. What was approved needs none of it."""
    verify: bool


class Decision(Strict):
    """One verdict. A deny or needs_approval always has a reason."""

    id: str
    verdict: Annotated[Verdict, Field(strict=False)]
    reasons: tuple[Reason, ...]
    obligations: Obligations


class Answer(Strict):
    """All decisions of one question, and which engine at which revision gave them."""

    decisions: tuple[Decision, ...]
    engine: str
    revision: str
    decision_id: str
