"""The crash matrix as data: act by kind of effect by signal by what the company does meanwhile.

An act is a commit or a call: the pair of fault points around it, every one of the closed enum. There is no list of
exceptions: an act that an ordinary day does not bring about names the trouble that does, for each kind of effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product

from remit.tools.ports import POINTS, FaultPoint


class Kind(StrEnum):
    """The kinds of effect: every writing tool, both paths of a credit and the undo tools among them."""

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
    FROZEN = "a lead freezes the run and lifts that again"
    SUBJECT_STOPPED = "a person stops everything about the customer, and lifts that later"
    HELD = "a person keeps the operation back while it is held"
    REVOKED = "the mandate is revoked, and granted again in other words"
    EDITED = "an approver puts another intent in the place of what is asked"
    TAKEN_BACK = "the approver takes the approval back, and grants it again"
    GIVEN_UP = "a worker gives the tool up for the one that it falls back to, which is not called for"
    DOOR = "the door of a receiver is closed"
    NOTICES = "notices are told, and one of them is not taken at first"
    RESTORED = "the ledger is said to come out of a backup, verified, and the order lifted"
    CONTESTED = "the receiver says accepted and has nothing, and people work on the case"
    PROBED = "what was sent is a probe, and what it showed is kept"
    LOOKED_AT = "somebody asks for a run that there is not"
    FORGOTTEN = "an administrator has old rows removed"
    TOKENS = "a token is minted and revoked"
    EVENTS = "the receiver posts events"


TROUBLES: dict[str, Trouble] = {
    "judge": Trouble.SILENT_POLICY,
    "policy_silent": Trouble.SILENT_POLICY,
    "count_silence": Trouble.SILENT_POLICY,
    "clear_gates": Trouble.SILENT_POLICY,
    "put_off": Trouble.SILENT_RECEIVER,
    "note_answer": Trouble.SILENT_RECEIVER,
    "knock": Trouble.DOOR,
    "fall_back": Trouble.GIVEN_UP,
    "edit": Trouble.EDITED,
    "unapprove": Trouble.TAKEN_BACK,
    "take_notices": Trouble.NOTICES,
    "notices_told": Trouble.NOTICES,
    "notices_failed": Trouble.NOTICES,
    "close_pending": Trouble.CHANGED_PREMISES,
    "new_thread": Trouble.DEPLOYED,
    "unsend": Trouble.ASKED_TO_END,
    "heartbeat": Trouble.SLOW_READ,
    "stop": Trouble.STOPPED,
    "lift": Trouble.STOPPED,
    "freeze": Trouble.FROZEN,
    "cancel_stopped": Trouble.SUBJECT_STOPPED,
    "cancel_holds": Trouble.HELD,
    "release_holds": Trouble.HELD,
    "reschedule_holds": Trouble.HELD,
    "advance_clock": Trouble.HELD,
    "revoke_mandate": Trouble.REVOKED,
    "restored": Trouble.RESTORED,
    "verify_restored": Trouble.RESTORED,
    "resolve_case": Trouble.CONTESTED,
    "replay_case": Trouble.CONTESTED,
    "close_case": Trouble.CONTESTED,
    "store_probe": Trouble.PROBED,
    "may_see": Trouble.LOOKED_AT,
    "forget": Trouble.FORGOTTEN,
    "mint_token": Trouble.TOKENS,
    "revoke_token": Trouble.TOKENS,
    "receive_event": Trouble.EVENTS,
    "count_refused_events": Trouble.EVENTS,
}
"""By act, where an ordinary day does not reach it."""


_AFTER_A_SEND = frozenset(
    {"checkpoint", "due", "release_run", "start_holds", "swept", "tidy", "verify", "writes"}
)
"""Acts that recur: the signal comes when something has been sent already, where more is at stake."""

_ONE_BY_ONE = frozenset({"confirm", "may_send", "premises", "put_off", "record", "send"})
"""Acts that are done tool by tool: only the first tool's would meet the signal, so each kind has its own worker."""

_TOGETHER = (
    (Kind.CREDIT, Kind.NOTE, Kind.MAIL),
    (Kind.LEGACY, Kind.REMOVAL),
    (Kind.REVERSAL, Kind.CORRECTION),
)
"""Kinds that one worker has as its business at once, where an act is one statement for all of them."""

OWN_LEDGER = frozenset({Trouble.RESTORED, Trouble.NOTICES})
"""What concerns a whole ledger, all its runs and its outbox, has a ledger to itself."""


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
    def armed_by(self) -> FaultPoint | None:
        """What has to be passed before the signal is met."""
        return FaultPoint.AFTER_SEND if self.act in _AFTER_A_SEND else None

    @property
    def trouble(self) -> Trouble:
        return TROUBLES.get(self.act, Trouble.NONE)

    def __str__(self) -> str:
        return f"{self.act} / {self.kind} / {self.signal} / {self.weather}"


DIMENSIONS: tuple[tuple[str, ...], ...] = (tuple(POINTS), tuple(Kind), tuple(Signal), tuple(Weather))

Party = list[Row]
"""The rows of one worker: the same act and signal, kinds that do not stand in each other's way."""


def full() -> list[Party]:
    """Every combination."""
    return [
        [Row(act, kind, signal, weather) for kind in kinds]
        for act in POINTS
        for kinds in _parties(act)
        for signal, weather in product(Signal, Weather)
    ]


def pairwise() -> list[Party]:
    """A few of them, the same each time: any two values of any two dimensions stand together in at least one row."""
    met: Counter[frozenset[str]] = Counter()
    parties: list[Party] = []
    for act in POINTS:
        for kinds in _parties(act):
            signal = min(Signal, key=lambda choice: _rarity(met, choice, [act], kinds))
            party: Party = []
            for kind in kinds:
                weather = min(Weather, key=lambda choice: _rarity(met, choice, [act], [kind, signal]))
                met.update(frozenset(pair) for pair in combinations((act, kind, signal, weather), 2))
                party.append(Row(act, kind, signal, weather))
            parties.append(party)
    return parties


def _parties(act: str) -> Sequence[Sequence[Kind]]:
    return [(kind,) for kind in Kind] if act in _ONE_BY_ONE else _TOGETHER


def _rarity(
    met: Counter[frozenset[str]], choice: str, first: Sequence[str], others: Sequence[str]
) -> tuple[int, int, int]:
    """Smallest for the choice that is new to `first`, then new to most of the others, then met least often."""
    seen = [met[frozenset((choice, other))] for other in others]
    new = sum(met[frozenset((choice, other))] == 0 for other in first)
    return -new, -seen.count(0), sum(seen)
