"""What a run met under keys that were taken: why it sent nothing there, and whose operation stands there.

Explains I1 to people: a key is sent once whoever proposes it, and the later run says so instead of looking idle.
"""

from collections.abc import Sequence

from remit.checkpoints.database import Database, Row
from remit.console.render import many

_WHY = {
    "completed_already": "completed already",
    "proposed_already": "proposed already",
}

_MOST_RUNS = 3


async def met(database: Database, run_id: str) -> list[Row]:
    """What the run's proposals met, distinct by step and subject: {outcome, code, count, runs}.

    `outcome` is done, same or conflict, `runs` own what was met. What a run meets of its own is left out, but for a
    conflict.
    """
    return await database.rows("met_already", run=run_id)


def sentences(found: Sequence[Row]) -> list[str]:
    """A sentence for each kind."""
    return [_sentence(row) for row in found]


def _sentence(row: Row) -> str:
    runs = ", ".join(row["runs"][:_MOST_RUNS])
    if (more := len(row["runs"]) - _MOST_RUNS) > 0:
        runs += f" and {many(more, 'other run')}"
    if row["outcome"] == "conflict":
        verbs = "differs" if row["count"] == 1 else "differ", "was" if row["count"] == 1 else "were"
        return (
            f"{many(row['count'], 'proposal')} {verbs[0]} from what stands under the same key, by {runs}, and "
            f"{verbs[1]} left alone (conflict)."
        )
    why = _WHY.get(row["code"] or "", row["outcome"])
    return f"Nothing was sent for {row['count']} of its proposals: {why}, by {runs}."
