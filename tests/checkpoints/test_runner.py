"""Sending and verifying against the company over HTTP, with every fault that its receivers know (I1, I4, I5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import check, dump
from remit.sandbox.worlds import World
from remit.tools.actions import Request
from remit.tools.annotations import AnnotateAccount
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Sighting, Snapshot, Sought
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.ports import FaultPoint, Lease, Receipt
from remit.tools.receipts import kept
from remit.tools.recovery import after_look
from remit.tools.runner import Runner, _look, _settlement
from remit.tools.states import Seen, Sight, State
from remit.tools.transport import Response, Transport
from tests.fixtures import Bench, Tokens, eventually, limited, mint_tokens, opened_bench, quick_catalogue

OWN = "customer:c-104"
CREDIT = "POST /credits"
LEGACY = "POST /legacy/credits"


def credits_of(bench: Bench, customer: str = "c-104") -> list[dict[str, Any]]:
    """The company's own record of one customer's credits."""
    return [credit for credit in dump(bench.home)["credits"] if credit["customer"] == customer]


async def one_credit(
    bench: Bench, tokens: Tokens, tool: str = "issue_credit", **changes: Any
) -> tuple[Lease, int]:
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN], tool=tool, **changes)
    return lease, id_


async def attempts(bench: Bench, id_: int) -> list[dict[str, Any]]:
    return await bench.database.rows("attempts", id=id_)


async def until_case(bench: Bench, lease: Lease, code: str) -> None:
    async def opened() -> bool:
        return code in await bench.cases()

    await bench.carry_on(lease, opened)


async def test_a_batch_of_24_credits_settles(bench: Bench, tokens: Tokens, affected: list[str]) -> None:
    """One call per credit, one credit per customer, each settled with evidence, and the company's own records agree."""
    lease = await bench.run_over(tokens, affected)
    ids = await bench.propose(lease, "credit", affected)
    sent = await bench.send(lease)
    assert sorted(sent.attempted) == ids
    await bench.settled(lease, ids)
    assert bench.transport.called.count(CREDIT) == 24
    assert check(bench.home, "outage-0611") == []
    seen = await bench.sql("SELECT DISTINCT operation_id FROM remit.evidence WHERE sight = 'effective'")
    assert len(seen) == 24


@pytest.mark.parametrize(
    ("fault", "seconds"), [("reply_lost", None), ("error_after", None), ("delay_after", 1.3)]
)
async def test_an_effect_whose_answer_was_lost_is_settled_by_asking(
    bench: Bench, tokens: Tokens, world: World, fault: str, seconds: float | None
) -> None:
    """F39, F40: a lost reply, a 500 or a late answer after the effect is UNKNOWN, asked about, and not sent again."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", fault, CREDIT, seconds=seconds)
    await bench.send(lease)
    row = await bench.operation(id_)
    assert (row["state"], row["fact"], row["obstacle"]) == ("UNKNOWN", "UNKNOWN", "verification")
    await bench.settled(lease, [id_])
    assert len(credits_of(bench)) == 1
    assert bench.transport.called.count(CREDIT) == 1


@pytest.mark.parametrize("fault", ["error_before", "html"])
async def test_what_had_no_effect_is_sent_again_under_the_same_key(
    bench: Bench, tokens: Tokens, world: World, fault: str
) -> None:
    """I1: where the key is enforced, an unknown outcome may be resent at once, byte for byte and under its wire key."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", fault, CREDIT)
    await bench.settled(lease, [id_])
    assert len({attempt["wire_key"] for attempt in await attempts(bench, id_)}) == 1
    assert len(await attempts(bench, id_)) == 2
    assert len(credits_of(bench)) == 1


async def test_an_effect_that_shows_late_is_one_effect_where_the_key_is_enforced(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """I1: lost, not found, sent again, and the receiver answers the second with the first: one credit."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "reply_lost", CREDIT)
    await world.control.add_fault("payments", "late_search", CREDIT, seconds=0.8)
    await bench.settled(lease, [id_])
    assert bench.transport.called.count(CREDIT) >= 2
    assert len(credits_of(bench)) == 1


async def test_the_fact_stays_unknown_while_a_resend_is_refused(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """A 429 to the resend proves nothing about the first attempt: back to UNKNOWN, never to PENDING."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "reply_lost", CREDIT)
    await world.control.add_fault("payments", "late_search", CREDIT, seconds=1.0)
    await bench.send(lease)
    await bench.sweep()
    assert (await bench.operation(id_))["resend"]
    await world.control.add_fault("payments", "rate_limit", CREDIT, seconds=1)
    await bench.send(lease)
    row = await bench.operation(id_)
    assert (row["state"], row["fact"], row["doubt"]) == ("UNKNOWN", "UNKNOWN", True)
    assert [attempt["seen"] for attempt in await attempts(bench, id_)] == ["unknown", "rate_limited"]
    await bench.settled(lease, [id_])
    assert len(credits_of(bench)) == 1


async def test_without_keys_nothing_is_resent_before_absence_is_proved(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """I1: on the older path a lost reply is only asked about, even while the search does not show the credit yet."""
    lease, id_ = await one_credit(bench, tokens, "issue_credit_legacy")
    await world.control.add_fault("payments", "reply_lost", LEGACY)
    await world.control.add_fault("payments", "late_search", LEGACY, seconds=0.25)
    await bench.settled(lease, [id_])
    assert bench.transport.called.count(LEGACY) == 1
    assert len(credits_of(bench)) == 1
    sights = await bench.sql("SELECT sight FROM remit.evidence WHERE operation_id = %s ORDER BY id", id_)
    assert sights[0]["sight"] == "absent"


async def test_without_keys_a_proved_absence_is_sent_again(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """F46: the older path tries again only after the bound, with the earlier sender's end on record."""
    lease, id_ = await one_credit(bench, tokens, "issue_credit_legacy")
    await world.control.add_fault("payments", "error_before", LEGACY)
    await bench.settled(lease, [id_])
    first, second = await attempts(bench, id_)
    bound = bench.catalogue.write("issue_credit_legacy").contract.visible_within
    assert (second["claimed_at"] - first["ended_at"]).total_seconds() > (bound or 0.0)
    assert first["no_effect"]
    assert len(credits_of(bench)) == 1


async def test_a_connection_that_is_refused_was_not_sent(
    ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """Nothing was written: PENDING before a closed door, its share of the limit returned, and it goes on by itself."""

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.AFTER_CLAIM and not await world.control.faults():
            await world.control.add_fault("payments", "refuse", seconds=0.5, times=None)

    async with opened_bench(
        ledger_database.app_url, tmp_path, world.urls, world.credentials, reach=reach
    ) as bench:
        lease, id_ = await one_credit(bench, await mint_tokens(bench.people), obligations=limited(count=1))
        await bench.send(lease)
        row = await bench.operation(id_)
        assert (row["state"], row["fact"], row["obstacle"]) == ("PENDING", "NOT_SENT", "receiver")
        assert await bench.sql("SELECT count FROM remit.limit_usage") == [{"count": 0}]
        await bench.settled(lease, [id_])
        assert [attempt["seen"] for attempt in await attempts(bench, id_)] == ["not_written", "accepted"]


async def test_a_receiver_that_cannot_be_read_is_not_written_to(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """Without a fresh snapshot nothing is claimed; the batch says which receiver gave no answer."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "error_before", "POST /credits/search")
    sent = await bench.send(lease)
    assert list(sent.receiver_down) == [id_]
    assert await attempts(bench, id_) == []


async def test_an_expired_credential_burns_no_customer(bench: Bench, tokens: Tokens, world: World) -> None:
    """401 is the receiver's gate: however often it is asked again, no operation's budget is spent."""
    lease, id_ = await one_credit(bench, tokens)
    most = bench.catalogue.write("issue_credit").contract.budget.attempts
    await world.control.add_fault("payments", "expired_credential", CREDIT, times=most + 1)
    for _ in range(most + 1):
        await bench.send(lease)
        row = await bench.operation(id_)
        assert (row["state"], row["obstacle"]) == ("PENDING", "receiver")
        await bench.database.rows("clear_gates", run=lease.run_id, token=lease.token)
    await bench.settled(lease, [id_])


async def test_retry_after_is_honoured(bench: Bench, tokens: Tokens, world: World) -> None:
    """A 429 keeps the operation back for as long as the receiver asked, in real time."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "rate_limit", CREDIT, seconds=90)
    await bench.send(lease)
    (gate,) = await bench.sql(
        "SELECT kind, extract(epoch FROM until - clock_timestamp()) AS left FROM remit.gates"
    )
    assert gate["kind"] == "backoff"
    assert 85 < gate["left"] < 140
    await bench.database.rows("advance_clock", seconds=3_600)
    assert (await bench.operation(id_))["obstacle"] == "backoff"


async def test_backoff_doubles_with_every_try(bench: Bench, tokens: Tokens, world: World) -> None:
    """Each further "not sent" waits about twice as long, never below the doubled time and never a minute and a half."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "rate_limit", CREDIT, seconds=1, times=5)
    waits = []
    for _ in range(5):
        await bench.send(lease)
        (gate,) = await bench.sql(
            "SELECT extract(epoch FROM until - clock_timestamp()) AS left FROM remit.gates"
        )
        waits.append(float(gate["left"]))
        await bench.database.rows("clear_gates", run=lease.run_id, token=lease.token)
    assert len(await attempts(bench, id_)) == 5
    assert all(2**n - 0.5 < wait < 2**n * 1.5 for n, wait in enumerate(waits))


async def test_a_stored_failure_and_absence_together_bring_a_new_wire_key(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """A receiver that keeps its 500 under a key says no more under it; with absence proved, the next works (F42)."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "error_before", CREDIT, stored=True)
    await bench.settled(lease, [id_])
    tried = await attempts(bench, id_)
    assert [attempt["seen"] for attempt in tried] == ["unknown", "stored_failure", "accepted"]
    keys = [attempt["wire_key"].rpartition("#")[2] for attempt in tried]
    assert keys == ["1", "1", "2"]
    bound = bench.catalogue.write("issue_credit").contract.visible_within
    assert (tried[2]["claimed_at"] - tried[1]["ended_at"]).total_seconds() > (bound or 0.0)
    assert (len(credits_of(bench)), await bench.cases()) == (1, [])


async def test_a_stored_failure_after_the_effect_brings_no_second_effect(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """The 500 was kept, the credit was given, and it shows late: the failure alone raises no generation (I1)."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "error_after", CREDIT, stored=True)
    await world.control.add_fault("payments", "late_search", CREDIT, seconds=0.3)
    await bench.settled(lease, [id_])
    assert {attempt["wire_key"].rpartition("#")[2] for attempt in await attempts(bench, id_)} == {"1"}
    assert (await bench.operation(id_))["generation"] == 1
    assert len(credits_of(bench)) == 1


async def test_an_acceptance_without_effect_is_a_case_and_stays_unknown(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """A receiver that says yes and does nothing: nobody sends again, a person is asked, the fact is UNKNOWN."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "lying_ok", CREDIT)
    await until_case(bench, lease, "accepted_then_absent")
    row = await bench.operation(id_)
    assert (row["state"], row["fact"], row["obstacle"]) == ("UNKNOWN", "UNKNOWN", "case")
    for _ in range(3):
        await bench.send(lease)
        await bench.sweep()
    assert bench.transport.called.count(CREDIT) == 1


async def test_evidence_closes_a_case_that_only_asked_what_happened(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """An accepted credit that a search shows only much later: once it is shown, no case claims that it is not there."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "late_search", CREDIT, seconds=3_600)
    await until_case(bench, lease, "accepted_then_absent")
    await world.control.advance(3_601)
    await bench.sql("SELECT remit.advance_clock(3601)")

    async def settled() -> bool:
        return await bench.states([id_]) == ["SETTLED"]

    await bench.carry_on(lease, settled)
    (case,) = await bench.sql("SELECT closed_by, resolution FROM remit.cases")
    assert case == {
        "closed_by": "evidence",
        "resolution": "payments: credits by reference shows it now: effective",
    }
    assert await bench.cases() == []


async def test_a_key_that_was_used_for_something_else_is_a_case(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """422 for a reused key is a conflict that a person sees; nothing is sent under another key instead (F42)."""
    lease, id_ = await one_credit(bench, tokens)
    key = (await bench.operation(id_))["key"]
    other = {"customer": "c-205", "amount_minor": 5, "currency": "USD", "reason": "outage-0611"}
    await world.ask("payments", "POST", "/credits", other, key=f"{bench.ledger.installation}:{key}#1")
    await bench.send(lease)
    row = await bench.operation(id_)
    assert (row["state"], row["obstacle"], await bench.cases()) == ("UNKNOWN", "case", ["key_reused"])
    await bench.sweep()
    await bench.send(lease)
    assert bench.transport.called.count(CREDIT) == 1
    assert credits_of(bench) == []


async def test_another_amount_under_our_reference_is_settled_and_a_case(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """Evidence that differs from what was meant is an effect all the same: SETTLED, with a case beside it."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "error_before", CREDIT)
    await bench.send(lease)
    reference = f"{bench.ledger.installation}:{(await bench.operation(id_))['key']}"
    await world.ask(
        "payments", "POST", "/legacy/credits", {"cust": "c-104", "cents": 5, "cur": "USD", "memo": reference}
    )
    await until_case(bench, lease, "different")
    assert await bench.states([id_]) == ["SETTLED"]


async def test_two_effects_under_our_reference_are_a_case_and_no_fact(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """What shows more than once is for a person: the state stays, and it is looked at without a second case."""
    lease, id_ = await one_credit(bench, tokens)
    reference = f"{bench.ledger.installation}:{(await bench.operation(id_))['key']}"
    await world.control.add_fault("payments", "reply_lost", CREDIT)
    await bench.send(lease)
    await world.ask(
        "payments",
        "POST",
        "/legacy/credits",
        {"cust": "c-104", "cents": 1000, "cur": "USD", "memo": reference},
    )
    await until_case(bench, lease, "multiple")
    await bench.sql("SELECT remit.tidy()")
    await bench.sweep()
    assert await bench.states([id_]) == ["UNKNOWN"]
    assert await bench.cases() == ["multiple"]


async def test_a_premise_that_changed_is_stale_and_not_claimed(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """F16: somebody else credited the customer meanwhile: the operation is reported stale, and no call is made."""
    lease, id_ = await one_credit(bench, tokens)
    other = {"customer": "c-104", "amount_minor": 1000, "currency": "USD", "reason": "outage-0611"}
    await world.ask("payments", "POST", "/credits", other, key="by-hand")
    sent = await bench.send(lease)
    assert (sent.stale, sent.attempted) == ([id_], [])
    assert CREDIT not in bench.transport.called


async def with_reach(
    urls: Urls,
    world: World,
    home: Path,
    reach: Callable[[FaultPoint], Awaitable[None]],
    test: Callable[[Bench], Awaitable[None]],
) -> None:
    async with opened_bench(urls.app_url, home, world.urls, world.credentials, reach=reach) as bench:
        await test(bench)


async def test_a_change_by_somebody_else_in_between_is_stale(
    ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """I8: the account was edited between snapshot and send: 412, CLOSED(stale), and the edit stands."""

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.AFTER_CLAIM:
            await world.control.edit("c-104", {"notes": "by hand"})

    async def test(bench: Bench) -> None:
        lease = await bench.run_over(await mint_tokens(bench.people), [OWN])
        (id_,) = await bench.propose(lease, "annotate", [OWN])
        await bench.send(lease)
        row = await bench.operation(id_)
        assert (row["state"], row["closed"], row["generation"]) == ("CLOSED", "stale", 1)
        (account,) = [a for a in dump(bench.home)["accounts"] if a["id"] == "c-104"]
        assert [note["text"] for note in account["notes"]] == ["by hand"]

    await with_reach(ledger_database, world, tmp_path, reach, test)


async def test_a_stop_between_two_groups_keeps_the_rest_back(
    ledger_database: Urls, world: World, tmp_path: Path, affected: list[str]
) -> None:
    """I4: the first group was sent; the order is seen before the second; what was claimed goes back, cancelled."""
    stops: list[Callable[[], Awaitable[object]]] = []

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.AFTER_SEND and stops:
            await stops.pop()()

    async def test(bench: Bench) -> None:
        tokens = await mint_tokens(bench.people)
        lease = await bench.run_over(tokens, affected)
        ids = await bench.propose(lease, "credit", affected)
        stops.append(lambda: bench.people.stop(tokens.support_manager, "all", "", "in the middle"))
        await bench.send(lease)
        group = bench.catalogue.write("issue_credit").contract.concurrency
        assert bench.transport.called.count(CREDIT) == group == len(dump(bench.home)["credits"])
        assert sorted(await bench.states(ids)) == ["ACCEPTED"] * group + ["PENDING"] * (24 - group)
        await bench.sweep()
        rows = [await bench.operation(id_) for id_ in ids]
        assert {row["closed"] for row in rows if row["state"] == "CLOSED"} == {"cancelled"}
        assert all(row["fact"] != "UNKNOWN" for row in rows)

    await with_reach(ledger_database, world, tmp_path, reach, test)


async def test_a_worker_that_is_asked_to_end_gives_back_what_it_claimed_of_every_tool(
    ledger_database: Urls, world: World, tmp_path: Path, affected: list[str]
) -> None:
    """F51: two tools in one claim, and the end comes before the first send: nothing is left to be verified."""

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.BEFORE_MAY_SEND:
            raise asyncio.CancelledError

    async def test(bench: Bench) -> None:
        lease = await bench.run_over(await mint_tokens(bench.people), affected)
        ids = await bench.propose(lease, "credit", affected[:1])
        ids += await bench.propose(lease, "annotate", affected[:1])
        with pytest.raises(asyncio.CancelledError):
            await bench.send(lease)
        assert await bench.states(ids) == ["PENDING", "PENDING"]

    await with_reach(ledger_database, world, tmp_path, reach, test)


async def test_a_sender_that_wakes_up_too_late_sends_nothing(
    ledger_database: Urls, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4: between the last permission and the send the boot clock is read again; what is too late goes back unsent."""
    clock = [1_000.0]
    monkeypatch.setattr("remit.tools.runner.boot_seconds", lambda: clock[0])

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.BEFORE_SEND:
            clock[0] += 60.0

    async def test(bench: Bench) -> None:
        lease, id_ = await one_credit(bench, await mint_tokens(bench.people), obligations=limited(count=1))
        await bench.send(lease)
        assert CREDIT not in bench.transport.called
        assert await bench.states([id_]) == ["PENDING"]
        (attempt,) = await attempts(bench, id_)
        assert (attempt["seen"], attempt["no_effect"], attempt["late"]) == ("not_begun", True, False)
        assert await bench.sql("SELECT count FROM remit.limit_usage") == [{"count": 0}]

    await with_reach(ledger_database, world, tmp_path, reach, test)


async def test_a_late_receipt_moves_nothing_and_has_the_outcome_verified(
    ledger_database: Urls, world: World, tmp_path: Path
) -> None:
    """F41: the lease was lost during the send: the receipt is kept as late, and the evidence settles the operation."""
    taken: list[Callable[[], Awaitable[object]]] = []

    async def reach(point: FaultPoint) -> None:
        if point is FaultPoint.AFTER_SEND and taken:
            await taken.pop()()

    async def test(bench: Bench) -> None:
        lease, id_ = await one_credit(bench, await mint_tokens(bench.people))

        async def take_over() -> None:
            await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
            await bench.leased(lease.run_id)

        taken.append(take_over)
        await bench.send(lease)
        (attempt,) = await attempts(bench, id_)
        assert (attempt["seen"], attempt["late"]) == ("accepted", True)
        assert await bench.states([id_]) == ["SENDING"]
        await bench.sweep()
        assert (await bench.operation(id_))["state"] in ("ACCEPTED", "SETTLED")
        assert len(credits_of(bench)) == 1

    await with_reach(ledger_database, world, tmp_path, reach, test)


async def test_a_receipt_for_what_was_proved_absent_is_a_case(bench: Bench, tokens: Tokens) -> None:
    """A sender that had been given up reports an acceptance: nothing moves, nothing is sent, a person is told."""
    lease, id_ = await one_credit(bench, tokens)
    (claimed,) = await bench.ledger.claim(lease, [id_], await bench.ledger.now(), 0.5, bench.runner._terms)
    assert claimed.refused is None

    async def given_up() -> bool:
        await bench.sweep()
        return await bench.states([id_]) == ["PENDING"]

    await eventually(given_up)
    await bench.ledger.record(
        [Receipt(claimed.attempt_id or 0, "accepted", None, State.ACCEPTED, no_effect=False)]
    )
    row = await bench.operation(id_)
    assert (row["state"], row["obstacle"], await bench.cases()) == ("PENDING", "case", ["late_receipt"])
    assert (await bench.send(lease)).attempted == []


async def test_a_receipt_counts_once(bench: Bench, tokens: Tokens, world: World) -> None:
    """The same receipt written twice, as after a lost connection, changes nothing the second time."""
    await world.control.settings(settle_seconds=60.0)
    lease, id_ = await one_credit(bench, tokens)
    await bench.send(lease)
    before = await bench.operation(id_)
    (attempt,) = await attempts(bench, id_)
    await bench.ledger.record([Receipt(attempt["id"], "refused", None, State.CLOSED, True, closed="refused")])
    assert (await bench.operation(id_))["version"] == before["version"]
    assert (await attempts(bench, id_)) == [attempt]


class Unclassifiable(IssueCredit):
    """A tool with a mistake in its own code, after the send."""

    def classify(self, response: Response, request: Request) -> Seen:
        raise KeyError("id")


class Unreadable(AnnotateAccount):
    """A tool with a mistake in its own code, before the claim."""

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        raise KeyError("accounts")


class Unverifiable(IssueCreditLegacy):
    """A tool with a mistake in its own code, in the search."""

    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        raise KeyError("credits")


def with_mistakes() -> Catalogue:
    quick = quick_catalogue()
    kinds = {
        "issue_credit": Unclassifiable,
        "issue_credit_legacy": Unverifiable,
        "annotate_account": Unreadable,
    }
    writes = [
        type("Broken", (kinds[tool.contract.name],), {"contract": tool.contract})()
        if tool.contract.name in kinds
        else tool
        for tool in quick.writes()
    ]
    return Catalogue(writes=writes, reads=quick.reads())


async def test_a_mistake_in_a_tool_costs_no_truth_and_keeps_no_other_tool_back(
    ledger_database: Urls, world: World, tmp_path: Path, affected: list[str]
) -> None:
    """What cannot be classified is verified; what cannot be verified stays UNKNOWN and lets the others settle."""
    async with opened_bench(
        ledger_database.app_url, tmp_path, world.urls, world.credentials, catalogue=with_mistakes()
    ) as bench:
        lease = await bench.run_over(await mint_tokens(bench.people), affected[:2])
        (good,) = await bench.propose(lease, "credit", affected[:1])
        (stuck,) = await bench.propose(lease, "credit", affected[1:2], tool="issue_credit_legacy")
        (unread,) = await bench.propose(lease, "annotate", affected[:1])
        sent = await bench.send(lease)
        assert sent.receiver_down == {unread: "annotate_account could not read (KeyError)"}
        await bench.settled(lease, [good])
        row = await bench.operation(stuck)
        assert (row["state"], row["fact"]) == ("ACCEPTED", "IN_PROGRESS")
        evidence = await bench.database.rows("evidence", id=stuck)
        assert [(e["sight"], e["source"]) for e in evidence] == [("unreadable", "none (KeyError)")]
        assert len(credits_of(bench)) == 1


async def test_a_tool_that_is_in_no_catalogue_keeps_no_other_tool_back(
    bench: Bench, tokens: Tokens, affected: list[str]
) -> None:
    """After a deploy without one tool, its operations are cases, and the others are sent and settled."""
    lease = await bench.run_over(tokens, affected[:2])
    (gone,) = await bench.propose(lease, "credit", affected[:1], tool="issue_credit_legacy")
    (kept,) = await bench.propose(lease, "credit", affected[1:2])
    usual = quick_catalogue()
    writes = [tool for tool in usual.writes() if tool.contract.name != "issue_credit_legacy"]
    bench.runner = Runner(bench.ledger, Catalogue(writes=writes, reads=usual.reads()), bench.transport)
    sent = await bench.send(lease)
    assert (sent.refused, sent.attempted) == ({gone: "no_contract"}, [kept])
    await bench.settled(lease, [kept])
    assert (await bench.operation(gone))["obstacle"] == "case"
    assert await bench.cases() == ["no_contract"]


def test_what_a_receiver_says_of_itself_never_loses_a_receipt() -> None:
    """Text that the ledger cannot store, or without end, is left out of what is kept of an answer."""
    body = {"id": "cr-1", "code": "a\x00b", "credit_id": "x" * 201, "name": "Customer 104"}
    assert kept(Response(202, body)) == {"status": 202, "id": "cr-1"}
    assert kept(Response(200, ["no", "object"])) == {"status": 200}
    assert kept(Response(200, {"id": "\ud800"})) == {"status": 200}


async def test_looking_for_hours_never_breaks_the_pause(bench: Bench, tokens: Tokens, world: World) -> None:
    """What never settles is looked at for as long as it takes, with pauses that stop growing."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "never_settle", CREDIT)
    await bench.send(lease)
    (due,) = await bench.ledger.due(lease.run_id, 10)
    old = replace(due, checks=5_000)
    sighting = Sighting("r", Sight.PENDING, "payments", "", True)
    settlement = _settlement(old, sighting, after_look(_look(None, old, sighting)))
    assert 30.0 <= settlement.next_seconds <= 36.0
    assert await bench.states([id_]) == ["ACCEPTED"]


async def test_a_key_that_the_receiver_has_forgotten_is_not_sent_again_under(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """I1: past its memory nothing is resent; only a proved absence, after the bound, lets the credit go out again."""
    lease, id_ = await one_credit(bench, tokens)
    await world.control.add_fault("payments", "error_before", CREDIT)
    await bench.send(lease)
    contract = bench.catalogue.write("issue_credit").contract
    await bench.database.rows("advance_clock", seconds=contract.key_retention)
    await world.control.advance(contract.key_retention or 0.0)
    await bench.sweep()
    row = await bench.operation(id_)
    assert (row["state"], row["resend"], row["obstacle"]) == ("UNKNOWN", False, "verification")
    await bench.settled(lease, [id_])
    first, second = await attempts(bench, id_)
    assert (second["claimed_at"] - first["ended_at"]).total_seconds() > (contract.visible_within or 0.0)
    assert len(credits_of(bench)) == 1


async def test_the_last_possible_send_is_what_the_ledger_knows_of_each_attempt(
    bench: Bench, tokens: Tokens
) -> None:
    """Reported: when it ended; dead: when that was found; silent: `send_by` and its timeout (I1)."""
    lease, id_ = await one_credit(bench, tokens)
    (claimed,) = await bench.ledger.claim(lease, [id_], await bench.ledger.now(), 0.5, bench.runner._terms)
    assert claimed.refused is None

    async def given_up() -> bool:
        await bench.sql("SELECT remit.tidy()")
        return await bench.states([id_]) == ["UNKNOWN"]

    await eventually(given_up)
    (item,) = await bench.ledger.due(None, 10)
    (attempt,) = await attempts(bench, id_)
    assert item.last_send == attempt["send_by"] + attempt["timeout"]
    assert not item.senders_ended
    await bench.ledger.record([Receipt(attempt["id"], "unknown", None, State.UNKNOWN, no_effect=False)])
    (item,) = await bench.ledger.due(None, 10)
    (attempt,) = await attempts(bench, id_)
    assert (item.last_send, item.senders_ended) == (attempt["ended_at"], True)
