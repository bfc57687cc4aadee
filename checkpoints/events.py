"""Events from receivers: a wake-up and never evidence. DESIGN sections 5 and 6.

Keeps F49: whatever an event says, it is stored once and has the system of record asked; only what that answers moves a
state. Keeps strangers out: what is not signed by the receiver, or is signed too long ago, leaves a number and no row.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, ValidationError

from remit.checkpoints.database import Database, Row, json
from remit.tools.actions import Strict
from remit.tools.errors import NotSent
from remit.tools.signatures import is_signed, key_of

WINDOW_SECONDS = 300
"""How far the time of signing may lie from now: beyond it a post that somebody recorded is worth nothing any more."""

LARGEST = 65_536
"""Bytes of a body: a reference of 4,000 characters, each of them escaped, fits."""

_MOST_LISTED = 1_000


class Outcome(StrEnum):
    """What became of one post. All but the first two store nothing but their number."""

    STORED = "stored"
    KNOWN = "known"
    NO_SUCH_RECEIVER = "no_such_receiver"
    SECRET = "secret"  # noqa: S105 - why nothing could be checked, no secret
    SIGNATURE = "signature"
    TIME = "time"
    SIZE = "size"
    BODY = "body"


class Event(Strict):
    """What a receiver tells: that something happened to the effect of that reference, at that time by its own clock."""

    id: Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
    type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$", max_length=100)]
    reference: Annotated[str, Field(pattern=r"^[^\x00]+$", max_length=4_000)] | None
    # What the database can store and give back in any time zone.
    at: Annotated[
        AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), lt=datetime(3000, 1, 1, tzinfo=UTC))
    ]


class Events:
    """Takes what receivers post. `secret_of` gives a receiver's secret or raises NotSent; `now`: seconds since 1970."""

    def __init__(
        self,
        database: Database,
        receivers: Collection[str],
        secret_of: Callable[[str], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._receivers = receivers
        self._secret_of = secret_of
        self._now = now
        self._refused: Counter[tuple[str, Outcome]] = Counter()

    async def take(self, receiver: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Check one post and store its event once. `headers` by any case of name, as HTTP has them.

        Raises what the database raises; then nothing is stored, and the sender has to post again.
        """
        wrong = self._wrong(receiver, headers, body)
        if wrong is not None:
            return self.refuse(receiver, wrong)
        try:
            event = Event.model_validate_json(body)
        except ValidationError:
            return self.refuse(receiver, Outcome.BODY)
        if event.id != headers["webhook-id"]:
            return self.refuse(receiver, Outcome.BODY)
        fields = {"type": event.type, "reference": event.reference, "at": event.at}
        stored = await self._database.value("receive_event", receiver=receiver, id=event.id, **fields)
        return Outcome(stored)

    def refuse(self, receiver: str, why: Outcome) -> Outcome:
        """Count a post that was not taken. Kept here until `write_counts`: a stranger causes no write."""
        if receiver in self._receivers:
            self._refused[receiver, why] += 1
        return why

    async def write_counts(self) -> None:
        """Add what was refused since the last call to the numbers in the database."""
        counted = self._refused.copy()
        rows = [{"receiver": name, "code": why, "count": n} for (name, why), n in counted.items()]
        if rows:
            await self._database.rows("count_refused_events", rows=json(rows))
            self._refused -= counted

    async def unmatched(self, limit: int = _MOST_LISTED) -> list[Row]:
        """Events that tell of an effect where the ledger knows of none, newest first.

        receiver, id, type, reference, at, received_at, and key, state and closed of an operation that was never sent,
        or had no effect. They prove nothing: somebody has to look at the receiver's records.
        """
        return await self._database.rows("unmatched_events", limit=limit)

    def _wrong(self, receiver: str, headers: Mapping[str, str], body: bytes) -> Outcome | None:
        if receiver not in self._receivers:
            return Outcome.NO_SUCH_RECEIVER
        if len(body) > LARGEST:
            return Outcome.SIZE
        try:
            key = key_of(self._secret_of(receiver))
        except NotSent:
            return Outcome.SECRET
        if not is_signed(key, headers, body):
            return Outcome.SIGNATURE
        stamp = headers.get("webhook-timestamp", "")
        signed_at = int(stamp) if stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12 else 0
        return None if abs(self._now() - signed_at) <= WINDOW_SECONDS else Outcome.TIME
