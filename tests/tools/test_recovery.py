"""The recovery table of DESIGN section 6: complete, free of contradiction, and never more hopeful than the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from remit.tools.recovery import AFTER_ATTEMPT, AFTER_LOOK, AfterLook, Look, after_look
from remit.tools.states import Closed, Seen, Sight, State

LOOKED_AT = (State.UNKNOWN, State.ACCEPTED)
"""The states in which the ledger has the system of record asked."""


def looks() -> Iterator[Look]:
    """Every combination of everything that a look can say."""
    for sight, state in product(Sight, LOOKED_AT):
        for flags in product((False, True), repeat=6):
            yield Look(sight, state, *flags)


def found(
    sight: Sight | None = None, state: State | None = None, **flags: bool
) -> list[tuple[Look, AfterLook]]:
    return [
        (look, after_look(look))
        for look in looks()
        if sight in (None, look.sight)
        and state in (None, look.state)
        and all(getattr(look, name) is value for name, value in flags.items())
    ]


def test_exactly_one_row_fits_whatever_is_seen() -> None:
    """No hole and no contradiction, over all 896 combinations."""
    every = list(looks())
    assert len(every) == 896
    assert [look for look in every if sum(row.fits(look) for row in AFTER_LOOK) != 1] == []


def test_every_row_is_needed() -> None:
    """No row of the table is dead."""
    assert [row for row in AFTER_LOOK if not any(row.fits(look) for look in looks())] == []


def test_nothing_is_sent_again_unless_the_receiver_enforces_the_key() -> None:
    """A resend needs a receiver that enforces the key and still knows it, and an outcome that is not known."""
    resent = [look for look, then in found() if then.resend]
    assert resent
    assert all(look.may_resend and look.state is State.UNKNOWN for look in resent)
    assert all(look.sight in (Sight.ABSENT, Sight.UNREADABLE) for look in resent)


def test_only_absence_that_counts_leads_back_to_pending() -> None:
    """PENDING needs a complete read after the bound, no receipt, and an enforced key or a sender that has ended."""
    back = [look for look, then in found() if then.to is State.PENDING]
    assert back
    for look in back:
        assert look.sight is Sight.ABSENT
        assert look.absence_counts
        assert not look.receipt_accepted
        assert look.may_resend or look.senders_ended


@pytest.mark.parametrize("state", LOOKED_AT)
def test_what_was_accepted_and_is_absent_is_always_a_persons_matter(state: State) -> None:
    """A receipt and its absence contradict each other: a case, never a resend and never "not sent"."""
    for look, then in found(Sight.ABSENT, state, absence_counts=True, receipt_accepted=True):
        assert then.case == "accepted_then_absent", look
        assert then.to is State.UNKNOWN
        assert not then.resend


def test_a_sender_that_may_be_alive_without_keys_is_a_persons_matter() -> None:
    """Where no key protects and the earlier sender is not proved dead, nobody can know."""
    flags = {"absence_counts": True, "may_resend": False, "senders_ended": False, "receipt_accepted": False}
    for _, then in found(Sight.ABSENT, State.UNKNOWN, **flags):
        assert (then.to, then.case) == (None, "sender_alive")


def test_absence_that_proves_nothing_says_so() -> None:
    """At a receiver that bounds nothing and enforces no key, absence is a case from the first look on."""
    flags = {"absence_counts": False, "may_resend": False, "bounded": False}
    for _, then in found(Sight.ABSENT, State.UNKNOWN, **flags):
        assert (then.to, then.case) == (None, "absence_proves_nothing")


def test_what_cannot_be_read_moves_nothing_and_is_told_in_the_end() -> None:
    """An unreadable answer is no knowledge: it settles nothing, closes nothing, and after a while a person knows."""
    for look, then in found(Sight.UNREADABLE):
        assert then.to in (None, State.UNKNOWN)
        if look.tired and not then.resend:
            assert then.case == "unverifiable", look


def test_what_is_seen_is_believed_whatever_else_is_known() -> None:
    """Found is settled; found otherwise is settled and a case; found twice is a case; withdrawn is closed."""
    assert {then.to for _, then in found(Sight.EFFECTIVE)} == {State.SETTLED}
    assert {(then.to, then.case) for _, then in found(Sight.DIFFERENT)} == {(State.SETTLED, "different")}
    assert {(then.to, then.case) for _, then in found(Sight.MULTIPLE)} == {(None, "multiple")}
    assert {(then.to, then.closed) for _, then in found(Sight.WITHDRAWN)} == {
        (State.CLOSED, Closed.WITHDRAWN)
    }
    assert {then.to for _, then in found(Sight.PENDING, State.UNKNOWN)} == {State.ACCEPTED}


def test_every_case_says_what_it_is_about() -> None:
    """A person reads the detail of a case, so none is without one."""
    assert [row for row in AFTER_LOOK if row.then.case is not None and not row.then.detail] == []


def test_every_end_of_an_attempt_has_its_row() -> None:
    """Whatever a sender can see leads to one next step."""
    assert set(AFTER_ATTEMPT) == set(Seen)


def test_only_what_proves_no_effect_leads_back_or_closes() -> None:
    """PENDING and CLOSED need proof that nothing happened; whatever does not prove it is UNKNOWN or ACCEPTED."""
    for seen, then in AFTER_ATTEMPT.items():
        assert then.no_effect == (then.to in (State.PENDING, State.CLOSED)), seen
        assert (then.closed is not None) == (then.to is State.CLOSED), seen
    assert AFTER_ATTEMPT[Seen.UNKNOWN].to is State.UNKNOWN


def test_a_closed_door_keeps_the_operation_back() -> None:
    """Unreachable, overloaded, down or refusing the credential: a gate with a time, never a burnt customer."""
    gates = {seen: then.gate for seen, then in AFTER_ATTEMPT.items() if then.gate is not None}
    assert gates == {
        Seen.NOT_WRITTEN: "backoff",
        Seen.RATE_LIMITED: "backoff",
        Seen.CREDENTIAL: "backoff",
        Seen.RECEIVER_DOWN: "backoff",
    }
    assert all(AFTER_ATTEMPT[seen].gate_seconds > 0 and AFTER_ATTEMPT[seen].detail for seen in gates)
