"""Carrying a run on from the command line: progress while it works, and how it stands afterwards.

Keeps the output of `run`, `resume` and `work` alike: counts by step from the ledger, then one name and one next step.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.checkpoints.database import Database, Row
from remit.console import already
from remit.console.exits import Exit, exit_of_run
from remit.console.mandates import compiled
from remit.console.render import many, moment, safe
from remit.console.screen import say
from remit.console.services import Services
from remit.console.viewing import no_such_run
from remit.tools.states import RunStatus

if TYPE_CHECKING:
    from remit.graph import RunEnd

_PROGRESS_SECONDS = 0.5
"""Between two looks at the counts; a line is printed only where they changed."""

_WORDS = {
    "NOT_SENT": "not sent",
    "IN_PROGRESS": "in progress",
    "COMPLETED": "completed",
    "UNKNOWN": "unknown",
}

_NEXT = {
    "approval": "Somebody has to decide: `remit inbox`, then `remit approve ID --token FILE`.",
    "case": "A person has to look: `remit show {run}`.",
    "policy": "Policy gives no answer: `remit policy check`, then `remit resume {run}`.",
    "model": "The model gives no answer: look at REMIT_MODEL_URL, then `remit resume {run}`.",
    "receiver": "A receiver cannot be used now: see `remit receivers`, put it right, then `remit resume {run}`.",
    "freeze": "A freeze is in force: it stands over `remit runs`, and a lead lifts it with `remit lift ORDER`.",
    "limit": "A limit of the purpose is used up: see `remit limits {purpose}`.",
    "limit_window": "A limit is used up until its window turns: see `remit limits`.",
}
"""What a person does about a pause; what is not named here goes on by itself."""

_OF_THE_PLAN = ("policy", "model", "receiver")
"""What a run can wait for before there is any operation: only its row knows."""


async def require(database: Database, run_id: str) -> dict[str, Any]:
    """The run's row. Raises Refused when there is none."""
    row = await database.row("run", run=run_id)
    if row is None:
        raise no_such_run(run_id)
    return row


async def drive(
    services: Services, run_id: str, *, by_person: bool, progress: "Progress | None" = None
) -> "RunEnd":
    """Carry one run on in this process until it pauses or ends, with lines of progress where they are wanted."""
    row = await require(await services.database(), run_id)
    driver = await services.driver(row["purpose"])
    if progress is None:
        return await driver.drive(run_id, by_person=by_person)
    async with progress.shown(row):
        return await driver.drive(run_id, by_person=by_person)


async def standing(database: Database, run_id: str) -> "RunEnd":
    """Where a run stands by the ledger, with what its operations wait for now."""
    from remit.graph import RunEnd

    row = await require(database, run_id)
    stored: dict[str, int] = row["waits"]
    if row["ended_at"] is not None:
        return RunEnd(run_id, RunStatus(row["status"]), row["reason"], dict(stored))
    waits: dict[str, int] = {}
    for found in await database.rows("obstacles", run=run_id):
        waits[found["obstacle"]] = waits.get(found["obstacle"], 0) + found["count"]
    if row["status"] != RunStatus.RUNNING:
        waits = {kind: stored[kind] for kind in _OF_THE_PLAN if kind in stored} | waits
    return RunEnd(run_id, RunStatus(row["status"]), row["reason"], waits)


class Progress:
    """Lines about one run, each printed only where it differs from the one before, over any number of drives."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts = ""
        self._waits = ""

    @asynccontextmanager
    async def shown(self, row: dict[str, Any]) -> AsyncIterator[None]:
        """Shows the counts whenever they change while the block runs, and once more at its end."""
        watching = asyncio.create_task(self._watch(row))
        try:
            yield
            await self._look(row)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def waiting(self, end: "RunEnd") -> None:
        """Shows what a paused run waits for, and the counts as they are now."""
        line = ", ".join(f"{kind} {count}" for kind, count in sorted(end.waits.items()))
        if end.paused and line and line != self._waits:
            say(f"  waiting for: {line}")
        self._waits = line
        await self._look(await require(self._database, end.run_id))

    async def _watch(self, row: dict[str, Any]) -> None:
        while True:
            await self._look(row)
            await asyncio.sleep(_PROGRESS_SECONDS)

    async def _look(self, row: dict[str, Any]) -> None:
        line = await counts(self._database, row)
        if line != self._counts:
            self._counts = line
            say(f"  {line}")


async def counts(database: Database, row: dict[str, Any]) -> str:
    """`credit 24 completed, annotate 20 completed 4 in progress, notify 24 not sent`, in the order of the mandate."""
    steps = [step.name for step in compiled(row).steps]
    found = await database.rows(
        "step_facts", steps=steps, mandate=row["mandate_hash"], purpose=row["purpose"]
    )
    by_step: dict[str, dict[str, int]] = {step: {} for step in steps}
    for one in found:
        facts = by_step[one["step"]]
        facts[one["fact"]] = facts.get(one["fact"], 0) + one["count"]
    return ", ".join(
        f"{step} " + " ".join(f"{facts[fact]} {word}" for fact, word in _WORDS.items() if fact in facts)
        for step, facts in by_step.items()
    )


@dataclass(frozen=True)
class End:
    """How a run stands after it was carried on, with what the ledger says beside it."""

    stood: "RunEnd"
    run: Row
    cases: int
    gates: list[Row]
    met: list[Row]
    followed: int
    """Operations of an ended run that were sent and whose outcome is not final."""
    code: Exit

    def document(self) -> dict[str, Any]:
        """The same as JSON. The keys are stable."""
        return {
            "run": self.stood.run_id,
            "purpose": self.run["purpose"],
            "status": self.stood.status,
            "reason": self.stood.reason,
            "waits": self.stood.waits,
            "cases": self.cases,
            "met": self.met,
            "followed": self.followed,
            "exit": int(self.code),
        }


async def described(services: Services, stood: "RunEnd") -> End:
    """Adds what a person wants to know: open cases, and what stands before the actions that wait."""
    database = await services.database()
    row = await require(database, stood.run_id)
    cases = len(await database.rows("cases", run=stood.run_id))
    gates = await database.rows("gate_details", run=stood.run_id) if stood.paused else []
    found = await already.met(database, stood.run_id)
    moving = 0 if stood.paused else await followed(database, stood.run_id)
    return End(stood, row, cases, gates, found, moving, exit_of_run(stood.status, stood.waits, cases))


async def followed(database: Database, run_id: str | None = None) -> int:
    """Operations that the sweep follows to their end, of one run or of all: sent, not final, and nobody's case."""
    count: int = await database.value("followed", run=run_id)
    return count


def following(count: int) -> str:
    """Who brings what was sent to its end."""
    return f"{many(count, 'sent action')} not final yet: `remit work` follows what was sent to its end."


def tell(end: End) -> None:
    """Says how the run stands and what comes next."""
    run_id = end.stood.run_id
    say(f"{run_id}: {end.stood.status}. {safe(end.stood.reason)}", style="bold")
    for gate in end.gates:
        say(f"  {many(gate['count'], 'action')} behind {gate['kind']}: {gate['detail']}{until(gate)}")
    if end.cases:
        say(f"  {many(end.cases, 'open case')}: `remit cases`, then `remit cases show CASE`.")
    say(*(f"  {sentence}" for sentence in already.sentences(end.met)))
    if end.followed:
        say(f"  {following(end.followed)}")
    say(*next_steps(end.stood, end.run))


def until(gate: Row) -> str:
    """`, until TIME` where a limit's window turns at that time of the company."""
    return f", until {moment(gate['turns'])}" if gate["turns"] is not None else ""


def next_steps(end: "RunEnd", row: Row) -> list[str]:
    """What somebody can do now, a sentence each; never empty. `row` is the run's."""
    purpose = row["purpose"]
    if not end.paused:
        status = f"See what is true for whom: `remit status {purpose}`."
        return [status] if end.status == RunStatus.COMPLETED else [status, *_again(row)]
    lines = [
        text.format(run=end.run_id, purpose=purpose) for kind, text in _NEXT.items() if end.waits.get(kind)
    ]
    rest = set(end.waits) - set(_NEXT) - {"requirement", "requirement_lost"}
    if rest or not lines:
        lines.append(
            f"The rest goes on by itself while a worker runs: `remit resume {end.run_id} --wait`, or `remit work`."
        )
    return lines


def _again(row: Row) -> list[str]:
    """What has to be done before what was not sent can be proposed once more, and that."""
    lines = []
    if row["order_id"] is not None:
        lines.append(f"An order stands over it: `remit lift {row['order_id']}`.")
    if not row["mandate_live"] and row["superseded_at"] is None:
        lines.append("Its mandate is over: `remit mandate grant FILE`.")
    first = "Then propose" if lines else "Propose"
    return [*lines, f"{first} again what was not sent: `remit run {row['purpose']}`."]
