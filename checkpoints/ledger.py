"""The ledger: the Postgres side of the runner's port. Every method is one statement for the whole batch.

Keeps I1, I4 and I10 through the database functions in `migrations/`; this file only carries rows to and fro.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from remit.checkpoints.database import Database, Row, json
from remit.tools.actions import Json
from remit.tools.doors import Door, Met
from remit.tools.ports import Claimed, Due, Lease, Operation, Receipt, Settlement
from remit.tools.states import State


class Ledger:
    """Implements `remit.tools.ports.Ledger`. Create with `Ledger.open`."""

    def __init__(self, database: Database, installation: str, environment: str) -> None:
        self.database = database
        self.installation = installation
        self.environment = environment

    @classmethod
    async def open(cls, database: Database) -> "Ledger":
        """Read which installation this database is. The migrations must have run."""
        row = await database.row("installation")
        assert row is not None, "migrate() writes the one row"
        return cls(database, row["id"], row["environment"])

    async def now(self) -> datetime:
        moment: datetime = await self.database.value("now")
        return moment

    async def company_now(self) -> datetime:
        """remit.clock(): what validity, holds and deadlines are measured by."""
        moment: datetime = await self.database.value("company_now")
        return moment

    async def claim(
        self, lease: Lease, ids: Sequence[int], read_at: datetime, send_seconds: float, terms: dict[str, Json]
    ) -> list[Claimed]:
        rows = await self.database.rows(
            "claim",
            run=lease.run_id,
            token=lease.token,
            worker=lease.worker,
            ids=list(ids),
            read_at=read_at,
            send_seconds=send_seconds,
            terms=json(terms),
        )
        return [
            Claimed(
                r["operation_id"], r["refused"], r["attempt_id"], r["wire_key"], r["send_within"], r["number"]
            )
            for r in rows
        ]

    async def may_send(self, lease: Lease, attempts: Sequence[int]) -> set[int]:
        rows = await self.database.rows(
            "may_send", run=lease.run_id, token=lease.token, attempts=list(attempts)
        )
        return {row["id"] for row in rows}

    async def record(self, receipts: Sequence[Receipt]) -> None:
        await self.database.rows("record", receipts=json([asdict(receipt) for receipt in receipts]))

    async def unsend(self, attempts: Sequence[int]) -> None:
        await self.database.rows("unsend", attempts=list(attempts))

    async def due(self, run_id: str | None, limit: int) -> list[Due]:
        return [_due(row) for row in await self.database.rows("due", run=run_id, limit=limit)]

    async def look_of(self, operation: int) -> Due:
        """What a look for one operation has to know, whatever its state; nothing is pushed on."""
        row = await self.database.row("look_of", operation=operation)
        assert row is not None, "operations are never deleted"
        return _due(row)

    async def settle(self, settlements: Sequence[Settlement]) -> int:
        results = [{**asdict(s), "read_began_at": s.read_began_at.isoformat()} for s in settlements]
        moved: int = await self.database.value("settle", results=json(results))
        return moved

    async def doors(self) -> list[Door]:
        return [_door(row) for row in await self.database.rows("doors")]

    async def knock(self, receiver: str) -> bool:
        passed: bool = await self.database.value("knock", receiver=receiver)
        return passed

    async def note(self, receiver: str, met: Met, detail: str) -> Door:
        row = await self.database.row("note_answer", receiver=receiver, met=met.value, detail=detail)
        assert row is not None, "note_answer() returns the door"
        return _door(row)

    async def sendable(self, run_id: str, after: int, limit: int) -> list[Operation]:
        """Operations of the run that nothing stands in the way of, in order of id, beyond `after`."""
        return [
            _operation(r) for r in await self.database.rows("sendable", run=run_id, after=after, limit=limit)
        ]

    async def unjudged(self, run_id: str, after: int, revision: str, limit: int) -> list[Operation]:
        """Pending operations without a verdict, or with one of another policy revision."""
        rows = await self.database.rows("unjudged", run=run_id, after=after, revision=revision, limit=limit)
        return [_operation(row) for row in rows]


def _operation(row: Row) -> Operation:
    return Operation(
        id=row["id"],
        key=row["key"],
        revision=row["revision"],
        step=row["step"],
        subject=row["subject"],
        effect=row["effect"],
        tool=row["tool"],
        state=State(row["state"]),
        intent=row["intent"],
        request=row["request"],
        relied_on=row["relied_on"],
        policy_revision=row["policy_revision"],
        plan=row["plan"],
    )


def _door(row: Row) -> Door:
    closed = None if row["closed"] is None else Met(row["closed"])
    return Door(row["name"], closed, row["failures"], row["detail"])


def _due(row: Row) -> Due:
    values: dict[str, Any] = {name: row[name] for name in Due.__dataclass_fields__ if name != "state"}
    return Due(**values, state=State(row["state"]))
