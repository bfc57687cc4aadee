"""The graph's state: small versioned JSON, ids and counts only, the same size for ten subjects and for five thousand.

Keeps I11 and F30: every load is validated; what does not fit is quarantined with its thread, and the ledger goes on.
"""

from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from pydantic import Field, ValidationError

from remit.tools.actions import Strict
from remit.tools.errors import RemitError
from remit.tools.ports import Lease

STATE_VERSION = 1


class State(TypedDict, total=False):
    """Channels of the graph. `plan` is the number of the plan in work; `waits` counts operations by obstacle; `reason`
    says of a pause who gave no answer, and of an end its name."""

    v: int
    run_id: str
    plan: int
    waits: dict[str, int]
    status: str
    reason: str
    report: dict[str, int]


class _Checked(Strict):
    v: Annotated[int, Field(ge=STATE_VERSION, le=STATE_VERSION)]
    run_id: str
    plan: Annotated[int, Field(ge=0)]
    waits: dict[str, int] = Field(default_factory=dict)
    status: str = ""
    reason: str = ""
    report: dict[str, int] = Field(default_factory=dict)


_LONGEST_REASON = 300


def clipped(text: str) -> str:
    """A reason as long as a checkpoint may carry it."""
    return text[:_LONGEST_REASON]


def brief(error: RemitError) -> str:
    """What an error says, as long as a checkpoint may carry it."""
    return clipped(str(error))


def initial(run_id: str, plan: int) -> State:
    """The state of a fresh thread, entering after `plan` plans."""
    return State(v=STATE_VERSION, run_id=run_id, plan=plan, waits={}, status="", reason="", report={})


def fits(values: object, run_id: str) -> bool:
    """Whether loaded channel values are this version's state of this run, in every field and type."""
    try:
        return _Checked.model_validate(values).run_id == run_id
    except ValidationError:
        return False


def lease_of(config: RunnableConfig) -> Lease:
    """The lease under which this step runs; its token travels in the config and so in the checkpoint's metadata."""
    place = config["configurable"]
    return Lease(str(place["thread_id"]).partition("/")[0], int(place["run_token"]), str(place["worker"]))
