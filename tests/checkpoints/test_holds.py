"""Delay windows: who may have a message leave when, and that nobody can be overtaken by a lie (I4, I6)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove
from remit.tools.ports import Lease
from tests.fixtures import AGENT, ASK_FINANCE, HOUR, NO_OBLIGATIONS, Bench, Obligations, Tokens, mandate_over

OWN = "customer:c-104"
MANY = [f"customer:c-{number}" for number in range(101, 121)]
WINDOW: Obligations = {**NO_OBLIGATIONS, "hold_seconds": HOUR, "release_by": ["finance_lead"]}


async def held(
    bench: Bench, tokens: Tokens, subjects: list[str] | None = None, **changes: Any
) -> tuple[Lease, list[int]]:
    """Messages whose window of an hour has begun."""
    lease = await bench.run_over(tokens, subjects or [OWN], changes.pop("mandate", None))
    changes = {"obligations": WINDOW, **changes}
    ids = await bench.propose(lease, "notify", subjects or [OWN], **changes)
    await bench.database.rows("start_holds", run=lease.run_id)
    return lease, ids


async def leaves(bench: Bench, id_: int) -> datetime:
    moment: datetime = (await bench.operation(id_))["hold_until"]
    return moment


async def released(bench: Bench, secret: str, ids: list[int]) -> list[str]:
    return [row["outcome"] for row in await bench.people.release_holds(secret, ids)]


async def moved(bench: Bench, secret: str, id_: int, **how: Any) -> tuple[str, datetime | None]:
    (row,) = await bench.people.reschedule_holds(secret, [id_], **how)
    return row["outcome"], row["leaves"]


async def test_whom_policy_names_sends_now_what_waits(bench: Bench, tokens: Tokens) -> None:
    """A release ends the window at once, in company time, and the message is sent once."""
    lease, ids = await held(bench, tokens)
    assert (await bench.send(lease)).attempted == []
    assert await released(bench, tokens.finance_lead, ids) == ["released"]
    assert await bench.obstacles(ids) == ["ready"]
    await bench.settled(lease, ids)
    assert len(await bench.database.rows("attempts", id=ids[0])) == 1


async def test_nobody_but_whom_policy_names_outside_the_chain_shortens_a_window(
    bench: Bench, tokens: Tokens
) -> None:
    """Another role, the grantor, the agent's name and whoever gave one of them a token are refused; nothing moves."""
    _, ids = await held(bench, tokens)
    before = await leaves(bench, ids[0])
    for person, role, code in (
        ("auditor", "auditor", "wrong_role"),
        ("support-manager", "finance_lead", "in_the_chain"),
        (AGENT, "finance_lead", "in_the_chain"),
        ("administrator", "finance_lead", "in_the_chain"),
    ):
        _, secret, _ = await bench.people.mint(tokens.administrator, person, role, HOUR)
        assert await released(bench, secret, ids) == [code], person
        assert (await moved(bench, secret, ids[0], by=-60.0))[0] == code, person
    assert await leaves(bench, ids[0]) == before
    assert await bench.obstacles(ids) == ["hold"]


async def test_where_policy_names_nobody_nobody_shortens_a_window(bench: Bench, tokens: Tokens) -> None:
    """No role is enough where policy's data lists none, nor where a verdict says nothing about it."""
    lease, ids = await held(bench, tokens, obligations={**WINDOW, "release_by": []})
    older = {name: value for name, value in WINDOW.items() if name != "release_by"}
    ids += await bench.propose(lease, "notify", ["customer:c-205"], obligations=older)
    await bench.database.rows("start_holds", run=lease.run_id)
    assert await released(bench, tokens.finance_lead, ids) == ["wrong_role", "wrong_role"]
    assert await bench.obstacles(ids) == ["hold", "hold"]


async def test_later_is_open_to_everybody_and_earlier_is_a_release(bench: Bench, tokens: Tokens) -> None:
    """By a time or to a moment; what is earlier than it stands needs whom policy names, also after it was put off."""
    _, (id_,) = await held(bench, tokens)
    first = await leaves(bench, id_)
    hour = timedelta(hours=1)
    assert await moved(bench, tokens.support_manager, id_, by=HOUR) == ("rescheduled", first + hour)
    assert await moved(bench, tokens.support_manager, id_, to=first + 3 * hour) == (
        "rescheduled",
        first + 3 * hour,
    )
    assert (await moved(bench, tokens.support_manager, id_, by=-60.0))[0] == "in_the_chain"
    assert (await moved(bench, tokens.support_manager, id_, to=first))[0] == "in_the_chain"
    assert await leaves(bench, id_) == first + 3 * hour
    assert await moved(bench, tokens.finance_lead, id_, to=first) == ("rescheduled", first)
    assert await leaves(bench, id_) == first


async def test_a_window_is_not_moved_into_the_past(bench: Bench, tokens: Tokens) -> None:
    """What would be over at once is refused also to whom policy names: that is a release, and it is said so."""
    _, (id_,) = await held(bench, tokens)
    before = await leaves(bench, id_)
    now = await bench.ledger.company_now()
    for how in ({"to": now - timedelta(seconds=1)}, {"by": -2.0 * HOUR}):
        assert (await moved(bench, tokens.finance_lead, id_, **how))[0] == "past"
    assert await leaves(bench, id_) == before


async def test_a_window_never_reaches_beyond_the_mandates_end(bench: Bench, tokens: Tokens) -> None:
    """Refused with the moment that stands against it, by any way of saying it; one second before is possible."""
    end = int((await bench.ledger.company_now()).timestamp()) + 5 * HOUR
    mandate = mandate_over(valid_until=end)
    _, (id_,) = await held(bench, tokens, mandate=mandate)
    over = datetime.fromtimestamp(end).astimezone()
    for how in ({"to": over}, {"by": 4.5 * HOUR}, {"to": over + timedelta(days=9_000)}):
        assert await moved(bench, tokens.support_manager, id_, **how) == ("beyond_mandate", over)
    before = over - timedelta(seconds=1)
    assert await moved(bench, tokens.support_manager, id_, to=before) == ("rescheduled", before)


async def test_a_window_never_reaches_beyond_its_approval(bench: Bench, tokens: Tokens) -> None:
    """Refused while it is not approved as well: then the approval is counted as if it were given now."""
    asks = {**ASK_FINANCE, "hold_seconds": 60, "release_by": ["finance_lead"], "execute_within": 2 * HOUR}
    lease, (id_,) = await held(bench, tokens, verdict="needs_approval", obligations=asks)
    now = await bench.ledger.company_now()
    late = now + timedelta(hours=2, minutes=1)
    assert (await moved(bench, tokens.support_manager, id_, to=late))[0] == "beyond_approval"
    (asked,) = await bench.database.rows(
        "ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef"
    )
    (approval,) = await bench.database.rows("approvals", which=asked["id"])
    await bench.people.decide(
        tokens.finance_lead, approval["id"], approval["set_hash"], grant=True, rationale=""
    )
    await bench.database.rows("start_holds", run=lease.run_id)
    (granted,) = await bench.sql("SELECT execute_by FROM remit.approval_items")
    until = granted["execute_by"]
    assert await moved(bench, tokens.support_manager, id_, to=until) == ("beyond_approval", until)
    in_time = until - timedelta(seconds=1)
    assert (await moved(bench, tokens.support_manager, id_, to=in_time))[0] == "rescheduled"
    await bench.database.rows("advance_clock", seconds=2 * HOUR)
    assert await bench.obstacles([id_]) == ["approval"]


async def waiting_for_its_credit(bench: Bench, tokens: Tokens) -> tuple[Lease, int, int]:
    lease = await bench.run_over(tokens, [OWN])
    (credit,) = await bench.propose(lease, "credit", [OWN])
    (mail,) = await bench.propose(lease, "notify", [OWN], requires=None, obligations=WINDOW)
    return lease, credit, mail


async def test_a_window_that_has_not_begun_is_put_off_to_a_moment_and_never_shortened(
    bench: Bench, tokens: Tokens
) -> None:
    """It ends no earlier than that moment, and never before the time that policy demands has passed."""
    lease, credit, mail = await waiting_for_its_credit(bench, tokens)
    now = await bench.ledger.company_now()
    soon, late = now + timedelta(minutes=1), now + timedelta(hours=9)
    assert (await moved(bench, tokens.support_manager, mail, by=HOUR))[0] == "not_begun"
    for moment in (late, soon):
        (row,) = await bench.people.reschedule_holds(tokens.support_manager, [mail], to=moment)
        expected = ("rescheduled", "earliest") if moment is late else ("in_the_chain", None)
        assert (row["outcome"], row["detail"]) == expected
    assert (await moved(bench, tokens.finance_lead, mail, to=soon))[0] == "rescheduled"
    await bench.settled(lease, [credit])
    await bench.database.rows("start_holds", run=lease.run_id)
    assert await leaves(bench, mail) >= now + timedelta(hours=1)
    assert (await bench.send(lease)).attempted == []


async def test_a_window_that_was_put_off_before_it_began_ends_then(bench: Bench, tokens: Tokens) -> None:
    """The later of the two counts: policy's time after its credit, or the moment that a person gave."""
    lease, credit, mail = await waiting_for_its_credit(bench, tokens)
    late = await bench.ledger.company_now() + timedelta(hours=9)
    await bench.people.reschedule_holds(tokens.support_manager, [mail], to=late)
    (listed,) = [row for row in await bench.database.rows("holds") if row["id"] == mail]
    assert (listed["hold_until"], listed["not_before"]) == (None, late)
    await bench.settled(lease, [credit])
    await bench.database.rows("start_holds", run=lease.run_id)
    assert await leaves(bench, mail) == late


async def test_what_was_released_early_leaves_with_its_credit_and_not_before(
    bench: Bench, tokens: Tokens
) -> None:
    """I12: a release ends the window and nothing else; the answer names what still stands in the way."""
    lease, credit, mail = await waiting_for_its_credit(bench, tokens)
    (row,) = await bench.people.release_holds(tokens.finance_lead, [mail])
    assert (row["outcome"], row["detail"]) == ("released", "requirement")
    assert (await bench.send(lease)).attempted == [credit]
    await bench.settled(lease, [credit, mail])
    sent, said = [(await bench.database.rows("attempts", id=id_))[0]["claimed_at"] for id_ in (credit, mail)]
    assert sent < said


@pytest.mark.parametrize("what", ["no_window", "stop", "mandate", "closed"])
async def test_what_has_no_window_to_change_says_why(bench: Bench, tokens: Tokens, what: str) -> None:
    """No hold was demanded, an order stands, the mandate is gone, or it is closed: nobody is told that it leaves."""
    obligations = NO_OBLIGATIONS if what == "no_window" else WINDOW
    _, ids = await held(bench, tokens, obligations=obligations)
    if what == "stop":
        await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    elif what == "mandate":
        await bench.people.revoke_mandate(tokens.support_manager, mandate_over().hash)
    elif what == "closed":
        corrected = mandate_over(ask_above=AskAbove(count=5))
        await bench.people.grant(tokens.support_manager, corrected.hash, corrected.document(), [OWN])
    before = (await bench.operation(ids[0]))["version"]
    assert await released(bench, tokens.finance_lead, ids) == [what]
    assert (await moved(bench, tokens.support_manager, ids[0], by=60.0))[0] == what
    assert (await bench.operation(ids[0]))["version"] == before


async def test_a_freeze_keeps_what_was_released_until_it_is_lifted(bench: Bench, tokens: Tokens) -> None:
    """Windows may be moved under a freeze, and the answer to a release names what still stands over it."""
    lease, ids = await held(bench, tokens)
    order = await bench.people.freeze(tokens.finance_lead, "all", "", "an audit")
    assert (await moved(bench, tokens.support_manager, ids[0], by=60.0))[0] == "rescheduled"
    (row,) = await bench.people.release_holds(tokens.finance_lead, ids)
    assert (row["outcome"], row["detail"]) == ("released", "freeze")
    assert (await bench.send(lease)).attempted == []
    await bench.people.lift(tokens.finance_lead, order["id"])
    assert (await bench.send(lease)).attempted == ids


async def test_every_try_is_kept_with_whose_word_it_was(bench: Bench, tokens: Tokens) -> None:
    """I9: who, with which token, what for, what was planned and what came of it, refused tries too, in the journal."""
    _, (id_,) = await held(bench, tokens)
    planned = await leaves(bench, id_)
    await bench.people.release_holds(tokens.support_manager, [id_])
    await bench.people.reschedule_holds(tokens.support_manager, [id_], by=60.0)
    await bench.people.cancel_holds(tokens.finance_lead, [id_])
    rows = await bench.database.rows("hold_changes", id=id_)
    assert [(row["person"], row["verb"], row["outcome"]) for row in rows] == [
        ("support-manager", "release", "in_the_chain"),
        ("support-manager", "reschedule", "rescheduled"),
        ("finance-lead", "cancel", "kept_back"),
    ]
    assert [row["planned"] for row in rows] == [planned, planned, planned + timedelta(seconds=60)]
    journal = await bench.sql(
        "SELECT data FROM remit.journal WHERE kind = 'hold_changes.added' AND operation_id = %s ORDER BY id",
        id_,
    )
    assert [row["data"]["token_id"] for row in journal] == [row["token_id"] for row in rows]


async def test_a_token_that_speaks_for_nobody_changes_no_window(bench: Bench, tokens: Tokens) -> None:
    """A revoked token releases, moves and keeps back nothing; and a window is moved in exactly one way at once."""
    _, ids = await held(bench, tokens)
    id_, secret, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    await bench.people.revoke_token(tokens.administrator, id_)
    for attempt in (
        bench.people.release_holds(secret, ids),
        bench.people.reschedule_holds(secret, ids, by=60.0),
        bench.people.cancel_holds(secret, ids),
    ):
        with pytest.raises(Refused, match="revoked"):
            await attempt
    now = await bench.ledger.company_now()
    for how in ({}, {"to": now, "by": 1.0}):
        with pytest.raises(Refused, match="--to and --by"):
            await bench.people.reschedule_holds(tokens.support_manager, ids, **how)  # type: ignore[arg-type]
    assert await bench.obstacles(ids) == ["hold"]
