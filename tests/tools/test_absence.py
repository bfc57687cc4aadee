"""When absence counts and when a key is relied on: what one look is allowed to say (I1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from remit.tools.contracts import Contract, Sighting
from remit.tools.ports import Due
from remit.tools.recovery import after_look
from remit.tools.runner import _look, _settlement
from remit.tools.states import Sight, State
from tests.fixtures import quick_catalogue

BOUND, TIMEOUT, RETENTION = 10.0, 2.0, 100.0
LAST = datetime(2026, 6, 12, tzinfo=UTC)
KEYED = quick_catalogue().write("issue_credit").contract
BOUNDED = KEYED.model_copy(update={"visible_within": BOUND, "timeout": TIMEOUT, "key_retention": RETENTION})


def due(after: float, *, ended: bool = True, company: float = 0.0) -> Due:
    """What is asked `after` seconds after the last possible send, `company` seconds of its time after the first."""
    return Due(
        operation_id=1,
        version=3,
        key="k",
        tool="issue_credit",
        subject="customer:c-104",
        intent={},
        state=State.UNKNOWN,
        attempt=1,
        checks=0,
        resend=False,
        last_send=LAST,
        senders_ended=ended,
        first_sent=LAST,
        receipt_accepted=False,
        key_answered=False,
        now=LAST + timedelta(seconds=after),
        company_now=LAST + timedelta(seconds=company),
    )


def absent(*, complete: bool = True) -> Sighting:
    return Sighting("k", Sight.ABSENT, "test", "", complete=complete)


@pytest.mark.parametrize(
    ("after", "complete", "bound", "counts"),
    [
        (BOUND - 0.001, True, BOUND, False),
        (BOUND, True, BOUND, False),
        (BOUND + 0.001, True, BOUND, True),
        (BOUND + 0.001, False, BOUND, False),
        (-1.0, True, 0.0, False),
        (1_000_000.0, True, None, False),
        (1_000_000.0, False, None, False),
    ],
)
def test_absence_counts_only_after_the_bound_and_from_a_complete_read(
    after: float, complete: bool, bound: float | None, counts: bool
) -> None:
    """Not one millisecond before, not from a part of the records, and never where nothing is bounded."""
    contract = BOUNDED.model_copy(update={"visible_within": bound})
    assert _look(contract, due(after), absent(complete=complete)).absence_counts == counts


def test_the_time_that_counts_is_from_before_the_read() -> None:
    """A read that began before the bound proves nothing, however late its answer comes: its beginning is kept."""
    item = due(BOUND - 0.001)
    settlement = _settlement(item, absent(), after_look(_look(BOUNDED, item, absent())))
    assert settlement.read_began_at == item.now
    assert settlement.to is not State.PENDING


@pytest.mark.parametrize(
    ("company", "contract", "relied_on"),
    [
        (RETENTION - TIMEOUT - 0.001, BOUNDED, True),
        (RETENTION - TIMEOUT, BOUNDED, False),
        (RETENTION * 10, BOUNDED, False),
        (0.0, BOUNDED.model_copy(update={"receiver_enforces_key": False}), False),
        (0.0, BOUNDED.model_copy(update={"key_retention": None}), False),
    ],
)
def test_a_key_is_relied_on_only_while_the_receiver_surely_remembers_it(
    company: float, contract: Contract, relied_on: bool
) -> None:
    """A resend has to arrive before the key is forgotten, its own timeout included."""
    look = _look(contract, due(0.0, company=company), absent())
    assert look.may_resend == relied_on
    assert after_look(look).resend == relied_on


def test_a_key_that_is_too_old_leaves_only_proof() -> None:
    """Past its memory the receiver is one without keys: resent never, sent anew only when every sender has ended."""
    for ended, after in product((True, False), (0.0, BOUND + 1)):
        then = after_look(_look(BOUNDED, due(after, ended=ended, company=RETENTION), absent()))
        assert not then.resend
        assert (then.to is State.PENDING) == (ended and after > BOUND)
