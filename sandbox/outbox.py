"""Events about effects: which are to be posted, when, and what became of each post.

Nothing is written when a credit is issued: an event follows from the times of its effect, as a status does, and is
put into the outbox once its time has passed, in one transaction with its faults. So neither a crash nor a time when
the process was down loses an event or tells it under a second id.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remit.sandbox import faults
from remit.sandbox.store import MICROS, Moment, Store, later, real_now, stamp

TYPES = {
    "payments": ("credit.accepted", "credit.settled", "credit.withdrawn", "credit.reversed"),
    "mail": ("message.queued", "message.delivered", "message.withdrawn"),
}
"""What each service tells of."""

TRIES = 7
FIRST_RETRY = 0.2
"""Real seconds before the second try, doubled each time: who is away for less than twelve seconds misses nothing."""

AT_ONCE = 32
"""Posts of one round."""

_FRESH = """
SELECT h.*, 'ev-' || h.effect || '-' || substr(h.type, instr(h.type, '.') + 1) AS event
FROM happenings h JOIN webhooks w ON w.service = h.service
WHERE h.at BETWEEN w.since AND :now AND NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.event = 'ev-' || h.effect || '-' || substr(h.type, instr(h.type, '.') + 1))
ORDER BY h.at, h.type
"""
_DUE = """
SELECT o.*, w.url FROM outbox o JOIN webhooks w ON w.service = o.service
WHERE o.next_at <= ? ORDER BY o.seq LIMIT ?
"""
_NEXT_POST = "SELECT min(o.next_at) FROM outbox o JOIN webhooks w ON w.service = o.service"
_NEXT_HAPPENING = """
SELECT min(h.at) FROM happenings h JOIN webhooks w ON w.service = h.service WHERE h.at > ?
"""


@dataclass(frozen=True)
class Post:
    """One post that is due. ``signed_at``: seconds since 1970 to be signed with, or None for the time of the try."""

    seq: int
    event: str
    service: str
    effect: str
    url: str
    body: str
    forged: bool
    signed_at: int | None
    tries: int


def register(db: sqlite3.Connection, service: str, url: str, now: Moment) -> None:
    """From now on the service posts to this URL; where it did already, only the URL changes."""
    db.execute(
        "INSERT INTO webhooks (service, url, since) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET url = excluded.url",
        (service, url, now),
    )


def forget(db: sqlite3.Connection, service: str | None = None) -> int:
    """Ends the posting of one service or of both, and what waited for it. Returns how many had been registered."""
    db.execute(
        "UPDATE outbox SET next_at = NULL, outcome = 'given_up'"
        " WHERE (next_at IS NOT NULL OR outcome = 'held') AND service = coalesce(?, service)",
        (service,),
    )
    return db.execute("DELETE FROM webhooks WHERE service = coalesce(?, service)", (service,)).rowcount


def registered(db: sqlite3.Connection) -> list[dict[str, Any]]:
    rows = db.execute("SELECT service, url, since FROM webhooks ORDER BY service")
    return [{"service": row["service"], "url": row["url"], "since": stamp(row["since"])} for row in rows]


def announce(store: Store) -> None:
    """Puts every event whose time has passed into the outbox, once."""
    now = store.now()
    with store.transaction():
        for row in store.db.execute(_FRESH, {"now": now}).fetchall():
            _plan(store.db, row)


def _plan(db: sqlite3.Connection, happening: sqlite3.Row) -> None:
    event = {
        "id": happening["event"],
        "type": happening["type"],
        "reference": happening["reference"],
        "at": stamp(happening["at"]),
    }
    hit = faults.take(db, happening["service"], event["type"], event, faults.EVENT)
    replay, now = hit.first("replay_later"), real_now()
    signed_at = now // MICROS if replay else None
    outcome = "lost" if hit.first("lost") else "held" if hit.first("out_of_order") else None
    times = [now if outcome is None else None]
    if outcome != "lost" and hit.first("duplicate"):
        times += times
    if outcome is None and replay:
        times.append(later(now, replay.seconds))
    db.executemany(
        "INSERT INTO outbox (event, service, effect, body, forged, signed_at, next_at, outcome)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                event["id"],
                happening["service"],
                happening["effect"],
                json.dumps(event),
                hit.first("forged") is not None,
                signed_at,
                at,
                outcome,
            )
            for at in times
        ],
    )


def due(db: sqlite3.Connection, real: Moment) -> list[Post]:
    """The posts whose time has come, in the order of their events."""
    return [
        Post(
            row["seq"],
            row["event"],
            row["service"],
            row["effect"],
            row["url"],
            row["body"],
            bool(row["forged"]),
            row["signed_at"],
            row["tries"],
        )
        for row in db.execute(_DUE, (real, AT_ONCE))
    ]


def next_time(store: Store) -> Moment | None:
    """The real time at which there will be something to post, as far as is known now."""
    offset = round(store.setting("offset_seconds") * MICROS)
    post = store.db.execute(_NEXT_POST).fetchone()[0]
    happening = store.db.execute(_NEXT_HAPPENING, (store.now(),)).fetchone()[0]
    known = [at for at in (post, None if happening is None else happening - offset) if at is not None]
    return Moment(min(known)) if known else None


def record(store: Store, post: Post, status: int | None) -> None:
    """Keeps what came of one try; ``status`` None: no answer. An event that was held back follows a later one."""
    delivered = status is not None and 200 <= status < 300
    # A forger has one shot: only the service itself tries again.
    last = post.forged or post.tries + 1 >= TRIES
    retry = None if delivered or last else later(real_now(), FIRST_RETRY * 2.0**post.tries)
    outcome = "delivered" if delivered else "given_up" if last else None
    with store.transaction():
        store.db.execute(
            "UPDATE outbox SET tries = tries + 1, status = ?, next_at = ?, outcome = ?"
            " WHERE seq = ? AND outcome IS NULL",
            (status, retry, outcome, post.seq),
        )
        if delivered:
            store.db.execute(
                "UPDATE outbox SET next_at = ?, outcome = NULL WHERE outcome = 'held' AND effect = ? AND event <> ?",
                (real_now(), post.effect, post.event),
            )


def posts(db: sqlite3.Connection) -> Iterable[dict[str, Any]]:
    """Every post with its event, in the order in which they were planned; ``outcome`` null: still to be made."""
    for row in db.execute("SELECT * FROM outbox ORDER BY seq"):
        yield {
            **json.loads(row["body"]),
            "service": row["service"],
            "forged": bool(row["forged"]),
            "tries": row["tries"],
            "status": row["status"],
            "outcome": row["outcome"],
        }
