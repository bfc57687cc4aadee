"""A ledger that came out of a backup: how it is noticed, and how the systems of record tell what it lost. DESIGN 8.

Keeps I1 and I5 over a restore: nothing is sent until a person lifts the order, and no effect that a record shows under
this installation's reference is ever sent again.
"""

import json as plain
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from remit.checkpoints.database import Database, Row, json
from remit.tools.actions import PURPOSE, STEP, Json, reference
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Trace
from remit.tools.errors import Refused
from remit.tools.runner import SEND_SECONDS
from remit.tools.transport import Transport

_MARGIN = timedelta(hours=1)
"""How far a receiver's clock may be from the database's; effects are counted from so long before the ledger began."""

_KEY = re.compile(rf"({PURPOSE})/{STEP}/.+/[0-9]+")


async def watch(database: Database, home: Path, installation: str) -> int | None:
    """Compare the ledger with what `home` has seen of it. Returns the number of the restore order that stands, or None.

    What a home remembers is the newest entry of the journal: committed, so a crash cannot take it back, and a copy that
    was made earlier does not have it. One statement.
    """
    file = home.absolute() / f"seen-{installation}.json"
    seen = _seen(file)
    row = await database.row("watch_restore", journal=seen and seen[0], at=seen and seen[1])
    if row is None:
        return None
    now = (row["journal"], row["at"])
    if now != seen:
        _remember(file, *now)
    order: int | None = row["order_id"]
    return order


def _seen(file: Path) -> tuple[int, datetime] | None:
    try:
        found = plain.loads(file.read_text(encoding="utf-8"))
        return int(found["journal"]), datetime.fromisoformat(found["at"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # Half written by a process that was killed: the next look writes it whole.
        return None


def _remember(file: Path, journal: int, at: datetime) -> None:
    draft = file.with_suffix(".draft")
    # A home that cannot be written remembers less; it must not keep a worker from its work.
    with suppress(OSError):
        draft.write_text(plain.dumps({"journal": journal, "at": at.isoformat()}), encoding="utf-8")
        draft.replace(file)


@dataclass(frozen=True, slots=True)
class Verified:
    """What one reading of the systems of record came to."""

    purposes: list[str]
    """Those that are verified now."""
    found: dict[str, int]
    """Effects under this installation's reference, by purpose."""
    lost: list[str]
    """Keys whose effect the ledger did not know. They are never sent again."""
    unlisted: list[str]
    """Effects whose receiver lists nothing: at most once rests there on the receiver's keys alone."""


class Restores:
    """Noticing by hand, and verifying. Errors are Refused, with what to do next."""

    def __init__(self, database: Database, installation: str) -> None:
        self._database = database
        self._installation = installation

    async def restored(self, secret: str, reason: str) -> Row:
        """Place the standing stop because somebody knows that this is a backup. Returns the order."""
        row = await self._database.row("restored", secret=secret, reason=reason)
        assert row is not None
        return row

    async def standing(self) -> Row | None:
        """The restore order in force: id, noticed_at, now, since, purposes, unverified; None without one."""
        return await self._database.row("standing_restore")

    async def verify(
        self, catalogue: Catalogue, transport: Transport, secret: str, purposes: Sequence[str]
    ) -> Verified:
        """Read every effect under this installation's reference, and keep those that the ledger lost.

        All that is found is kept; `purposes` are those that count as verified afterwards. Raises Refused while what was
        sent just before the restore may still be under way, and what reading a receiver raises.
        """
        order = await self.standing()
        if order is None:
            raise Refused(
                "No restore is in force, so there is nothing to verify. See `remit runs`.", code="state"
            )
        began: datetime = await self._database.value("now")
        rows, unlisted = await self._effects(catalogue, transport, order["since"] - _MARGIN)
        lost = await self._database.rows(
            "verify_restored",
            secret=secret,
            order=order["id"],
            purposes=list(purposes),
            began=began,
            bound=bound_seconds(catalogue),
            rows=json(rows),
        )
        found: dict[str, int] = {}
        for row in rows:
            found[row["purpose"]] = found.get(row["purpose"], 0) + 1
        return Verified(list(purposes), found, sorted(row["key"] for row in lost), unlisted)

    async def _effects(
        self, catalogue: Catalogue, transport: Transport, since: datetime
    ) -> tuple[list[dict[str, Json]], list[str]]:
        rows: dict[str, dict[str, Json]] = {}
        unlisted: list[str] = []
        for effect in sorted({tool.contract.effect for tool in catalogue.writes()}):
            listed = await catalogue.tools_of(effect)[0].enumerate(transport, since)
            if listed is None:
                unlisted.append(effect)
                continue
            for trace in listed.traces:
                self._add(rows, trace, effect, listed.source, listed.as_of)
        return list(rows.values()), unlisted

    def _add(
        self, rows: dict[str, dict[str, Json]], trace: Trace, effect: str, source: str, as_of: str
    ) -> None:
        ours = reference(self._installation, "")
        key = trace.reference.removeprefix(ours)
        named = _KEY.fullmatch(key)
        if not trace.reference.startswith(ours) or named is None:
            return
        row = rows.setdefault(
            key,
            {
                "key": key,
                "purpose": named[1],
                "effect": effect,
                "source": source,
                "as_of": as_of,
                "records": [],
            },
        )
        row["records"].append(trace.record)


def bound_seconds(catalogue: Catalogue) -> float:
    """From the restore to when all that was sent before it shows: the window of a claim, the call, the receiver."""
    return max(
        SEND_SECONDS + contract.timeout + (contract.visible_within or 0.0)
        for contract in (tool.contract for tool in catalogue.writes())
    )
