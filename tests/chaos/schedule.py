"""What a round of chaos does, drawn from its seed alone: the fate of every worker, and what happens around them.

Events come after so many deaths, not at times: a slow machine plays the same schedule as a fast one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "decide", "clock", "edit", "fault", "stop", "lift", "restart_postgres", "cut_connections", "kill_company"
]

KILLS = 50
"""Workers that die in one round, unless the work is done earlier."""

_STOP_LASTS = 3
"""Deaths between a stop and its lift."""

_LONGEST_LIFE = 6.0
"""Seconds after which also a worker dies that finds nothing to do and so comes to no moment and no point."""

EFFECTS = {"payments": "POST /credits", "accounts": "PATCH /accounts/{id}", "mail": "POST /messages"}
SEARCHES = {
    "payments": "POST /credits/search",
    "accounts": "POST /history/search",
    "mail": "POST /messages/search",
}

_CHANCES: dict[Kind, float] = {
    "decide": 0.7,
    "clock": 0.25,
    "edit": 0.3,
    "fault": 0.45,
    "stop": 0.06,
    "cut_connections": 0.06,
    "kill_company": 0.05,
}

_FAULTS: dict[str, tuple[float, float] | None] = {
    "reply_lost": None,
    "error_before": None,
    "error_after": None,
    "html": None,
    "rate_limit": (1.0, 1.0),
    "slow_settle": (0.3, 1.5),
    "late_search": (0.1, 0.8),
    "delay": (0.05, 0.5),
    "delay_after": (0.5, 2.0),
}
"""On calls that have an effect, with their seconds. What no receiver may do within its contract is left out: a search
that shows an effect only after the contract's bound, and an answer that promises what does not happen, end with a
person, and other tests show that. A `delay` past that bound is the same: the request would still be on its way."""


@dataclass(frozen=True)
class Fate:
    """How one worker dies: at its n-th act, at the n-th point of sending of its runner, or after so many seconds from
    outside, killed or asked to end."""

    worker: int
    moment: int = 0
    point: int = 0
    seconds: float = 0.0
    polite: bool = False


@dataclass(frozen=True)
class Event:
    """One thing that happens after the `after`-th death. `chance` seeds whatever it picks."""

    after: int
    kind: Kind
    chance: int
    details: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """The whole plan of one seed."""

    seed: int
    events: tuple[Event, ...]

    @classmethod
    def of(cls, seed: int, kills: int = KILLS) -> Schedule:
        dice = random.Random(f"events {seed}")  # noqa: S311 - a plan, not a secret
        restarts = set(dice.sample(range(3, kills), dice.choice((1, 2))))
        events: list[Event] = []
        lift_after = 0
        for after in range(1, kills + 1):
            kinds: list[Kind] = [kind for kind, chance in _CHANCES.items() if dice.random() < chance]
            if after in restarts:
                kinds.append("restart_postgres")
            if lift_after == after:
                kinds.append("lift")
            if "stop" in kinds:
                lift_after = after + _STOP_LASTS if lift_after < after else lift_after
            events += [Event(after, kind, dice.getrandbits(30), _details(kind, dice)) for kind in kinds]
        return cls(seed, tuple(events))

    def at(self, deaths: int) -> list[Event]:
        """What happens after this many deaths."""
        return [event for event in self.events if event.after == deaths]

    def fate(self, worker: int) -> Fate:
        """How the n-th worker of this round dies: most at a moment or a point, some by a clock, a few politely."""
        dice = random.Random(f"worker {self.seed} {worker}")  # noqa: S311 - as above
        how, polite = dice.random(), dice.random() < 0.2
        if how < 0.4:
            return Fate(worker, moment=dice.randint(3, dice.choice((60, 150, 300))), seconds=_LONGEST_LIFE)
        if how < 0.75:
            return Fate(worker, point=dice.randint(1, 12), seconds=_LONGEST_LIFE)
        return Fate(worker, seconds=round(dice.uniform(0.2, 2.0), 3), polite=polite)


def _details(kind: Kind, dice: random.Random) -> tuple[Any, ...]:
    if kind == "fault":
        return _fault(dice)
    if kind == "stop":
        return (dice.choice(("stop", "stop", "freeze")), dice.choice(("all", "mandate", "run", "subject")))
    if kind == "edit":
        return (dice.choice(("name", "email", "notes", "plan")),)
    return ()


def _fault(dice: random.Random) -> tuple[Any, ...]:
    """Service, kind, route, how many calls it hits, and seconds."""
    service = dice.choice(sorted(EFFECTS))
    if dice.random() < 0.15:
        return (service, "refuse", "*", None, 0.3)
    if dice.random() < 0.15:
        return (service, dice.choice(("error_before", "html", "reply_lost")), SEARCHES[service], 2, None)
    kind = dice.choice(sorted(_FAULTS))
    span = _FAULTS[kind]
    seconds = None if span is None else round(dice.uniform(*span), 2)
    return (service, kind, EFFECTS[service], dice.randint(1, 4), seconds)
