"""The company's own records, straight from its database file, whether its process runs or not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from remit.sandbox import accounts, mail, payments
from remit.sandbox.lifecycle import SandboxError
from remit.sandbox.store import Store, database, stamp
from remit.sandbox.world import CUSTOMERS

Records = dict[str, Any]
"""``as_of`` and lists by name: accounts, incidents, templates, credits, reversals, messages, changes,
model_calls. The entries have the shapes of the HTTP answers."""


def dump(home: Path) -> Records:
    """Everything that the company knows, as of one moment of its time."""
    if not database(home).exists():
        raise SandboxError("This home has no sandbox company yet. Reset it to make a fresh one.")
    with closing(Store(database(home), read_only=True)) as store:
        store.db.execute("BEGIN")
        return _records(store)


def _records(store: Store) -> Records:
    db, now = store.db, store.now()
    return {
        "as_of": stamp(now),
        "accounts": accounts.views(db, CUSTOMERS),
        "incidents": [
            accounts.incident_view(db, row) for row in db.execute("SELECT * FROM incidents ORDER BY id")
        ],
        "templates": [
            dict(row) for row in db.execute("SELECT id, promise, subject, body FROM templates ORDER BY id")
        ],
        "credits": [payments.view(row, now) for row in payments.rows(db, "1 ORDER BY c.seq")],
        "reversals": [
            payments.reversal_view(row) for row in db.execute("SELECT * FROM reversals ORDER BY seq")
        ],
        "messages": [mail.view(row, now) for row in db.execute("SELECT * FROM messages ORDER BY seq")],
        "changes": [accounts.change_view(row) for row in db.execute("SELECT * FROM changes ORDER BY seq")],
        "model_calls": [
            {**dict(row), "at": stamp(row["at"])}
            for row in db.execute("SELECT at, model, turn, request FROM model_calls ORDER BY seq")
        ],
    }
