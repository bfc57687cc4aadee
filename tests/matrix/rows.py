"""The crash matrix as data: every act of the closed enum × kind of effect × signal × what the company does meanwhile.

An act is a commit or a call: the pair of fault points around it. There is no list of exceptions: an act that an ordinary
day does not bring about names the trouble that does, and each trouble is possible with each kind of effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from remit.tools.ports import POINTS, FaultPoint


class Kind(StrEnum):
    """The kinds of effect: all writing tools of the catalogue, both paths of one effect and the undo tools among them."""

    CREDIT = "issue_credit"
    LEGACY = "issue_credit_legacy"
    NOTE = "annotate_account"
    MAIL = "send_email"
    REVERSAL = "reverse_credit"
    REMOVAL = "remove_note"
    CORRECTION = "send_correction"


class Signal(StrEnum):
    """What becomes of the worker. Suspended, it wakes up when another one has taken over and finished."""

    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    SUSPENDED = "suspended"


class Weather(StrEnum):
    """What the company does with the call that has the effect."""

    CALM = "calm"
    REPLY_LOST = "reply lost"
    ERROR_AFTER = "500 after the effect"
    SLOW = "slow settlement"


class Trouble(StrEnum):
    """What has to happen to a worker so that it comes to an act that an ordinary day does not bring about."""

    NONE = "none"
    SILENT_POLICY = "policy gives no answer at first"
    SILENT_RECEIVER = "the receiver fails while the premises are read before the claim"
    CHANGED_PREMISES = "an employee changes the account after the approval"
    DEPLOYED = "the graph changed since the run was started"
    ASKED_TO_END = "the worker is asked to end between claim and send"
    SLOW_READ = "a read takes longer than a heartbeat"
    STOPPED = "a person stops the run and lifts that again"
    HELD = "a person keeps the operation back while it is held"
    REVOKED = "the mandate is revoked, and granted again in other words"
    TOKENS = "a token is minted and revoked"
    EVENTS = "the receiver posts events"


TROUBLES: dict[str, Trouble] = {
    "judge": Trouble.SILENT_POLICY,
    "policy_silent": Trouble.SILENT_POLICY,
    "clear_gates": Trouble.SILENT_POLICY,
    "receiver_silent": Trouble.SILENT_RECEIVER,
    "close_pending": Trouble.CHANGED_PREMISES,
    "new_thread": Trouble.DEPLOYED,
    "unsend": Trouble.ASKED_TO_END,
    "heartbeat": Trouble.SLOW_READ,
    "stop": Trouble.STOPPED,
    "lift": Trouble.STOPPED,
    "cancel_holds": Trouble.HELD,
    "advance_clock": Trouble.HELD,
    "revoke_mandate": Trouble.REVOKED,
    "mint_token": Trouble.TOKENS,
    "revoke_token": Trouble.TOKENS,
    "receive_event": Trouble.EVENTS,
    "count_refused_events": Trouble.EVENTS,
}
"""By act, where an ordinary day does not reach it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a worker meets its signal at an act while one operation of this kind is its business."""

    act: str
    kind: Kind
    signal: Signal
    weather: Weather

    @property
    def point(self) -> FaultPoint:
        """Where the worker meets its signal. Suspended is suspended before: it wakes up with the act still to do."""
        before, after = POINTS[self.act]
        return after if self.signal is Signal.KILLED_AFTER else before

    @property
    def trouble(self) -> Trouble:
        return TROUBLES.get(self.act, Trouble.NONE)

    def __str__(self) -> str:
        return f"{self.act} / {self.kind} / {self.signal} / {self.weather}"


DIMENSIONS: tuple[tuple[str, ...], ...] = (tuple(POINTS), tuple(Kind), tuple(Signal), tuple(Weather))


def full() -> list[Row]:
    """Every combination."""
    return [_row(values) for values in product(*DIMENSIONS)]


def pairwise() -> list[Row]:
    """A few of them, in which each pair of values of any two dimensions stands together at least once."""
    return [_row(values) for values in covering(DIMENSIONS)]


def covering(dimensions: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """A covering array of strength two, the same each time: the pairs of the first two dimensions, and to each the
    values of the others that have been together with them least often."""
    counts: dict[tuple[int, str, int, str], int] = {}
    for first, second in product(*dimensions[:2]):
        values = [first, second]
        for place in range(2, len(dimensions)):
            values.append(_rarest(counts, values, place, dimensions[place]))
        for place, value in enumerate(values):
            for other in range(place):
                pair = (other, values[other], place, value)
                counts[pair] = counts.get(pair, 0) + 1
        yield tuple(values)


def _rarest(
    counts: dict[tuple[int, str, int, str], int], values: Sequence[str], place: int, choices: Sequence[str]
) -> str:
    """The choice with the most pairs that stand nowhere yet; among equals, the one that was taken least often."""

    def met(choice: str) -> tuple[int, int]:
        together = [counts.get((other, value, place, choice), 0) for other, value in enumerate(values)]
        return -together.count(0), sum(together)

    return min(choices, key=met)


def _row(values: Sequence[str]) -> Row:
    act, kind, signal, weather = values
    return Row(act, Kind(kind), Signal(signal), Weather(weather))
