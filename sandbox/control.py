"""The strings of the pretend company: faults, its clock, its settings, spent credits, and where its events go."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from remit.sandbox import accounts, faults, mail, model, outbox, payments
from remit.sandbox.calls import Answer, Call, Problem, Route, Service, read
from remit.sandbox.shapes import Invalid, Nothing
from remit.sandbox.store import SETTINGS, Store, later, real_now, stamp

_FAULTY = {
    "accounts": accounts.SERVICE.routes,
    "payments": payments.SERVICE.routes,
    "mail": mail.SERVICE.routes,
    "model": model.service(model.SHIPPED).routes,
}


@dataclass(frozen=True)
class Rule:
    """A fault as it is asked for. ``times`` null: each time. ``skip``: calls that match and go unharmed."""

    service: str
    kind: str
    route: str = "*"
    match: dict[str, object] = field(default_factory=dict)
    times: int | None = 1
    skip: int = 0
    seconds: float | None = None
    stored: bool = False

    def __post_init__(self) -> None:
        if self.service not in _FAULTY:
            raise Invalid(f"'service' must be one of {', '.join(_FAULTY)}")
        if self.kind not in faults.KINDS:
            raise Invalid(f"'kind' must be one of {', '.join(sorted(faults.KINDS))}")
        if self.kind == "refuse" and (self.route != "*" or self.match):
            raise Invalid("'refuse' closes the whole service: it takes neither 'route' nor 'match'")
        if self.kind in faults.EVENT and self.service not in outbox.TYPES:
            raise Invalid(f"{self.kind!r} is for events, which only {' and '.join(outbox.TYPES)} post")
        if self.kind in faults.NEED_SECONDS and self.seconds is None:
            raise Invalid(f"{self.kind!r} needs 'seconds'")
        if self.stored and self.kind not in ("error_before", "error_after"):
            raise Invalid("'stored' goes with 'error_before' and 'error_after' only")
        if (self.times is not None and self.times < 1) or self.skip < 0 or (self.seconds or 0) < 0:
            raise Invalid("'times' is at least 1 or null, 'skip' and 'seconds' at least 0")


@dataclass(frozen=True)
class Advance:
    advance_seconds: float

    def __post_init__(self) -> None:
        if self.advance_seconds < 0:
            raise Invalid("'advance_seconds' must be at least 0: time does not run backwards")


@dataclass(frozen=True)
class Settings:
    """Seconds of company time; null: unchanged."""

    settle_seconds: float | None = None
    deliver_seconds: float | None = None
    key_retention_seconds: float | None = None

    def __post_init__(self) -> None:
        if any(value is not None and value < 0 for value in vars(self).values()):
            raise Invalid("a setting must be at least 0")


@dataclass(frozen=True)
class Spend:
    credit: str


@dataclass(frozen=True)
class Webhook:
    service: str
    url: str

    def __post_init__(self) -> None:
        if self.service not in outbox.TYPES:
            raise Invalid(f"'service' must be one of {', '.join(outbox.TYPES)}")
        if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", self.url):
            raise Invalid("'url' must be an address such as http://127.0.0.1:8600/events/payments")


def healthz(call: Call[Nothing]) -> Answer:
    return Answer(200, {"status": "ok", "now": stamp(call.now)})


def list_faults(call: Call[Nothing]) -> Answer:
    return call.listing("faults", faults.listed(call.store.db))


def add_fault(call: Call[Rule]) -> Answer:
    rule = call.input
    event = rule.kind in faults.EVENT
    known = sorted(outbox.TYPES[rule.service] if event else (r.name for r in _FAULTY[rule.service]))
    if rule.route not in ("*", *known):
        what = "event" if event else "route"
        detail = f"{rule.service!r} has no {what} {rule.route!r}. Choose one of: {', '.join(known)}."
        raise Problem(422, "invalid", detail)
    until = later(real_now(), rule.seconds) if rule.kind == "refuse" and rule.seconds is not None else None
    made = faults.add(call.store.db, {**vars(rule), "until": until})
    return Answer(201, _fault(call.store, made))


def clear_faults(call: Call[Nothing]) -> Answer:
    return Answer(200, {"cleared": call.store.db.execute("DELETE FROM faults").rowcount})


def clear_fault(call: Call[Nothing]) -> Answer:
    name = call.path["id"]
    if not call.store.db.execute("DELETE FROM faults WHERE id = ?", (name,)).rowcount:
        raise Problem(404, "not_found", f"There is no fault {name!r}. List the faults.")
    return Answer(200, {"cleared": 1})


def _fault(store: Store, made: int) -> dict[str, Any]:
    return next(fault for fault in faults.listed(store.db) if fault["id"] == made)


def read_clock(call: Call[Nothing]) -> Answer:
    now, offset = call.store.now(), call.store.setting("offset_seconds")
    return Answer(200, {"now": stamp(now), "offset_seconds": offset})


def advance_clock(call: Call[Advance]) -> Answer:
    offset = call.store.setting("offset_seconds") + call.input.advance_seconds
    call.store.set("offset_seconds", offset)
    return Answer(200, {"now": stamp(call.store.now()), "offset_seconds": offset})


def read_settings(call: Call[Nothing]) -> Answer:
    return Answer(200, {name: call.store.setting(name) for name in SETTINGS})


def change_settings(call: Call[Settings]) -> Answer:
    """What is queued already keeps its times."""
    for name, value in vars(call.input).items():
        if value is not None:
            call.store.set(name, value)
    return Answer(200, {name: call.store.setting(name) for name in SETTINGS})


def spend(call: Call[Spend]) -> Answer:
    """Marks a credit as spent by its customer: from now on it is not reversed."""
    done = call.store.db.execute("UPDATE credits SET spent = 1 WHERE id = ?", (call.input.credit,))
    if not done.rowcount:
        raise Problem(404, "not_found", f"There is no credit {call.input.credit!r}. Search for it.")
    return Answer(200, {"credit": call.input.credit, "spent": True})


def list_webhooks(call: Call[Nothing]) -> Answer:
    return call.listing("webhooks", outbox.registered(call.store.db))


def add_webhook(call: Call[Webhook]) -> Answer:
    """What happens from now on is told; a service has one URL."""
    outbox.register(call.store.db, call.input.service, call.input.url, call.now)
    return Answer(201, {"service": call.input.service, "url": call.input.url})


def clear_webhooks(call: Call[Nothing]) -> Answer:
    return Answer(200, {"cleared": outbox.forget(call.store.db)})


def clear_webhook(call: Call[Nothing]) -> Answer:
    service = call.path["service"]
    if not outbox.forget(call.store.db, service):
        raise Problem(404, "not_found", f"{service!r} has no webhook. List the webhooks.")
    return Answer(200, {"cleared": 1})


def list_posts(call: Call[Nothing]) -> Answer:
    return call.listing("posts", outbox.posts(call.store.db))


SERVICE = Service(
    "control",
    frozenset({"control"}),
    (
        Route("GET", "/healthz", Nothing, healthz, open=True),
        read("GET", "/faults", list_faults),
        Route("POST", "/faults", Rule, add_fault),
        read("DELETE", "/faults", clear_faults),
        read("DELETE", "/faults/{id}", clear_fault),
        read("GET", "/clock", read_clock),
        Route("POST", "/clock", Advance, advance_clock),
        read("GET", "/settings", read_settings),
        Route("POST", "/settings", Settings, change_settings),
        Route("POST", "/spend", Spend, spend),
        read("GET", "/webhooks", list_webhooks),
        Route("POST", "/webhooks", Webhook, add_webhook),
        read("DELETE", "/webhooks", clear_webhooks),
        read("DELETE", "/webhooks/{service}", clear_webhook),
        read("GET", "/outbox", list_posts),
    ),
)
