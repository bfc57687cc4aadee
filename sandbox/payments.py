"""Credits: accepted now, settled later, withdrawn while queued, reversed once settled.

A credit's status follows from its times at the moment of the read; nothing has to run for it to settle.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.sandbox import faults, keys
from remit.sandbox.calls import Answer, Call, Problem, References, Route, Service, limited, read
from remit.sandbox.shapes import BATCH, Invalid, Nothing
from remit.sandbox.store import Moment, maybe_stamp, stamp, within

LARGEST = 1_000_000
"""Minor units of one credit."""
CURRENCIES = ("EUR", "USD")
ISSUE_ROUTE, BATCH_ROUTE = "POST /credits", "POST /credits/batch"

_WITH_REVERSED = (
    "SELECT c.*, coalesce((SELECT sum(r.amount_minor) FROM reversals r WHERE r.credit = c.id), 0)"
    " AS reversed_minor FROM credits c"
)
_BY_REFERENCE = "c.reference IN (SELECT value FROM json_each(?)) AND c.visible_at <= ? ORDER BY c.seq"
_BY_CUSTOMER = "c.customer IN (SELECT value FROM json_each(?)) AND c.visible_at <= ? ORDER BY c.seq"


@dataclass(frozen=True)
class CreditOrder:
    customer: str
    amount_minor: int
    currency: str
    reason: str
    reference: str | None = None


@dataclass(frozen=True)
class KeyedOrder:
    """One credit of a batch, under a key of its own: the key that the same credit would have alone."""

    key: str
    customer: str
    amount_minor: int
    currency: str
    reason: str
    reference: str | None = None

    def order(self) -> CreditOrder:
        return CreditOrder(self.customer, self.amount_minor, self.currency, self.reason, self.reference)


@dataclass(frozen=True)
class CreditBatch:
    credits: list[KeyedOrder]


@dataclass(frozen=True)
class LegacyOrder:
    cust: str
    cents: int
    cur: str
    memo: str | None = None


@dataclass(frozen=True)
class CreditSearch:
    """Either by reference or by customer."""

    references: list[str] | None = None
    customers: list[str] | None = None

    def __post_init__(self) -> None:
        if (self.references is None) == (self.customers is None):
            raise Invalid("a search takes either 'references' or 'customers'")


@dataclass(frozen=True)
class CreditPage:
    since: Moment | None = None
    after: str | None = None
    limit: int = BATCH


@dataclass(frozen=True)
class ReversalOrder:
    amount_minor: int
    reference: str | None = None


def _settled(row: sqlite3.Row, now: int) -> bool:
    return row["withdrawn_at"] is None and row["settle_at"] is not None and row["settle_at"] <= now


def _status(row: sqlite3.Row, now: int) -> str:
    if row["withdrawn_at"] is not None:
        return "withdrawn"
    if not _settled(row, now):
        return "accepted"
    return "reversed" if row["reversed_minor"] >= row["amount_minor"] else "settled"


def view(row: sqlite3.Row, now: int) -> dict[str, Any]:
    """A credit as of ``now``; ``settle_at`` is null for one that never settles."""
    shown = {
        name: row[name] for name in ("id", "customer", "amount_minor", "currency", "reason", "reference")
    }
    return {
        **shown,
        "status": _status(row, now),
        "accepted_at": stamp(row["accepted_at"]),
        "settle_at": maybe_stamp(row["settle_at"]),
        "settled_at": stamp(row["settle_at"]) if _settled(row, now) else None,
        "withdrawn_at": maybe_stamp(row["withdrawn_at"]),
        "reversed_minor": row["reversed_minor"],
        "spent": bool(row["spent"]),
        "path": row["path"],
    }


def reversal_view(row: sqlite3.Row) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "credit", "amount_minor", "reference")}
    return {**shown, "status": "settled", "at": stamp(row["at"])}


def rows(db: sqlite3.Connection, where: str = "1", values: tuple[object, ...] = ()) -> list[sqlite3.Row]:
    return db.execute(f"{_WITH_REVERSED} WHERE {where}", values).fetchall()


def _one(call: Call[Any]) -> sqlite3.Row:
    found = rows(call.store.db, "c.id = ?", (call.path["id"],))
    if not found:
        raise Problem(404, "not_found", f"There is no credit {call.path['id']!r}. Search by its reference.")
    return found[0]


def _accept(call: Call[Any], order: CreditOrder, path: str) -> str:
    """Writes the credit and returns its id, or refuses its content."""
    db = call.store.db
    if not db.execute("SELECT 1 FROM accounts WHERE id = ?", (order.customer,)).fetchone():
        raise Problem(422, "customer_unknown", f"There is no customer {order.customer!r}. Check the id.")
    if not 1 <= order.amount_minor <= LARGEST:
        raise Problem(
            422, "amount_invalid", f"An amount lies between 1 and {LARGEST} minor units. Change it."
        )
    if order.currency not in CURRENCIES:
        detail = f"Credits are in {' or '.join(CURRENCIES)}. Choose one of these."
        raise Problem(422, "currency_unsupported", detail)
    made = f"cr-{secrets.token_hex(6)}"
    db.execute(
        "INSERT INTO credits (id, customer, amount_minor, currency, reason, reference, path, accepted_at,"
        " settle_at, visible_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            made,
            order.customer,
            order.amount_minor,
            order.currency,
            order.reason,
            order.reference,
            path,
            call.now,
            call.due("settle_seconds"),
            call.visible_at,
        ),
    )
    return made


def issue(call: Call[CreditOrder]) -> Answer:
    made = _accept(call, call.input, "credits")
    return Answer(202, view(rows(call.store.db, "c.id = ?", (made,))[0], call.now))


def issue_batch(call: Call[CreditBatch]) -> Answer:
    """Each item as a call of its own would be answered; one that fails keeps no other from its credit."""
    results = [result for item in call.input.credits for result in _results(call, item)]
    return Answer(200, {"results": results})


def _results(call: Call[Any], item: KeyedOrder) -> list[dict[str, Any]]:
    plan = faults.take(call.store.db, "payments", BATCH_ROUTE, asdict(item), faults.ITEM)
    answer = faults.broken().answer() if plan.first("item_fails") else _answered(call, item)
    result = {
        "key": item.key,
        "status": answer.status,
        "replayed": keys.REPLAYED in answer.headers,
        "body": answer.body,
    }
    return [result] * (0 if plan.first("item_left_out") else 2 if plan.first("item_twice") else 1)


def _answered(call: Call[Any], item: KeyedOrder) -> Answer:
    sent = {name: value for name, value in asdict(item.order()).items() if value is not None}
    request = keys.fingerprint(ISSUE_ROUTE, {}, json.dumps(sent))
    try:
        known = keys.replay(call.store, call.now, item.key, request)
        if known is not None:
            return known
        answer = issue(replace(call, input=item.order()))
    except Problem as problem:
        answer = problem.answer()
    keys.remember(call.store, call.now, item.key, request, answer)
    return answer


def issue_legacy(call: Call[LegacyOrder]) -> Answer:
    """The older path: no key, so each call is a new credit."""
    old = call.input
    order = CreditOrder(old.cust, old.cents, old.cur, "legacy", old.memo)
    return Answer(200, {"ok": True, "credit_id": _accept(call, order, "legacy")})


def search(call: Call[CreditSearch]) -> Answer:
    where, wanted = _BY_REFERENCE, call.input.references
    if wanted is None:
        where, wanted = _BY_CUSTOMER, call.input.customers or []
    found = rows(call.store.db, where, (within(wanted), call.now))
    return call.listing("credits", (view(row, call.now) for row in found))


def list_credits(call: Call[CreditPage]) -> Answer:
    """Credits accepted at or after ``since``, oldest first; ``next`` continues as ``after``."""
    page, limit = call.input, limited(call.input.limit)
    start = 0
    if page.after is not None:
        known = rows(call.store.db, "c.id = ?", (page.after,))
        if not known:
            raise Problem(422, "invalid", f"There is no credit {page.after!r}. Start without 'after'.")
        start = known[0]["seq"]
    found = rows(
        call.store.db,
        "c.seq > ? AND c.accepted_at >= ? AND c.visible_at <= ? ORDER BY c.seq LIMIT ?",
        (start, page.since or 0, call.now, limit + 1),
    )
    following = found[limit - 1]["id"] if len(found) > limit else None
    return call.listing("credits", (view(row, call.now) for row in found[:limit]), next=following)


def read_credit(call: Call[Nothing]) -> Answer:
    return Answer(200, view(_one(call), call.now))


def withdraw(call: Call[Nothing]) -> Answer:
    """Takes a queued credit back; one that is withdrawn already is answered as it is."""
    row = _one(call)
    if _settled(row, call.now):
        raise Problem(409, "already_settled", "The credit has settled. Reverse it instead.")
    if row["withdrawn_at"] is None:
        call.store.db.execute("UPDATE credits SET withdrawn_at = ? WHERE id = ?", (call.now, row["id"]))
    return read_credit(call)


def reverse(call: Call[ReversalOrder]) -> Answer:
    """Takes a settled credit back in part or whole, as long as it is not spent."""
    row, amount = _one(call), call.input.amount_minor
    if amount < 1:
        raise Problem(422, "amount_invalid", "A reversal takes at least 1 minor unit. Change the amount.")
    if not _settled(row, call.now):
        raise Problem(409, "not_settled", "Only a settled credit is reversed. Withdraw a queued one.")
    if row["spent"]:
        raise Problem(409, "spent", "The customer has spent the credit. Let a person decide what to do.")
    if row["reversed_minor"] + amount > row["amount_minor"]:
        left = row["amount_minor"] - row["reversed_minor"]
        raise Problem(409, "exceeds", f"Only {left} minor units are left to reverse. Reverse at most that.")
    made = f"rv-{secrets.token_hex(6)}"
    call.store.db.execute(
        "INSERT INTO reversals (id, credit, amount_minor, reference, at, visible_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (made, row["id"], amount, call.input.reference, call.now, call.visible_at),
    )
    found = call.store.db.execute("SELECT * FROM reversals WHERE id = ?", (made,)).fetchone()
    return Answer(202, reversal_view(found))


def search_reversals(call: Call[References]) -> Answer:
    found = call.store.db.execute(
        "SELECT * FROM reversals WHERE reference IN (SELECT value FROM json_each(?))"
        " AND visible_at <= ? ORDER BY seq",
        (within(call.input.references), call.now),
    )
    return call.listing("reversals", map(reversal_view, found))


SERVICE = Service(
    "payments",
    frozenset({"payments"}),
    (
        Route("POST", "/credits", CreditOrder, issue, keyed=True),
        Route("POST", "/credits/batch", CreditBatch, issue_batch),
        Route("GET", "/credits", CreditPage, list_credits),
        Route("POST", "/credits/search", CreditSearch, search),
        read("GET", "/credits/{id}", read_credit),
        read("POST", "/credits/{id}/withdraw", withdraw),
        Route("POST", "/credits/{id}/reverse", ReversalOrder, reverse, keyed=True),
        Route("POST", "/reversals/search", References, search_reversals),
        Route("POST", "/legacy/credits", LegacyOrder, issue_legacy),
    ),
)
