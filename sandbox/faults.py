"""Faults by rule: which calls they hit, and how often.

Rules live in the database and so survive a restart. A rule that changes or follows an effect is used up
in the effect's own transaction: no crash leaves the one without the other.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from remit.sandbox.calls import Answer, Delays, Problem
from remit.sandbox.store import Moment

ARRIVAL = frozenset({"delay", "expired_credential", "rate_limit", "html"})
EFFECT = frozenset(
    {
        "error_before",
        "lying_ok",
        "slow_settle",
        "never_settle",
        "late_search",
        "reply_lost",
        "delay_after",
        "error_after",
    }
)
ITEM = frozenset({"item_fails", "item_left_out", "item_twice"})
"""For single items of a batch, matched by the item's own fields."""
BARRIERS = frozenset({"expired_credential", "rate_limit", "html", "error_before"})
LISTENER = frozenset({"refuse"})
EVENT = frozenset({"duplicate", "out_of_order", "replay_later", "forged", "lost"})
KINDS = ARRIVAL | EFFECT | ITEM | LISTENER | EVENT
NEED_SECONDS = frozenset({"delay", "delay_after", "slow_settle", "late_search", "replay_later"})


@dataclass(frozen=True)
class Rule:
    """A fault that hits the call at hand."""

    id: int
    kind: str
    seconds: float
    stored: bool


@dataclass(frozen=True)
class Plan:
    """The rules that hit one call, in the order in which they were made."""

    rules: tuple[Rule, ...]

    def first(self, kind: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.kind == kind), None)

    def delays(self) -> Delays:
        slow, hidden = self.first("slow_settle"), self.first("late_search")
        return Delays(
            settle_seconds=slow.seconds if slow else None,
            never_settle=self.first("never_settle") is not None,
            hidden_seconds=hidden.seconds if hidden else 0.0,
        )


def take(
    db: sqlite3.Connection, service: str, route: str, facts: dict[str, object], kinds: frozenset[str]
) -> Plan:
    """The rules that hit this call, counted as hit. Runs inside the caller's transaction.

    For an event ``route`` is its type, and ``facts`` are its fields.
    A rule that keeps the call from its handler ends the list: later rules never saw the call.
    """
    rows = db.execute(
        "SELECT * FROM faults WHERE service = ? AND route IN (?, '*') ORDER BY id", (service, route)
    ).fetchall()
    hit = []
    for row in rows:
        if row["kind"] not in kinds or not _matches(json.loads(row["match"]), facts):
            continue
        live = row["seen"] >= row["skip"] and (row["times"] is None or row["hits"] < row["times"])
        db.execute("UPDATE faults SET seen = seen + 1, hits = hits + ? WHERE id = ?", (live, row["id"]))
        if live:
            hit.append(Rule(row["id"], row["kind"], row["seconds"] or 0.0, bool(row["stored"])))
            if row["kind"] in BARRIERS:
                break
    return Plan(tuple(hit))


def _matches(match: dict[str, object], facts: dict[str, object]) -> bool:
    """Equality with a field of the request; for a field that is a list, membership will do."""
    for name, wanted in match.items():
        found = facts.get(name)
        if found != wanted and not (isinstance(found, list) and wanted in found):
            return False
    return True


def barrier(plan: Plan) -> Answer | None:
    """The page, or the Problem raised, of a fault that keeps the call from its handler."""
    if plan.first("expired_credential"):
        detail = "The credential has expired. Ask the service's owner for a new one."
        raise Problem(401, "credential_expired", detail)
    if limit := plan.first("rate_limit"):
        wait = max(1, round(limit.seconds))
        detail = f"Too many calls. Call again after {wait} seconds."
        raise Problem(429, "rate_limited", detail, {"Retry-After": str(wait)})
    if plan.first("html"):
        return Answer(200, "<!doctype html><title>Please wait</title><p>We are back in a moment.</p>")
    return None


def broken() -> Problem:
    return Problem(500, "internal", "The service failed. Ask it what happened before you call again.")


def add(db: sqlite3.Connection, rule: dict[str, Any]) -> int:
    """Stores a checked rule; the fields are the columns of the same names."""
    done = db.execute(
        "INSERT INTO faults (service, route, match, kind, times, skip, seconds, stored, until)"
        " VALUES (:service, :route, :match, :kind, :times, :skip, :seconds, :stored, :until)",
        {**rule, "match": json.dumps(rule["match"])},
    )
    return int(done.lastrowid or 0)


def view(row: sqlite3.Row) -> dict[str, Any]:
    shown = {
        name: row[name] for name in ("id", "service", "route", "kind", "times", "skip", "seconds", "hits")
    }
    return {**shown, "match": json.loads(row["match"]), "stored": bool(row["stored"])}


def listed(db: sqlite3.Connection) -> list[dict[str, Any]]:
    return [view(row) for row in db.execute("SELECT * FROM faults ORDER BY id")]


def refused(db: sqlite3.Connection, real: Moment) -> dict[str, int | None]:
    """Services whose listener is to be closed, each with the real time at which it opens again."""
    closed: dict[str, int | None] = {}
    for row in db.execute("SELECT service, until FROM faults WHERE kind = 'refuse'"):
        until, known = row["until"], closed.get(row["service"], 0)
        if until is not None and until <= real:
            continue
        closed[row["service"]] = None if until is None or known is None else max(until, known)
    return closed
