"""One batched question, what it is kept as, and how a silence is counted.

Keeps I3 and I10: a verdict is written together with the question that it answers, so that it can be explained as it
was made; where there is no answer, that is counted by its code and never looks like a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from remit.checkpoints.database import json as jsonb
from remit.graph import actions
from remit.graph.deps import Deps, RunContext
from remit.policies import Judged, ask_all
from remit.policies.record import context_document
from remit.tools.actions import Json, canonical_hash
from remit.tools.errors import NoAnswer
from remit.tools.ports import FaultPoint
from remit.tools.questions import Context, Evaluation


@dataclass(frozen=True, slots=True)
class Asked:
    """The decisions by id, or the code of the silence and what was said about it."""

    judged: dict[str, Judged]
    kept: dict[str, Json] = field(default_factory=dict)
    silence: str = ""
    why: str = ""

    def columns(self, id_: str) -> dict[str, Json]:
        """The columns of the verdict, and the question beside them."""
        return {
            **actions.judged_columns(self.judged.get(id_), silence=self.silence),
            "question": self.kept.get(id_),
        }


async def ask(deps: Deps, run: RunContext, context: Context, evaluations: Sequence[Evaluation]) -> Asked:
    """Ask policy once about these actions. A silence is counted, and is no error here."""
    await deps.database.reach(FaultPoint.BEFORE_POLICY)
    try:
        answers = await ask_all(deps.policy, run.agent, context, evaluations)
    except NoAnswer as error:
        await count_silence(deps, run, error, len(evaluations))
        return Asked({}, silence=error.code, why=str(error))
    await deps.database.reach(FaultPoint.AFTER_POLICY)
    document = context_document(run.agent, context)
    hash_ = canonical_hash(document)
    place = {"run": run.run_id, "token": run.lease.token}
    await deps.database.rows("keep_context", **place, hash=hash_, document=jsonb(document))
    kept: dict[str, Json] = {
        one.id: {"context": hash_, "evaluation": one.model_dump(mode="json")} for one in evaluations
    }
    return Asked({judged.decision.id: judged for judged in answers}, kept)


async def count_silence(deps: Deps, run: RunContext, error: NoAnswer, actions_: int) -> None:
    """Once more of this code in this run; `actions_` is how many actions it concerned, 0 for a read."""
    await deps.database.rows(
        "count_silence",
        run=run.run_id,
        token=run.lease.token,
        code=error.code,
        detail=str(error)[:500],
        actions=actions_,
    )
