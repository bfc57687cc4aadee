"""Idempotency-Key as the IETF draft has it: one key is one request, and the answer to it is kept.

The answer is stored in the transaction of its effect, so a key is never known without its effect or the
other way round.
"""

from __future__ import annotations

import hashlib
import json
import re

from remit.sandbox.calls import Answer, Problem
from remit.sandbox.store import MICROS, Store

_STRING = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"')
"""A structured-field string (RFC 8941): printable ASCII in quotes, with escaped quote and backslash."""

REPLAYED = "Idempotency-Replayed"


def key_of(header: str | None) -> str:
    """The key in the header, or Problem 400."""
    if header is None:
        raise Problem(
            400, "key_required", "The Idempotency-Key header is missing. Send one per business change."
        )
    found = _STRING.fullmatch(header.strip())
    if found is None:
        raise Problem(400, "key_malformed", "The Idempotency-Key must be a text in double quotes. Quote it.")
    return re.sub(r"\\(.)", r"\1", found[1])


def fingerprint(route: str, path: dict[str, str], raw: str) -> str:
    """Says whether two requests have the same content, whatever the order and spacing of their JSON."""
    content = json.dumps([route, path, json.loads(raw)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def replay(store: Store, now: int, key: str, request: str) -> Answer | None:
    """The stored answer, None for a new or forgotten key, or Problem for a key of another request."""
    row = store.db.execute("SELECT * FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row["at"] + store.setting("key_retention_seconds") * MICROS <= now:
        store.db.execute("DELETE FROM keys WHERE key = ?", (key,))
        return None
    if row["request"] != request:
        detail = "This key was used for another content. Use a new key for a new business change."
        raise Problem(422, "key_reused", detail)
    headers = {REPLAYED: "true"}
    if row["status"] >= 400:
        headers["Content-Type"] = "application/problem+json"
    return Answer(row["status"], json.loads(row["body"]), headers)


def remember(store: Store, now: int, key: str, request: str, answer: Answer) -> None:
    """Keeps an answer, failures included; a key that is already known keeps its first answer."""
    store.db.execute(
        "INSERT OR IGNORE INTO keys (key, request, status, body, at) VALUES (?, ?, ?, ?, ?)",
        (key, request, answer.status, json.dumps(answer.body), now),
    )


def in_progress() -> Problem:
    detail = "A request with this key is being worked on. Ask what became of it, or call again later."
    return Problem(409, "key_in_progress", detail)
