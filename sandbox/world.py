"""A fresh world: 60 customers, two incidents with the company's own remedies, templates, credentials."""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, timedelta
from importlib import resources
from pathlib import Path

from remit.sandbox import outbox, signatures
from remit.sandbox.store import Store, database, digest, folder

HOLDERS = ("accounts", "payments", "mail", "model", "employee", "control")
SEED = 611
CUSTOMERS = tuple(f"c-{number}" for number in (*range(101, 131), *range(201, 231)))
"""Sixty: two districts of thirty."""

_SETTINGS = {
    "offset_seconds": 0.0,
    "settle_seconds": 1.0,
    "deliver_seconds": 1.0,
    "key_retention_seconds": 86_400.0,
}
_PLANS = ("basic", "standard", "premium")
_TEMPLATES = (
    (
        "credit_correction",
        "none",
        "A correction to our last message",
        "Dear {name}, our last message about a credit was wrong. {correction}",
    ),
    (
        "free_month",
        "month_extension",
        "A month on us",
        "Dear {name}, your subscription now runs one month longer, until {until}.",
    ),
    (
        "one_time_credit",
        "one_time_credit",
        "A credit for the outage",
        "Dear {name}, we have credited {amount} to your account once.",
    ),
)
_INCIDENTS = (
    ("outage-0611", "Outage of 11 June", 1000, "USD", "one_time_credit"),
    ("outage-0619", "Outage of 19 June", 500, "USD", "one_time_credit"),
)


def write_private(path: Path, text: str) -> None:
    """Replaces a file as a whole, readable by its owner alone."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


@contextmanager
def _making(home: Path) -> Iterator[None]:
    """One maker of worlds at a time, over processes too."""
    folder(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder(home) / "making.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def create(home: Path, seed: int = SEED) -> None:
    """Replaces the world of a home, whose process must not be running, by a fresh one.

    The same seed gives the same customers; the credentials are always new.
    """
    with _making(home):
        _create(home, seed)


def create_missing(home: Path, seed: int = SEED) -> None:
    """As ``create``, where there is no world yet."""
    with _making(home):
        if not database(home).exists():
            _create(home, seed)


def _create(home: Path, seed: int) -> None:
    """The database gets its name last: where there is one, it is whole and its credentials are beside it."""
    path = database(home)
    fresh = path.with_name("fresh.sqlite")
    for old in (path, fresh):
        for leftover in (old, old.with_name(f"{old.name}-wal"), old.with_name(f"{old.name}-shm")):
            leftover.unlink(missing_ok=True)
    credentials = {holder: secrets.token_urlsafe(24) for holder in HOLDERS}
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(Store(fresh)) as store, store.transaction():
        _fill(store, random.Random(seed), credentials)  # noqa: S311 - who is affected is no secret
    # No credential: who signs events has to know these in clear, so they stand in this file alone.
    credentials |= {signatures.holder(service): signatures.new_secret() for service in outbox.TYPES}
    write_private(folder(home) / "credentials.json", json.dumps(credentials, indent=2))
    fresh.rename(path)


def _fill(store: Store, chance: random.Random, credentials: dict[str, str]) -> None:
    for statement in resources.files("remit.sandbox").joinpath("schema.sql").read_text("utf-8").split(";"):
        store.db.execute(statement)
    store.db.executemany("INSERT INTO company VALUES (?, ?)", _SETTINGS.items())
    hashed = [(holder, digest(credential)) for holder, credential in credentials.items()]
    store.db.executemany("INSERT INTO credentials VALUES (?, ?)", hashed)
    store.db.executemany("INSERT INTO accounts VALUES (?, ?, ?, ?, ?, 1)", map(_account, CUSTOMERS))
    store.db.executemany("INSERT INTO templates VALUES (?, ?, ?, ?)", _TEMPLATES)
    store.db.executemany("INSERT INTO incidents VALUES (?, ?, ?, ?, ?)", _INCIDENTS)
    affected = {
        "outage-0611": _sample(chance, 24, "c-104", "c-205"),
        "outage-0619": _sample(chance, 12, "c-104"),
    }
    for incident, customers in affected.items():
        rows = [(incident, customer) for customer in customers]
        store.db.executemany("INSERT INTO affected VALUES (?, ?)", rows)


def _account(customer: str) -> tuple[str, str, str, str, str]:
    """The number alone decides, so that an account is the same under every seed."""
    number = int(customer.removeprefix("c-"))
    renewal = date(2027, 3, 4) + timedelta(days=(number - 104) * 5)
    plan = _PLANS[(number - 103) % len(_PLANS)]
    return customer, f"Customer {number}", f"{customer}@example.test", plan, renewal.isoformat()


def _sample(chance: random.Random, size: int, *always: str) -> list[str]:
    others = [customer for customer in CUSTOMERS if customer not in always]
    return sorted([*always, *chance.sample(others, size - len(always))])
