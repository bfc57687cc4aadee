"""The settle sweep: what goes on without any agent. Verifies, settles, expires, cancels, finds lost senders. DESIGN 5.

Independent of the graph: a stopped or ended run is followed exactly like a live one.
"""

from remit.checkpoints.database import Database
from remit.checkpoints.workers import Worker
from remit.tools.runner import Runner

_BATCHES = 20
"""Batches of 100 looks per sweep at most, so that one sweep ends and the next can start with expiries again."""


class Sweep:
    """One worker's sweep over the whole database, or over one run."""

    def __init__(self, database: Database, runner: Runner, worker: Worker) -> None:
        self._database = database
        self._runner = runner
        self._worker = worker

    async def once(self, run_id: str | None = None) -> int:
        """One pass. Returns how many rows it looked at or changed; 0 means that there was nothing to do."""
        await self._worker.watch(self._database)
        await self._worker.bury_the_dead(self._database)
        changed: int = await self._database.value("tidy")
        for _ in range(_BATCHES):
            looked = await self._runner.look(run_id)
            changed += looked
            if looked == 0:
                break
        await self._database.rows("swept", worker=self._worker.id)
        return changed

    async def ready_runs(self) -> list[str]:
        """Paused runs whose waits are satisfied, oldest first."""
        return [row["id"] for row in await self._database.rows("ready_runs")]
