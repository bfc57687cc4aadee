"""The vocabulary of one HTTP call: route, call, answer, problem (RFC 9457).

A handler is a plain function from Call to Answer. It runs inside one database transaction and raises
Problem before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from remit.sandbox.shapes import Nothing
from remit.sandbox.store import Moment, Store, later, stamp

I = TypeVar("I")  # noqa: E741 - the input of a call; one letter, as type variables are


@dataclass(frozen=True)
class Answer:
    """What goes back: JSON for a dict, HTML for a text."""

    status: int
    body: dict[str, Any] | str
    headers: dict[str, str] = field(default_factory=dict)


class Problem(Exception):
    """A refusal with a code that programs can rely on; the detail ends with what to do next."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, code, detail, headers)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}

    def answer(self) -> Answer:
        body = {
            "type": f"urn:company:problem:{self.code}",
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        return Answer(self.status, body, {**self.headers, "Content-Type": "application/problem+json"})


@dataclass(frozen=True)
class Delays:
    """What a fault makes of an effect's times. Seconds of company time; None: as the settings say."""

    settle_seconds: float | None = None
    never_settle: bool = False
    hidden_seconds: float = 0.0


@dataclass(frozen=True)
class Call(Generic[I]):
    """One request as its handler sees it; ``now`` is taken before anything is read."""

    store: Store
    now: Moment
    actor: str
    input: I
    path: dict[str, str]
    headers: dict[str, str]
    delays: Delays

    def due(self, setting: str) -> Moment | None:
        """When an effect that starts now settles or is delivered; None: never."""
        if self.delays.never_settle:
            return None
        seconds = self.delays.settle_seconds
        return later(self.now, self.store.setting(setting) if seconds is None else seconds)

    @property
    def visible_at(self) -> Moment:
        return later(self.now, self.delays.hidden_seconds)

    def listing(self, name: str, items: Iterable[dict[str, Any]], **more: object) -> Answer:
        """Every search and list answers in this form."""
        body = {name: list(items), **more, "as_of": stamp(self.now), "complete": True}
        return Answer(200, body)


@dataclass(frozen=True)
class Route(Generic[I]):
    """One entry of a service: the template path is also the name by which faults find it.

    ``keyed`` calls need an Idempotency-Key; ``open`` ones no credential. ``arrived`` sees the raw text
    of each request that shows a credential, before any fault and any validation.
    """

    method: str
    template: str
    input: type[I]
    run: Callable[[Call[I]], Answer]
    keyed: bool = False
    open: bool = False
    arrived: Callable[[Store, Moment, str], None] | None = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True)
class Service:
    """A listener's routes, whose credentials it takes, and how it words its refusals."""

    name: str
    holders: frozenset[str]
    routes: tuple[Route[Any], ...]
    wording: Callable[[Problem], Answer] = Problem.answer


@dataclass(frozen=True)
class References:
    """The shape of a search by reference."""

    references: list[str]


def read(method: str, template: str, run: Callable[[Call[Nothing]], Answer]) -> Route[Nothing]:
    """A route that takes neither body nor parameters."""
    return Route(method, template, Nothing, run)


def limited(limit: int) -> int:
    """A page's size as asked for, or Problem."""
    if not 1 <= limit <= 100:
        raise Problem(422, "invalid", "'limit' must lie between 1 and 100. Send a limit in that range.")
    return limit
