"""E-mail: templates say what they promise; a message is queued, can be withdrawn, and is then delivered.

There is no idempotency here: each call queues a message of its own.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import dataclass
from typing import Any

from remit.sandbox.calls import Answer, Call, Problem, References, Route, Service, limited, read
from remit.sandbox.shapes import BATCH, Nothing
from remit.sandbox.store import Moment, maybe_stamp, stamp, within


@dataclass(frozen=True)
class Draft:
    customer: str
    template: str
    values: dict[str, str]
    reference: str | None = None


@dataclass(frozen=True)
class MessagePage:
    since: Moment | None = None
    after: str | None = None
    limit: int = BATCH


def _delivered(row: sqlite3.Row, now: int) -> bool:
    return row["withdrawn_at"] is None and row["deliver_at"] is not None and row["deliver_at"] <= now


def view(row: sqlite3.Row, now: int) -> dict[str, Any]:
    """A message as of ``now``; ``deliver_at`` is null for one that is never delivered."""
    delivered = _delivered(row, now)
    status = "delivered" if delivered else "queued" if row["withdrawn_at"] is None else "withdrawn"
    shown = {name: row[name] for name in ("id", "customer", "template", "promise", "reference")}
    return {
        **shown,
        "values": json.loads(row["fill"]),
        "status": status,
        "queued_at": stamp(row["queued_at"]),
        "deliver_at": maybe_stamp(row["deliver_at"]),
        "delivered_at": stamp(row["deliver_at"]) if delivered else None,
        "withdrawn_at": maybe_stamp(row["withdrawn_at"]),
    }


def _one(call: Call[Any], name: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = call.store.db.execute("SELECT * FROM messages WHERE id = ?", (name,)).fetchone()
    return row


def _asked(call: Call[Nothing]) -> sqlite3.Row:
    row = _one(call, call.path["id"])
    if row is None:
        raise Problem(404, "not_found", f"There is no message {call.path['id']!r}. Search by its reference.")
    return row


def list_templates(call: Call[Nothing]) -> Answer:
    rows = call.store.db.execute("SELECT id, promise, subject, body FROM templates ORDER BY id")
    return call.listing("templates", map(dict, rows))


def send(call: Call[Draft]) -> Answer:
    db, draft = call.store.db, call.input
    template = db.execute("SELECT * FROM templates WHERE id = ?", (draft.template,)).fetchone()
    if template is None:
        raise Problem(
            422, "template_unknown", f"There is no template {draft.template!r}. List the templates."
        )
    if not db.execute("SELECT 1 FROM accounts WHERE id = ?", (draft.customer,)).fetchone():
        raise Problem(422, "customer_unknown", f"There is no customer {draft.customer!r}. Check the id.")
    made = f"msg-{secrets.token_hex(6)}"
    db.execute(
        "INSERT INTO messages (id, customer, template, promise, fill, reference, queued_at, deliver_at,"
        " visible_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            made,
            draft.customer,
            draft.template,
            template["promise"],
            json.dumps(draft.values),
            draft.reference,
            call.now,
            call.due("deliver_seconds"),
            call.visible_at,
        ),
    )
    row = db.execute("SELECT * FROM messages WHERE id = ?", (made,)).fetchone()
    return Answer(202, view(row, call.now))


def search(call: Call[References]) -> Answer:
    rows = call.store.db.execute(
        "SELECT * FROM messages WHERE reference IN (SELECT value FROM json_each(?))"
        " AND visible_at <= ? ORDER BY seq",
        (within(call.input.references), call.now),
    )
    return call.listing("messages", (view(row, call.now) for row in rows))


def list_messages(call: Call[MessagePage]) -> Answer:
    """Messages queued at or after ``since``, oldest first; ``next`` continues as ``after``."""
    page, limit = call.input, limited(call.input.limit)
    start = _one(call, page.after) if page.after is not None else None
    if page.after is not None and start is None:
        raise Problem(422, "invalid", f"There is no message {page.after!r}. Start without 'after'.")
    rows = call.store.db.execute(
        "SELECT * FROM messages WHERE seq > ? AND queued_at >= ? AND visible_at <= ? ORDER BY seq LIMIT ?",
        (start["seq"] if start else 0, page.since or 0, call.now, limit + 1),
    ).fetchall()
    following = rows[limit - 1]["id"] if len(rows) > limit else None
    return call.listing("messages", (view(row, call.now) for row in rows[:limit]), next=following)


def read_message(call: Call[Nothing]) -> Answer:
    return Answer(200, view(_asked(call), call.now))


def withdraw(call: Call[Nothing]) -> Answer:
    """Takes a queued message back; one that is withdrawn already is answered as it is."""
    row = _asked(call)
    if _delivered(row, call.now):
        raise Problem(409, "already_delivered", "The message has been delivered. Send a correction instead.")
    if row["withdrawn_at"] is None:
        call.store.db.execute("UPDATE messages SET withdrawn_at = ? WHERE id = ?", (call.now, row["id"]))
    return read_message(call)


SERVICE = Service(
    "mail",
    frozenset({"mail"}),
    (
        read("GET", "/templates", list_templates),
        Route("POST", "/messages", Draft, send),
        Route("GET", "/messages", MessagePage, list_messages),
        Route("POST", "/messages/search", References, search),
        read("GET", "/messages/{id}", read_message),
        read("POST", "/messages/{id}/withdraw", withdraw),
    ),
)
