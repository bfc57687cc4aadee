"""What policy said to the actions of a run, counted: allows, requests for approval, denials by code, and silences.

Keeps I10 on the screen (F28): where there was no answer, that is its own line with its own code, and never a denial.
"""

from typing import Any, TypedDict

from remit.checkpoints.database import Database, Row
from remit.console.render import many, moment


class Verdicts(TypedDict):
    """`now`: operations by verdict and code, `no_answer` among them; `silences`: how often there was no answer."""

    now: list[Row]
    silences: list[Row]


async def of_run(database: Database, run_id: str) -> Verdicts:
    """Both counts of one run; the keys are stable."""
    return Verdicts(
        now=await database.rows("verdict_counts", run=run_id),
        silences=await database.rows("silences", run=run_id),
    )


def sentences(verdicts: Verdicts) -> list[str]:
    """One line for the verdicts, and one for each code of silence; nothing where nothing was judged."""
    counted = [_counted(row) for row in verdicts["now"]]
    lines = [f"policy: {', '.join(counted)}"] if counted else []
    return [*lines, *(silence(row) for row in verdicts["silences"])]


def silence(row: dict[str, Any]) -> str:
    """One code: how often, for how much, and since when."""
    about = many(row["actions"], "action") if row["actions"] else "what was to be read"
    return (
        f"no answer from policy, which is no denial: {row['code']}, {many(row['times'], 'time')}, about {about}, "
        f"first {moment(row['first_at'])}, last {moment(row['last_at'])}"
    )


def _counted(row: Row) -> str:
    code = f" ({row['code']})" if row["code"] else ""
    return f"{row['count']} {row['verdict'].replace('_', ' ')}{code}"
