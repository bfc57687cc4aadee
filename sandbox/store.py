"""The company's database: one SQLite file per world, its clock and its settings.

What was answered is on disk before the answer leaves (WAL with ``synchronous=FULL``), so a SIGKILL
loses nothing that a client was told.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NewType

Moment = NewType("Moment", int)
"""Microseconds since 1970 in UTC, in company time unless a name says otherwise."""

MICROS = 1_000_000
SETTINGS = ("settle_seconds", "deliver_seconds", "key_retention_seconds")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def folder(home: Path) -> Path:
    """Where a world keeps its files, below the home of an installation."""
    return home / "sandbox"


def database(home: Path) -> Path:
    return folder(home) / "company.sqlite"


def stamp(moment: int) -> str:
    """RFC 3339 in UTC with six digits, so that two stamps compare as text."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def maybe_stamp(moment: int | None) -> str | None:
    return None if moment is None else stamp(moment)


def moment(text: str) -> Moment:
    """Reads an RFC 3339 time with its offset; ValueError when it is none."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError("a time needs its offset from UTC")
    return Moment((when - _EPOCH) // timedelta(microseconds=1))


def real_now() -> Moment:
    return Moment(time.time_ns() // 1000)


def later(start: int, seconds: float) -> Moment:
    return Moment(start + round(seconds * MICROS))


def digest(credential: str) -> str:
    """A plain hash is enough: credentials are random and long, never chosen by a person."""
    return hashlib.sha256(credential.encode()).hexdigest()


def within(values: Iterable[str]) -> str:
    """One bound value for ``IN (SELECT value FROM json_each(?))``, however many values there are."""
    return json.dumps(list(values))


class Store:
    """One open world. All statements run on one connection, one transaction at a time."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        mode = "ro" if read_only else "rwc"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        self.db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)
        self.db.row_factory = sqlite3.Row
        if not read_only:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            self.db.execute("PRAGMA foreign_keys=ON")

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: what an exception leaves behind is rolled back."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def setting(self, name: str) -> float:
        row = self.db.execute("SELECT value FROM company WHERE name = ?", (name,)).fetchone()
        return float(row["value"])

    def set(self, name: str, value: float) -> None:
        self.db.execute("INSERT OR REPLACE INTO company (name, value) VALUES (?, ?)", (name, value))

    def now(self) -> Moment:
        return later(real_now(), self.setting("offset_seconds"))

    def holder_of(self, credential: str) -> str | None:
        """Whose credential this is, or None."""
        found = digest(credential)
        for row in self.db.execute("SELECT holder, digest FROM credentials"):
            if hmac.compare_digest(row["digest"], found):
                return str(row["holder"])
        return None
