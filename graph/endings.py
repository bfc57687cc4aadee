"""When a run goes on planning, and under which name it ends. DESIGN section 9, invariant I7.

Pure: the facts come in, a named end or None goes out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remit.graph.deps import Budget, RunContext
from remit.tools.states import RunStatus


@dataclass(frozen=True, slots=True)
class End:
    """A named end: a status, and a reason that begins with a stable code."""

    status: RunStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What the ledger shows at assess. `steps` counts subjects by step and fact; `statements` are of the last plan."""

    plan: int
    finished: bool
    steps: dict[str, dict[str, int]]
    statements: Sequence[dict[str, Any]]
    repeated_plan: bool
    repeated_denial: dict[str, Any] | None
    cases: int


def authority_end(run: RunContext) -> End | None:
    """A standing order or a mandate that is over ends the run whatever else is the case (I4)."""
    if run.order_id is not None:
        return End(RunStatus.STOPPED, f"stopped: order {run.order_id} is in force")
    if run.superseded:
        return End(
            RunStatus.BLOCKED,
            "mandate_superseded: a corrected mandate was granted for this purpose; run that one",
        )
    if run.revoked:
        return End(RunStatus.BLOCKED, "mandate_revoked: the delegation was taken back")
    if not run.mandate_live:
        return End(RunStatus.BLOCKED, "mandate_over: outside the mandate's validity")
    return None


def repeats(last: dict[str, Any], plans: Sequence[dict[str, Any]], movement: int) -> bool:
    """Whether the last plan moved nothing and was made before: just now, or while the ledger stood as it stands.

    A plan is {number, hash, movement}, `movement` being the ledger's when the plan was made.
    """
    return last["movement"] == movement and any(
        plan["hash"] == last["hash"]
        and (plan["number"] == last["number"] - 1 or plan["movement"] == movement)
        for plan in plans
        if plan["number"] < last["number"]
    )


def ending(run: RunContext, progress: Progress, budget: Budget) -> End | None:
    """The end of the run, or None: the model is asked for another plan."""
    over = authority_end(run)
    if over is not None:
        return over
    if progress.finished:
        return _finish(progress)
    if progress.repeated_plan:
        return End(RunStatus.BLOCKED, "repeated_plan: the same plan again, and nothing moved")
    if progress.repeated_denial is not None:
        step = progress.repeated_denial["step"]
        return End(
            RunStatus.BLOCKED, f"repeated_denial: the same denied action was proposed again (step {step})"
        )
    if progress.plan >= budget.plans:
        return End(RunStatus.BLOCKED, f"step_budget: {progress.plan} plans and no finish")
    if run.tokens_used >= budget.tokens:
        return End(RunStatus.BLOCKED, f"token_budget: {run.tokens_used} tokens used")
    return None


def _finish(progress: Progress) -> End:
    lacking = {
        step: (facts.get("COMPLETED", 0), sum(facts.values()))
        for step, facts in progress.steps.items()
        if facts.get("COMPLETED", 0) < sum(facts.values())
    }
    wrong = [s for s in progress.statements if borne_out(s, progress.steps) is False]
    if not lacking and not wrong and not progress.cases:
        return End(RunStatus.COMPLETED, "completed: every step is completed for every subject of the mandate")
    told = ", ".join(f"{step} {done} of {total}" for step, (done, total) in sorted(lacking.items()))
    if wrong:
        return End(
            RunStatus.INCOMPLETE,
            f"unproven_finish: {len(wrong)} statement(s) that the evidence does not bear out"
            + (f"; {told}" if told else ""),
        )
    if progress.cases:
        return End(
            RunStatus.INCOMPLETE,
            f"open_cases: {progress.cases} to be looked at by a person" + (f"; {told}" if told else ""),
        )
    return End(RunStatus.INCOMPLETE, f"finished_early: {told}")


def confirmed(end: End, shown: dict[str, dict[str, int]]) -> End:
    """The end of a completed run once the systems of record were asked: what they do not show is not completed (I6)."""
    lost = {
        step: (facts.get("COMPLETED", 0), sum(facts.values()))
        for step, facts in shown.items()
        if facts.get("COMPLETED", 0) < sum(facts.values())
    }
    if not lost:
        return end
    told = ", ".join(f"{step} {done} of {total}" for step, (done, total) in sorted(lost.items()))
    return End(
        RunStatus.INCOMPLETE, f"not_confirmed: settled once, but the systems of record show only {told}"
    )


def borne_out(statement: dict[str, Any], steps: dict[str, dict[str, int]]) -> bool | None:
    """Whether a statement's count is what the evidence shows for its step. None: it claims nothing checkable.

    The text is never checked: True says that the count matches, and no more.
    """
    step, count = statement.get("step"), statement.get("count")
    if step is None or count is None:
        return None
    return step in steps and steps[step].get("COMPLETED", 0) == count
