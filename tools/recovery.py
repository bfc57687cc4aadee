"""The recovery table of DESIGN section 6, as data: what was seen leads to exactly one next step.

Two tables, because two things are seen: the end of an attempt, and a look at the system of record. Neither knows
a receiver; contracts turn answers into these words. Rows judge one attempt; the database itself turns "not sent",
429, refusal and 412 back into UNKNOWN while an earlier attempt is not proved to be without effect.
"""

from dataclasses import dataclass

from remit.tools.states import Closed, Seen, Sight, State


@dataclass(frozen=True, slots=True)
class AfterAttempt:
    """What one attempt's end leads to. `gate_seconds` keeps the operation back; None leaves it open."""

    to: State
    no_effect: bool
    closed: Closed | None = None
    gate: str | None = None
    gate_seconds: float = 0.0
    case: str | None = None
    detail: str | None = None


_BACKOFF_SECONDS = 1.0
"""First wait after "not sent"; doubled per attempt by the runner, with jitter, up to a minute. It is the operation's
own; a receiver that answers nobody, or refuses the credential, is kept from everybody by its door."""

AFTER_ATTEMPT: dict[Seen, AfterAttempt] = {
    Seen.NOT_WRITTEN: AfterAttempt(
        State.PENDING,
        True,
        gate="backoff",
        gate_seconds=_BACKOFF_SECONDS,
        detail="the receiver could not be reached",
    ),
    Seen.RATE_LIMITED: AfterAttempt(
        State.PENDING,
        True,
        gate="backoff",
        gate_seconds=_BACKOFF_SECONDS,
        detail="the receiver asked for fewer requests",
    ),
    Seen.CREDENTIAL: AfterAttempt(
        State.PENDING,
        True,
        gate="backoff",
        gate_seconds=_BACKOFF_SECONDS,
        detail="the receiver refused the credential",
    ),
    Seen.RECEIVER_DOWN: AfterAttempt(
        State.UNKNOWN,
        False,
        gate="backoff",
        gate_seconds=_BACKOFF_SECONDS,
        detail="the receiver says that it is down",
    ),
    Seen.REFUSED: AfterAttempt(
        State.CLOSED, True, closed=Closed.REFUSED, detail="the receiver refused the content"
    ),
    Seen.PRECONDITION: AfterAttempt(
        State.CLOSED, True, closed=Closed.STALE, detail="the record was changed by somebody else in between"
    ),
    Seen.IN_PROGRESS: AfterAttempt(State.UNKNOWN, False),
    Seen.KEY_REUSED: AfterAttempt(
        State.UNKNOWN, False, case="key_reused", detail="the receiver knows this key with other content"
    ),
    Seen.ACCEPTED: AfterAttempt(State.ACCEPTED, False),
    Seen.STORED_FAILURE: AfterAttempt(State.UNKNOWN, False),
    Seen.UNKNOWN: AfterAttempt(State.UNKNOWN, False),
}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the system of record.

    `absence_counts`: a complete read that began after the last possible send and the receiver's visibility bound.
    `may_resend`: the receiver enforces keys and still remembers this one. `senders_ended`: every sender reported
    the end of its attempt or is proved dead. `bounded`: the contract bounds visibility at all.
    """

    sight: Sight
    state: State
    absence_counts: bool
    may_resend: bool
    senders_ended: bool
    receipt_accepted: bool
    bounded: bool
    tired: bool
    """Looked at so often without an answer that a person should know."""


@dataclass(frozen=True, slots=True)
class AfterLook:
    """What a look leads to. `to` None keeps the state and looks again."""

    to: State | None = None
    resend: bool = False
    closed: Closed | None = None
    case: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row: fields that are None do not matter."""

    sight: Sight
    then: AfterLook
    state: State | None = None
    absence_counts: bool | None = None
    may_resend: bool | None = None
    senders_ended: bool | None = None
    receipt_accepted: bool | None = None
    bounded: bool | None = None
    tired: bool | None = None

    def fits(self, look: Look) -> bool:
        return self.sight is look.sight and all(
            getattr(self, name) in (None, getattr(look, name))
            for name in (
                "state",
                "absence_counts",
                "may_resend",
                "senders_ended",
                "receipt_accepted",
                "bounded",
                "tired",
            )
        )


_KEEP = AfterLook()
_RESEND = AfterLook(to=State.UNKNOWN, resend=True)
_GONE = AfterLook(
    to=State.UNKNOWN,
    case="accepted_then_absent",
    detail="the receiver said accepted, and its own records do not show it",
)
_UNVERIFIABLE = AfterLook(
    case="unverifiable",
    detail="the system of record gives no readable answer, and sending again is barred",
)

AFTER_LOOK: tuple[Row, ...] = (
    Row(Sight.EFFECTIVE, AfterLook(State.SETTLED)),
    Row(
        Sight.DIFFERENT,
        AfterLook(State.SETTLED, case="different", detail="the effect is there with other content"),
    ),
    Row(Sight.MULTIPLE, AfterLook(case="multiple", detail="the effect is there more than once")),
    Row(
        Sight.WITHDRAWN, AfterLook(State.CLOSED, closed=Closed.WITHDRAWN, detail="withdrawn at the receiver")
    ),
    Row(Sight.PENDING, AfterLook(State.ACCEPTED), state=State.UNKNOWN),
    Row(Sight.PENDING, _KEEP, state=State.ACCEPTED),
    Row(Sight.UNREADABLE, _KEEP, state=State.ACCEPTED, tired=False),
    Row(Sight.UNREADABLE, _UNVERIFIABLE, state=State.ACCEPTED, tired=True),
    Row(Sight.UNREADABLE, _RESEND, state=State.UNKNOWN, may_resend=True),
    Row(Sight.UNREADABLE, _KEEP, state=State.UNKNOWN, may_resend=False, tired=False),
    Row(Sight.UNREADABLE, _UNVERIFIABLE, state=State.UNKNOWN, may_resend=False, tired=True),
    Row(Sight.ABSENT, _KEEP, state=State.ACCEPTED, absence_counts=False),
    Row(Sight.ABSENT, _GONE, state=State.ACCEPTED, absence_counts=True),
    Row(Sight.ABSENT, _GONE, state=State.UNKNOWN, absence_counts=True, receipt_accepted=True),
    Row(
        Sight.ABSENT,
        AfterLook(State.PENDING, detail="proved absent"),
        state=State.UNKNOWN,
        absence_counts=True,
        receipt_accepted=False,
        may_resend=True,
    ),
    Row(
        Sight.ABSENT,
        AfterLook(State.PENDING, detail="proved absent"),
        state=State.UNKNOWN,
        absence_counts=True,
        receipt_accepted=False,
        may_resend=False,
        senders_ended=True,
    ),
    Row(
        Sight.ABSENT,
        AfterLook(
            case="sender_alive",
            detail="an earlier sender cannot be proved dead, and the receiver enforces no keys",
        ),
        state=State.UNKNOWN,
        absence_counts=True,
        receipt_accepted=False,
        may_resend=False,
        senders_ended=False,
    ),
    Row(Sight.ABSENT, _RESEND, state=State.UNKNOWN, absence_counts=False, may_resend=True),
    Row(Sight.ABSENT, _KEEP, state=State.UNKNOWN, absence_counts=False, may_resend=False, bounded=True),
    Row(
        Sight.ABSENT,
        AfterLook(
            case="absence_proves_nothing",
            detail="the receiver bounds no time after which an effect must be visible",
        ),
        state=State.UNKNOWN,
        absence_counts=False,
        may_resend=False,
        bounded=False,
    ),
)


def after_look(look: Look) -> AfterLook:
    """The one row that fits. LookupError would mean a hole in the table, which a test excludes by enumeration."""
    return next(row.then for row in AFTER_LOOK if row.fits(look))
