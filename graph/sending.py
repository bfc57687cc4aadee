"""One round of execute: batches through the runner, and what comes of those that could not be sent.

Keeps I4 and I10 by deciding nothing itself: the claim decides, and whatever it refuses waits, is judged afresh, or
becomes a person's matter.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from remit.graph.deps import Deps, RunContext
from remit.graph.judging import ASK_AGAIN_SECONDS, ask_people, close_stale, judge_again, judge_open
from remit.tools.ports import Operation
from remit.tools.questions import BATCH
from remit.tools.states import State

_log = logging.getLogger(__name__)

_ASK_AGAIN = {"auto_budget", "subject_limit"}
"""Refusals of a claim that took the verdict back: by now others have what this operation would have needed."""


@dataclass(slots=True)
class Round:
    """What a round moved, and why a receiver or policy stood in the way, if one did."""

    moved: int = 0
    silence: str = ""


async def send_ready(deps: Deps, run: RunContext) -> Round:
    """Send everything of the run that is ready, in order of id and in batches, each operation at most once.

    Whatever went stale, before its claim or at the receiver, is judged afresh under a new revision.
    """
    round_, after, outdated = Round(), 0, 0
    while batch := await deps.ledger.sendable(run.run_id, after, BATCH):
        after = batch[-1].id
        current = [operation for operation in batch if _judged_by(deps, operation)]
        outdated += len(batch) - len(current)
        if current:
            outdated += await _send_batch(deps, run, current, round_)
    if outdated:
        met = await judge_again(deps, run)
        round_.silence = met.silence or round_.silence
        round_.moved += 0 if met.silence else outdated
    if round_.moved:
        round_.silence = (await judge_open(deps, run)).silence or round_.silence
    if outdated or round_.moved:
        await ask_people(deps, run)
    return round_


def _judged_by(deps: Deps, operation: Operation) -> bool:
    # A resend repeats what was begun under the verdict of then; orders and the mandate still bar it.
    return operation.state is State.UNKNOWN or operation.policy_revision == deps.policy.revision


async def _send_batch(deps: Deps, run: RunContext, batch: Sequence[Operation], round_: Round) -> int:
    """Returns how many operations policy has to be asked about afresh."""
    sent = await deps.runner.send(run.lease, batch)
    round_.moved += len(sent.attempted) + len(sent.stale)
    if sent.stale:
        await close_stale(deps, run, sent.stale)
    if sent.receiver_down:
        round_.silence = next(iter(sent.receiver_down.values()))
        _log.warning("a receiver gives no answer: %s", round_.silence)
        await deps.database.rows(
            "put_off",
            run=run.run_id,
            token=run.lease.token,
            ids=list(sent.receiver_down),
            detail=round_.silence[:300],
            seconds=ASK_AGAIN_SECONDS,
        )
    return sum(why in _ASK_AGAIN for why in sent.refused.values())
