"""Every effect of a kind, listed to the end: what a restored ledger is compared with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from remit.sandbox.worlds import World
from remit.tools.annotations import AnnotateAccount, RemoveNote
from remit.tools.answers import BATCH
from remit.tools.errors import NotSent
from remit.tools.mail import SendCorrection, SendEmail
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit

from .conftest import Bench

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
MORE_THAN_TWO_PAGES = 2 * BATCH + 5


async def credited(world: World, reference: str) -> str:
    """By the older path; the credit's id."""
    order = {"cust": "c-104", "cents": 100, "cur": "USD", "memo": reference}
    reply = await world.ask("payments", "POST", "/legacy/credits", order)
    return str(reply.body["credit_id"])


async def test_a_list_of_many_pages_is_read_to_its_end(bench: Bench) -> None:
    """Each effect once and in order, by whichever tool of the effect one asks."""
    for number in range(MORE_THAN_TWO_PAGES):
        await credited(bench.world, f"r-{number}")
    for tool in (IssueCredit(), IssueCreditLegacy()):
        listed = await tool.enumerate(bench.transport, LONG_AGO)
        assert listed is not None
        assert [trace.reference for trace in listed.traces] == [f"r-{n}" for n in range(MORE_THAN_TWO_PAGES)]


async def test_what_was_withdrawn_or_is_older_is_not_listed(bench: Bench) -> None:
    """A withdrawn credit has no effect, and nobody asked for what came before."""
    await bench.world.control.settings(settle_seconds=60.0)
    gone, _ = await credited(bench.world, "gone"), await credited(bench.world, "there")
    await bench.world.ask("payments", "POST", f"/credits/{gone}/withdraw")
    listed = await IssueCredit().enumerate(bench.transport, LONG_AGO)
    assert listed is not None
    assert [trace.reference for trace in listed.traces] == ["there"]
    later = await IssueCredit().enumerate(bench.transport, datetime.now(UTC) + timedelta(hours=1))
    assert later is not None
    assert later.traces == []


async def test_effects_of_one_receiver_are_told_apart(bench: Bench) -> None:
    """A correction is no message of a campaign, and a note that was taken away is the undo's."""
    for template, values in (
        ("one_time_credit", {"amount": "1"}),
        ("credit_correction", {"correction": "x"}),
    ):
        draft = {"customer": "c-104", "template": template, "values": values, "reference": template}
        assert (await bench.world.ask("mail", "POST", "/messages", draft)).status == 202
    for changes, reference in (({"notes": "A note."}, "added"), ({"remove_note": "added"}, "removed")):
        update = {"changes": changes, "reference": reference}
        assert (await bench.world.ask("accounts", "PATCH", "/accounts/c-104", update)).status == 200
    found = {}
    for tool in (SendEmail(), SendCorrection(), AnnotateAccount(), RemoveNote()):
        listed = await tool.enumerate(bench.transport, LONG_AGO)
        assert listed is not None
        found[tool.contract.effect] = [trace.reference for trace in listed.traces]
    assert found == {
        "email.send": ["one_time_credit"],
        "email.correct": ["credit_correction"],
        "account.annotate": ["added"],
        "account.unannotate": ["removed"],
    }


async def test_a_receiver_without_a_list_says_so(bench: Bench) -> None:
    """None is no empty list."""
    assert await ReverseCredit().enumerate(bench.transport, LONG_AGO) is None


async def test_a_list_that_breaks_off_is_no_list(bench: Bench) -> None:
    """Half of it would look like the whole."""
    for number in range(BATCH + 1):
        await credited(bench.world, f"r-{number}")
    await bench.world.control.add_fault("payments", "error_before", "GET /credits", skip=1)
    with pytest.raises(NotSent):
        await IssueCredit().enumerate(bench.transport, LONG_AGO)
