"""Whose eyes a command looks with: what the token behind it may see, asked of the database in this one place.

Keeps F18: to know an id is not enough. Who may not see a run, mandate or operation gets the answer for one that does
not exist, and the database keeps the try. Without a token everything is seen, in a sandbox only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from remit.checkpoints.database import Database, Row
from remit.console import identity
from remit.console.render import safe
from remit.console.services import Services
from remit.tools.errors import Refused

Kind = Literal["run", "mandate", "purpose", "hold"]
"""What a viewer may see; a mandate by its hash, a hold by its operation."""


@dataclass(frozen=True)
class Viewer:
    """One command's view of the ledger. `secret` None is whoever sits at the keyboard of a sandbox."""

    database: Database
    secret: str | None

    async def run(self, run_id: str) -> dict[str, Any]:
        """The run's row. Raises Refused where there is none for this viewer."""
        seen = await self._seen("run", [run_id], named=True)
        row = await self.database.row("run", run=run_id) if seen else None
        if row is None:
            raise no_such_run(run_id)
        return row

    async def named(self, kind: Kind, rows: Sequence[Row], column: str) -> list[Row]:
        """Of what somebody asked for by name, the rows whose `column` this viewer may see; none: kept as a try."""
        return await self._only(kind, rows, column, named=True)

    async def listed(self, kind: Kind, rows: Sequence[Row], column: str) -> list[Row]:
        """Of a listing, the rows whose `column` this viewer may see, and those that belong to nothing (None)."""
        return await self._only(kind, rows, column, named=False)

    async def _only(self, kind: Kind, rows: Sequence[Row], column: str, *, named: bool) -> list[Row]:
        names = list(dict.fromkeys(str(row[column]) for row in rows if row[column] is not None))
        seen = await self._seen(kind, names, named=named)
        return [row for row in rows if row[column] is None or str(row[column]) in seen]

    async def _seen(self, kind: Kind, names: list[str], *, named: bool) -> set[str]:
        rows = await self.database.rows("may_see", secret=self.secret, kind=kind, names=names, named=named)
        return {row["seen"] for row in rows}


def no_such_run(run_id: str) -> Refused:
    """The one answer about a run that there is not, and about one that is none of the asker's business."""
    return Refused(f"There is no run {safe(run_id)}. See `remit runs`.", code="no_such_run")


async def viewer(services: Services, token: str | None) -> Viewer:
    """The viewer behind --token or REMIT_TOKEN_FILE, or without either the one at the keyboard of a sandbox.

    Raises Refused for a token that speaks for nobody, and without any outside a sandbox, before anything is looked at.
    """
    given = token is not None or services.settings.token_file is not None
    secret = identity.secret(services.settings, token) if given else None
    found = Viewer(await services.database(), secret)
    await found.listed("run", [], "id")
    return found
