"""Customer accounts: reads, changes, and the history that names actor and reference of each change.

A change of several fields is one version. The call takes every field, subscription dates too: what an
agent may change is not this service's business.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

from remit.sandbox.calls import Answer, Call, Problem, References, Route, Service, limited, read
from remit.sandbox.shapes import Invalid, Nothing
from remit.sandbox.store import Moment, Store, stamp, within

_SET_PLAIN = {
    "name": "UPDATE accounts SET name = ? WHERE id = ?",
    "email": "UPDATE accounts SET email = ? WHERE id = ?",
    "plan": "UPDATE accounts SET plan = ? WHERE id = ?",
    "renewal_date": "UPDATE accounts SET renewal_date = ? WHERE id = ?",
}


@dataclass(frozen=True)
class Changes:
    """New values by field; an empty text stands for a field that was not sent."""

    name: str = ""
    email: str = ""
    plan: str = ""
    renewal_date: str = ""
    notes: str = ""
    remove_note: str = ""

    def __post_init__(self) -> None:
        if not any(vars(self).values()):
            raise Invalid("'changes' must name at least one field")
        if self.email and not re.fullmatch(r"[^@\s]+@[^@\s]+", self.email):
            raise Invalid("'email' must be an e-mail address")
        if self.renewal_date and not _is_day(self.renewal_date):
            raise Invalid("'renewal_date' must be a day such as 2027-03-04")


@dataclass(frozen=True)
class Update:
    changes: Changes
    reference: str | None = None


@dataclass(frozen=True)
class Ids:
    ids: list[str]


@dataclass(frozen=True)
class Page:
    affected_by: str | None = None
    limit: int = 100
    after: str | None = None


@dataclass(frozen=True)
class HistoryPage:
    since: Moment | None = None
    actor: str | None = None
    limit: int = 100
    after: int = 0


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def views(db: sqlite3.Connection, ids: Iterable[str]) -> list[dict[str, Any]]:
    """The accounts with these ids in the order of their ids; unknown ids are left out."""
    wanted = (within(ids),)
    found = {
        row["id"]: {**dict(row), "notes": [], "affected_by": []}
        for row in db.execute(
            "SELECT * FROM accounts WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", wanted
        )
    }
    for row in db.execute(
        "SELECT * FROM notes WHERE account IN (SELECT value FROM json_each(?)) ORDER BY seq", wanted
    ):
        note = {name: row[name] for name in ("text", "actor", "reference")}
        found[row["account"]]["notes"].append({**note, "at": stamp(row["at"])})
    for row in db.execute(
        "SELECT * FROM affected WHERE account IN (SELECT value FROM json_each(?)) ORDER BY incident", wanted
    ):
        found[row["account"]]["affected_by"].append(row["incident"])
    return list(found.values())


def change_view(row: sqlite3.Row) -> dict[str, Any]:
    shown = {name: row[name] for name in ("account", "version", "field", "old", "new", "actor", "reference")}
    return {**shown, "at": stamp(row["at"])}


def incident_view(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    affected = db.execute("SELECT account FROM affected WHERE incident = ? ORDER BY account", (row["id"],))
    return {
        "id": row["id"],
        "title": row["title"],
        "remedy": {name: row[name] for name in ("amount_minor", "currency", "template")},
        "affected": [found["account"] for found in affected],
    }


def _one(store: Store, account: str) -> dict[str, Any]:
    found = views(store.db, [account])
    if not found:
        raise Problem(404, "not_found", f"There is no account {account!r}. Look the id up in the list.")
    return found[0]


def _shown(account: dict[str, Any]) -> Answer:
    return Answer(200, account, {"ETag": f'"{account["version"]}"'})


def list_accounts(call: Call[Page]) -> Answer:
    """Up to ``limit`` accounts after the id ``after``; ``next`` is where the next page begins, or null."""
    page, limit = call.input, limited(call.input.limit)
    rows = call.store.db.execute(
        "SELECT id FROM accounts WHERE id > ?"
        " AND (? IS NULL OR id IN (SELECT account FROM affected WHERE incident = ?)) ORDER BY id LIMIT ?",
        (page.after or "", page.affected_by, page.affected_by, limit + 1),
    )
    ids = [row["id"] for row in rows]
    following = ids[limit - 1] if len(ids) > limit else None
    return call.listing("accounts", views(call.store.db, ids[:limit]), next=following)


def read_batch(call: Call[Ids]) -> Answer:
    found = views(call.store.db, call.input.ids)
    known = {account["id"] for account in found}
    return call.listing("accounts", found, missing=[name for name in call.input.ids if name not in known])


def read_account(call: Call[Nothing]) -> Answer:
    return _shown(_one(call.store, call.path["id"]))


def update(call: Call[Update]) -> Answer:
    """Applies the changes as one version, if If-Match (where sent) names the current one."""
    account = _one(call.store, call.path["id"])
    expected = call.headers.get("if-match")
    if expected not in (None, "*", f'"{account["version"]}"'):
        detail = f"The account is at version {account['version']}. Read it again and decide anew."
        raise Problem(412, "version_mismatch", detail)
    changed = [*_plain_changes(account, call.input.changes), *_note_changes(account, call.input.changes)]
    for field, old, new in changed:
        _apply(call, account, field, old, new)
    if changed:
        call.store.db.execute("UPDATE accounts SET version = version + 1 WHERE id = ?", (account["id"],))
    return _shown(_one(call.store, account["id"]))


Change = tuple[str, str | None, str | None]


def _plain_changes(account: dict[str, Any], changes: Changes) -> list[Change]:
    wanted = {field: getattr(changes, field) for field in _SET_PLAIN}
    return [(field, account[field], new) for field, new in wanted.items() if new and new != account[field]]


def _note_changes(account: dict[str, Any], changes: Changes) -> list[Change]:
    removed: list[Change] = [
        ("notes", note["text"], None)
        for note in account["notes"]
        if changes.remove_note and note["reference"] == changes.remove_note
    ]
    return [*removed, ("notes", None, changes.notes)] if changes.notes else removed


def _apply(call: Call[Update], account: dict[str, Any], field: str, old: str | None, new: str | None) -> None:
    db, update = call.store.db, call.input
    if field in _SET_PLAIN:
        db.execute(_SET_PLAIN[field], (new, account["id"]))
    elif new is None:
        found = (account["id"], update.changes.remove_note)
        db.execute("DELETE FROM notes WHERE account = ? AND reference = ?", found)
    else:
        db.execute(
            "INSERT INTO notes (account, text, actor, reference, at) VALUES (?, ?, ?, ?, ?)",
            (account["id"], new, call.actor, update.reference, call.now),
        )
    db.execute(
        "INSERT INTO changes (account, version, field, old, new, actor, reference, at, visible_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            account["id"],
            account["version"] + 1,
            field,
            old,
            new,
            call.actor,
            update.reference,
            call.now,
            call.visible_at,
        ),
    )


def account_history(call: Call[Nothing]) -> Answer:
    account = _one(call.store, call.path["id"])
    rows = call.store.db.execute(
        "SELECT * FROM changes WHERE account = ? AND visible_at <= ? ORDER BY seq", (account["id"], call.now)
    )
    return call.listing("changes", map(change_view, rows))


def search_history(call: Call[References]) -> Answer:
    rows = call.store.db.execute(
        "SELECT * FROM changes WHERE reference IN (SELECT value FROM json_each(?))"
        " AND visible_at <= ? ORDER BY seq",
        (within(call.input.references), call.now),
    )
    return call.listing("changes", map(change_view, rows))


def list_history(call: Call[HistoryPage]) -> Answer:
    """Changes of all accounts in the order of their making; ``next`` continues as ``after``."""
    page, limit = call.input, limited(call.input.limit)
    rows = call.store.db.execute(
        "SELECT * FROM changes WHERE seq > ? AND at >= ? AND (? IS NULL OR actor = ?) AND visible_at <= ?"
        " ORDER BY seq LIMIT ?",
        (page.after, page.since or 0, page.actor, page.actor, call.now, limit + 1),
    ).fetchall()
    following = rows[limit - 1]["seq"] if len(rows) > limit else None
    return call.listing("changes", map(change_view, rows[:limit]), next=following)


def read_incident(call: Call[Nothing]) -> Answer:
    db = call.store.db
    row = db.execute("SELECT * FROM incidents WHERE id = ?", (call.path["id"],)).fetchone()
    if row is None:
        raise Problem(404, "not_found", f"There is no incident {call.path['id']!r}. Check its id.")
    return Answer(200, incident_view(db, row))


SERVICE = Service(
    "accounts",
    frozenset({"accounts", "employee"}),
    (
        Route("GET", "/accounts", Page, list_accounts),
        Route("POST", "/accounts/batch", Ids, read_batch),
        read("GET", "/accounts/{id}", read_account),
        Route("PATCH", "/accounts/{id}", Update, update),
        read("GET", "/accounts/{id}/history", account_history),
        Route("POST", "/history/search", References, search_history),
        Route("GET", "/history", HistoryPage, list_history),
        read("GET", "/incidents/{id}", read_incident),
    ),
)
