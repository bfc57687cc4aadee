"""One runner per run: takes the lease, carries the thread on, keeps the heartbeat, and leaves
the run named.

Keeps I7, and with the lease's token in every checkpoint the rule that a worker that was taken over writes
nothing (F05).
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from remit.checkpoints import Worker
from remit.checkpoints.database import json as jsonb
from remit.checkpoints.database import translated
from remit.checkpoints.saver import Unreadable, thread_config
from remit.graph.build import build_graph, fingerprint
from remit.graph.deps import Deps, agent_version
from remit.graph.model import ModelUnavailable
from remit.graph.prompts import SYSTEM
from remit.graph.state import State, fits, initial
from remit.tools.errors import LeaseLost, Refused, RemitError
from remit.tools.ports import Lease
from remit.tools.states import RunStatus

LEASE_SECONDS = 15.0
"""Three missed heartbeats. A worker that was only slow comes back in time; a dead one on this host is known at once
by its lock, so nobody waits this long after a crash."""

_STEPS_OF_A_PLAN = 8
"""LangGraph's own limit lies beyond the run's budget, so that a run ends by its budget's name and by no exception."""

_PEOPLE = {"approval", "case", "limit", "requirement", "requirement_lost"}


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Where a run stands after it was carried on: paused with what it waits for, or ended by name."""

    run_id: str
    status: RunStatus
    reason: str
    waits: dict[str, int] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        return self.status in (RunStatus.PAUSED, RunStatus.PAUSED_AWAITING_APPROVAL, RunStatus.RUNNING)

    @property
    def only_people(self) -> bool:
        """True when time, receivers and other workers bring nothing any more: a person has to act."""
        waiting = self.paused and self.status is not RunStatus.RUNNING
        return waiting and bool(set(self.waits) - {"requirement"}) and set(self.waits) <= _PEOPLE


class Driver:
    """Starts runs and carries them on, in this process, as one worker."""

    def __init__(self, deps: Deps, worker: Worker, lease_seconds: float = LEASE_SECONDS) -> None:
        self._deps = deps
        self._database = deps.database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self.graph = build_graph(deps)
        self.fingerprint = fingerprint(self.graph)

    async def start(self, secret: str, mandate_hash: str) -> str:
        """A new run of a granted mandate, owned by the token's person. Returns its id; nothing has been planned yet."""
        run_id = "run-" + secrets.token_hex(4)
        await self._database.rows(
            "start_run",
            secret=secret,
            run=run_id,
            mandate=mandate_hash,
            agent_version=agent_version(self._deps, self.fingerprint, SYSTEM),
            fingerprint=self.fingerprint,
        )
        return run_id

    async def drive(self, run_id: str, *, by_person: bool = False) -> RunEnd:
        """Carry the run on until it pauses or ends. `by_person` reopens pauses that only time would end.

        Raises LeaseLost when another worker has the run, Refused for an unknown run.
        """
        row = await self._row(run_id)
        if row["ended_at"] is not None:
            return RunEnd(run_id, RunStatus(row["status"]), row["reason"], row["waits"])
        await self._worker.bury_the_dead(self._database)
        token = await self._database.value(
            "acquire_lease", run=run_id, worker=self._worker.id, seconds=self._lease_seconds
        )
        if token is None:
            raise LeaseLost(
                f"Worker {row['worker']} is at work on {run_id}. Watch it with `remit status {run_id}`.",
                code="held",
            )
        lease = Lease(run_id, token, self._worker.id)
        async with self._heartbeat(lease):
            await self._begin(lease, by_person=by_person)
            # Read again: until the lease was held, another worker could still have moved the run to a fresh thread.
            end = await self._carry_on(lease, await self._row(run_id))
            await self._release(lease, end)
        return end

    async def _row(self, run_id: str) -> dict[str, Any]:
        row = await self._database.row("run", run=run_id)
        if row is None:
            raise Refused(f"There is no run {run_id}. See `remit runs`.", code="no_such_run")
        return row

    async def _begin(self, lease: Lease, *, by_person: bool) -> None:
        """What this worker brings along: its version of the agent, and a person's word to try again at once."""
        version = agent_version(self._deps, self.fingerprint, SYSTEM)
        await self._database.rows("carry_version", run=lease.run_id, token=lease.token, version=version)
        if by_person:
            await self._database.rows("clear_gates", run=lease.run_id, token=lease.token)

    async def _carry_on(self, lease: Lease, row: dict[str, Any]) -> RunEnd:
        try:
            config, given = await self._thread(lease, row)
            result = await self.graph.ainvoke(given, config, durability="sync")
        except ModelUnavailable as error:
            return RunEnd(lease.run_id, RunStatus.PAUSED, f"model: {error}", {"model": 1})
        except Unreadable as error:
            await self._new_thread(lease, "QUARANTINED", str(error))
            return RunEnd(lease.run_id, RunStatus.RUNNING, "thread_quarantined: carried on in a fresh thread")
        except psycopg.Error as error:
            raise translated(error) from error
        return _end(lease.run_id, result)

    async def _thread(self, lease: Lease, row: dict[str, Any]) -> tuple[RunnableConfig, Any]:
        """The live thread and what to invoke it with; a changed or unreadable one is replaced by a fresh one."""
        config = self._config(lease, row["thread"])
        if row["fingerprint"] != self.fingerprint:
            return await self._fresh(
                lease, "LEFT", f"the graph changed from {row['fingerprint']} to {self.fingerprint}"
            )
        try:
            snapshot = await self.graph.aget_state(config)
        except (Unreadable, ValueError, TypeError, LookupError, AttributeError) as error:
            # Bytes that are no checkpoint fail in any of these ways while they are taken apart.
            return await self._fresh(lease, "QUARANTINED", f"{type(error).__name__}: {error}"[:500])
        if not snapshot.values:
            return config, initial(lease.run_id, await self._plans(lease.run_id))
        if not fits(snapshot.values, lease.run_id):
            return await self._fresh(lease, "QUARANTINED", "its state is not of this version")
        if snapshot.interrupts:
            return config, Command(resume={"wake": True})
        if not snapshot.next:
            return await self._fresh(lease, "LEFT", "it had ended without its run")
        return config, None

    async def _fresh(self, lease: Lease, state: str, why: str) -> tuple[RunnableConfig, Any]:
        number = await self._new_thread(lease, state, why)
        return self._config(lease, number), initial(lease.run_id, await self._plans(lease.run_id))

    async def _new_thread(self, lease: Lease, state: str, why: str) -> int:
        number: int = await self._database.value(
            "new_thread",
            run=lease.run_id,
            token=lease.token,
            state=state,
            why=why,
            fingerprint=self.fingerprint,
        )
        return number

    async def _plans(self, run_id: str) -> int:
        """The number of the run's last plan, 0 before the first one."""
        return max((row["number"] for row in await self._database.rows("plans", run=run_id)), default=0)

    def _config(self, lease: Lease, thread: int) -> RunnableConfig:
        config = thread_config(lease.run_id, thread, lease.token, self.fingerprint)
        config["configurable"]["worker"] = lease.worker
        config["recursion_limit"] = _STEPS_OF_A_PLAN * self._deps.budget.plans + 50
        return config

    async def _release(self, lease: Lease, end: RunEnd) -> None:
        await self._database.rows(
            "release_run",
            run=lease.run_id,
            token=lease.token,
            status=end.status.value,
            reason=end.reason,
            waits=jsonb(end.waits),
        )

    @asynccontextmanager
    async def _heartbeat(self, lease: Lease) -> AsyncIterator[None]:
        """Keep the lease while the block runs; when it is lost, the block is cancelled and LeaseLost is raised."""
        task = asyncio.current_task()
        assert task is not None
        lost = False

        async def beat() -> None:
            nonlocal lost
            while True:
                await asyncio.sleep(self._lease_seconds / 3)
                if not await self._held(lease):
                    lost = True
                    task.cancel()
                    return

        beating = asyncio.create_task(beat())
        try:
            yield
        except asyncio.CancelledError:
            if not lost:
                # Nothing may hide that this was cancelled; if the lease cannot be let go, it runs out.
                with suppress(RemitError, psycopg.Error):
                    await self._let_go(lease)
                raise
            task.uncancel()
            raise LeaseLost(
                f"Another worker took {lease.run_id} over. See `remit runs`.", code="lease_lost"
            ) from None
        finally:
            beating.cancel()

    async def _held(self, lease: Lease) -> bool:
        try:
            held: bool = await self._database.value(
                "heartbeat", run=lease.run_id, token=lease.token, seconds=self._lease_seconds
            )
        except psycopg.Error:
            return True  # The database is away: nothing can be claimed meanwhile, and the next beat tells.
        return held

    async def _let_go(self, lease: Lease) -> None:
        """Asked to end: the run stays RUNNING with a free lease, which any worker takes up at once."""
        await self._release(
            lease, RunEnd(lease.run_id, RunStatus.RUNNING, "interrupted: its worker was asked to end")
        )


def _end(run_id: str, result: dict[str, Any]) -> RunEnd:
    state: State = result  # type: ignore[assignment]
    if "__interrupt__" not in result:
        return RunEnd(run_id, RunStatus(state["status"]), state["reason"], {})
    waits = state["waits"]
    awaiting = bool(waits.get("approval"))
    status = RunStatus.PAUSED_AWAITING_APPROVAL if awaiting else RunStatus.PAUSED
    counted = ", ".join(f"{kind} {count}" for kind, count in sorted(waits.items()))
    why = f" ({state['reason']})" if state["reason"] and {"policy", "receiver"} & set(waits) else ""
    return RunEnd(run_id, status, f"waiting: {counted}{why}", waits)
