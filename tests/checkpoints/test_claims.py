"""The claim: the one place where an operation may become a send, and everything that keeps it from it (I2, I3, I4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.tools.errors import LeaseLost, Refused
from remit.tools.mandates import AskAbove
from remit.tools.ports import Claimed, Lease
from tests.fixtures import HOUR, NO_OBLIGATIONS, Bench, Tokens, eventually, limited, mandate_over

OWN = "customer:c-104"
TERMS = '{"issue_credit": {"attempts": 5, "budget_ms": 9000, "timeout_ms": 1000, "retention_ms": null}}'
MANY = [f"customer:c-{number}" for number in range(101, 131)]


async def claim(bench: Bench, lease: Lease, ids: Sequence[int]) -> list[Claimed]:
    """One claim call with fresh snapshots, without sending anything; answers in order of the operations."""
    claims = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, bench.runner._terms)
    return sorted(claims, key=lambda claimed: claimed.operation_id)


async def refusals(bench: Bench, lease: Lease, ids: Sequence[int]) -> list[str | None]:
    return [claimed.refused for claimed in await claim(bench, lease, ids)]


async def proposed(
    bench: Bench, tokens: Tokens, subjects: Sequence[str] = (OWN,), step: str = "credit", **changes: object
) -> tuple[Lease, list[int]]:
    lease = await bench.run_over(tokens, subjects)
    return lease, await bench.propose(lease, step, subjects, **changes)  # type: ignore[arg-type]


async def owner_of(urls: Urls) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(urls.owner_url)


async def test_a_claim_writes_the_attempt_before_anything_is_sent(bench: Bench, tokens: Tokens) -> None:
    """F29: state, attempt and journal are committed by the claim; wire key, worker, lease and window stand in it."""
    lease, (id_,) = await proposed(bench, tokens)
    (claimed,) = await claim(bench, lease, [id_])
    (attempt,) = await bench.database.rows("attempts", id=id_)
    assert (await bench.operation(id_))["state"] == "SENDING"
    assert (attempt["id"], attempt["wire_key"]) == (claimed.attempt_id, claimed.wire_key)
    assert (attempt["worker"], attempt["run_token"], attempt["agent_version"]) == (
        lease.worker,
        lease.token,
        "test",
    )
    assert 7.0 < (claimed.send_within or 0.0) <= 8.0


async def test_what_is_claimed_settled_or_closed_is_refused_one_by_one(bench: Bench, tokens: Tokens) -> None:
    """One operation that is closed or claimed already never spoils the claim of the others."""
    lease, ids = await proposed(bench, tokens, MANY[:4])
    await claim(bench, lease, ids[:1])
    await bench.people.cancel_holds(tokens.support_manager, ids[1:2])
    assert await refusals(bench, lease, ids) == ["sending", "closed", None, None]


async def test_a_stale_token_claims_nothing(bench: Bench, tokens: Tokens) -> None:
    """F05, F41: after a takeover the earlier holder's token claims and sends nothing."""
    lease, ids = await proposed(bench, tokens)
    await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
    taken = await bench.leased(lease.run_id)
    assert taken.token == lease.token + 1
    with pytest.raises(LeaseLost):
        await claim(bench, lease, ids)
    assert await refusals(bench, taken, ids) == [None]


async def test_a_lease_that_ran_out_claims_nothing(bench: Bench, tokens: Tokens) -> None:
    """Nobody has taken over yet, and still the lease is over."""
    lease, ids = await proposed(bench, tokens)
    await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
    with pytest.raises(LeaseLost):
        await claim(bench, lease, ids)


async def test_five_workers_that_want_one_run_get_one_lease(bench: Bench, tokens: Tokens) -> None:
    """F05: exactly one of five concurrent takers drives the run."""
    run_id = await bench.started(tokens, await bench.granted(tokens, [OWN]))
    tries = await asyncio.gather(*(bench.leased(run_id) for _ in range(5)), return_exceptions=True)
    assert sorted(isinstance(one, Lease) for one in tries) == [False] * 4 + [True]


async def test_a_worker_that_was_declared_dead_claims_nothing(bench: Bench, tokens: Tokens) -> None:
    """Its attempts would count as ended, so it may begin none, whatever it still believes."""
    lease, ids = await proposed(bench, tokens)
    await bench.database.rows("worker_dead", id=bench.worker.id)
    with pytest.raises(LeaseLost, match="found dead"):
        await claim(bench, lease, ids)


SCOPES = {
    "all": "",
    "mandate": "outage-0611",
    "run": "",
    "agent": "credit-agent",
    "version": "test",
    "tool": "issue_credit",
    "effect": "credit.issue",
    "subject": OWN,
}


@pytest.mark.parametrize("kind", ["stop", "freeze"])
@pytest.mark.parametrize("scope", SCOPES)
async def test_after_an_order_nothing_is_claimed(bench: Bench, tokens: Tokens, scope: str, kind: str) -> None:
    """I4: an order that was committed before the claim refuses it, for each scope, whatever was listed before."""
    lease, ids = await proposed(bench, tokens)
    value = lease.run_id if scope == "run" else SCOPES[scope]
    place = bench.people.stop if kind == "stop" else bench.people.freeze
    order = await place(tokens.finance_lead, scope, value, "a doubt")
    assert await refusals(bench, lease, ids) == [kind]
    whole = kind == "stop" and scope not in {"tool", "effect", "subject"}
    stood = (await bench.database.row("run", run=lease.run_id) or {})["order_id"]
    assert stood == (order["id"] if whole else None)


@pytest.mark.parametrize("scope", SCOPES)
async def test_before_each_group_an_order_of_any_scope_keeps_what_is_claimed(
    bench: Bench, tokens: Tokens, scope: str
) -> None:
    """I4: what was claimed before the order is not begun after it, for each scope."""
    lease, ids = await proposed(bench, tokens)
    attempts = [claimed.attempt_id or 0 for claimed in await claim(bench, lease, ids)]
    assert await bench.ledger.may_send(lease, attempts) == set(attempts)
    value = lease.run_id if scope == "run" else SCOPES[scope]
    await bench.people.stop(tokens.support_manager, scope, value, "a doubt")
    assert not await bench.ledger.may_send(lease, attempts)


async def test_an_order_over_one_subject_leaves_the_others(bench: Bench, tokens: Tokens) -> None:
    """A narrow stop closes what it is over and nothing beside it; a freeze keeps it and lets it go on when lifted."""
    lease, ids = await proposed(bench, tokens, MANY[:3])
    await bench.people.stop(tokens.support_manager, "subject", MANY[0], "a doubt")
    frozen = await bench.people.freeze(tokens.finance_lead, "subject", MANY[1], "a doubt")
    assert await refusals(bench, lease, ids) == ["stop", "freeze", None]
    await bench.sweep()
    assert [(await bench.operation(id_))["closed"] for id_ in ids] == ["cancelled", None, None]
    await bench.people.lift(tokens.finance_lead, frozen["id"])
    assert await refusals(bench, lease, ids[1:2]) == [None]


async def test_only_a_lead_freezes(bench: Bench, tokens: Tokens) -> None:
    """A freeze is a fact of the installation: who answers for one mandate only may stop, and not freeze."""
    with pytest.raises(Refused, match="nothing was frozen"):
        await bench.people.freeze(tokens.support_manager, "all", "", "a doubt")
    assert await bench.database.rows("orders", all=True) == []


async def test_a_stop_of_something_else_stops_nothing(bench: Bench, tokens: Tokens) -> None:
    """Scopes are exact, and a scope that does not exist is refused instead of looking like a stop."""
    lease, ids = await proposed(bench, tokens)
    other = await bench.granted(tokens, [OWN], mandate_over("outage-0619"))
    await bench.people.stop(tokens.support_manager, "mandate", other.hash, "another one")
    for scope, value in (
        ("run", "run-nothing"),
        ("mandate", "nothing"),
        ("everything", ""),
        ("agent", "nobody"),
        ("version", "none"),
        ("subject", "customer:c-999"),
        ("all", "x"),
        ("tool", ""),
    ):
        with pytest.raises(Refused, match="nothing was stopped"):
            await bench.people.stop(tokens.support_manager, scope, value, "a typing error")
    assert await refusals(bench, lease, ids) == [None]


async def test_a_claim_that_waited_behind_a_stop_does_not_claim(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """I4: a claim that began before the stop was committed takes its snapshot after it, and so sees it."""
    lease, ids = await proposed(bench, tokens)
    async with await owner_of(ledger_database) as stopping:
        await stopping.execute("SELECT remit.stop(%s, 'all', '', 'a doubt')", [tokens.support_manager])
        claiming = asyncio.create_task(refusals(bench, lease, ids))

        async def waits() -> bool:
            rows = await bench.sql("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            return len(rows) == 1

        await eventually(waits)
        await stopping.commit()
    assert await claiming == ["stop"]


async def test_a_claim_in_another_isolation_is_refused(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """With one snapshot for the whole transaction a claim would not see the stop that it waited for."""
    lease, ids = await proposed(bench, tokens)
    async with await owner_of(ledger_database) as owner:
        await owner.execute("SET default_transaction_isolation = 'repeatable read'")
        await owner.commit()
        with pytest.raises(psycopg.DatabaseError, match="READ COMMITTED"):
            await owner.execute(
                "SELECT remit.claim(%s, %s, %s, %s, now(), 8, '{}')",
                [lease.run_id, lease.token, lease.worker, ids],
            )
        await owner.rollback()


async def flushed(connection: psycopg.AsyncConnection) -> None:
    """Until the socket has taken the whole question."""
    while connection.pgconn.flush() == 1:  # noqa: ASYNC110 - libpq has no event for it
        await asyncio.sleep(0)


async def test_a_stop_waits_for_no_sleeping_claimer(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """A client that asked for a claim and never reads the answer holds no lock: the server ends the claim by itself."""
    lease, ids = await proposed(bench, tokens, MANY)
    listed = "{" + ",".join(map(str, ids)) + "}"
    asleep = await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True)
    asleep.pgconn.send_query_params(
        b"SELECT remit.claim($1, $2, $3, $4::bigint[], clock_timestamp(), 8, $5)",
        [v.encode() for v in (lease.run_id, str(lease.token), lease.worker, listed, TERMS)],
    )
    await flushed(asleep)
    began = time.monotonic()
    await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    assert time.monotonic() - began < 0.5

    async def ended() -> bool:
        return await bench.sql("SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []

    await eventually(ended)
    asleep.pgconn.finish()


async def test_a_stop_gets_in_between_overlapping_claims(bench: Bench, tokens: Tokens) -> None:
    """While claims overlap all the time, a stop is in force within a fraction of a second; nothing is claimed after."""
    lease, ids = await proposed(bench, tokens, MANY)
    stopped = asyncio.Event()

    async def claims(mine: Sequence[int]) -> list[str | None]:
        last: list[str | None] = []
        while not stopped.is_set():
            last = await refusals(bench, lease, mine)
        return last

    working = [asyncio.create_task(claims(ids[n::4])) for n in range(4)]
    began = time.monotonic()
    await bench.people.stop(tokens.support_manager, "all", "", "a doubt")
    waited = time.monotonic() - began
    before = await bench.sql("SELECT count(*) AS count FROM remit.attempts")
    await bench.people.stop(tokens.support_manager, "all", "", "still")
    stopped.set()
    await asyncio.gather(*working)
    assert waited < 0.5
    assert await bench.sql("SELECT count(*) AS count FROM remit.attempts") == before


async def test_what_must_come_first_must_be_completed_and_undisputed(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """I12: no message while its credit is waiting, in flight or a case; only when it is settled without a dispute."""
    lease, (credit,) = await proposed(bench, tokens)
    (mail,) = await bench.propose(lease, "notify", [OWN], requires=None)
    assert await refusals(bench, lease, [mail]) == ["requirement"]
    await bench.settled(lease, [credit])
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute(
            "INSERT INTO remit.cases (operation_id, run_id, code, detail) VALUES (%s, %s, 'different', '')",
            [credit, lease.run_id],
        )
        assert await refusals(bench, lease, [mail]) == ["case"]
        await owner.execute("UPDATE remit.cases SET closed_at = now()")
    assert await refusals(bench, lease, [mail]) == [None]


async def test_what_must_come_first_and_is_lost_is_said(bench: Bench, tokens: Tokens) -> None:
    """A requirement without a live operation is told apart from one that is only waited for."""
    lease, (credit,) = await proposed(bench, tokens)
    (mail,) = await bench.propose(lease, "notify", [OWN], requires=None)
    await bench.people.cancel_holds(tokens.support_manager, [credit])
    assert await refusals(bench, lease, [mail]) == ["requirement_lost"]


async def test_a_hold_begins_when_nothing_else_is_in_the_way_and_ends_by_company_time(
    bench: Bench, tokens: Tokens
) -> None:
    """A message leaves after its window, which company time measures and which begins only after its credit."""
    lease, (credit,) = await proposed(bench, tokens)
    held = {**NO_OBLIGATIONS, "hold_seconds": HOUR}
    (mail,) = await bench.propose(lease, "notify", [OWN], requires=None, obligations=held)
    assert await bench.database.value("start_holds", run=lease.run_id) == 0
    await bench.settled(lease, [credit])
    assert await bench.database.value("start_holds", run=lease.run_id) == 1
    assert await refusals(bench, lease, [mail]) == ["hold"]
    await bench.database.rows("advance_clock", seconds=HOUR)
    assert await refusals(bench, lease, [mail]) == [None]


async def test_keeping_back_before_a_claim_keeps_back(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """F50: while somebody keeps an operation back, a claim passes it by, and afterwards it is closed."""
    lease, ids = await proposed(bench, tokens, MANY[:2])
    async with await owner_of(ledger_database) as keeping:
        await keeping.execute("SELECT remit.cancel_holds(%s, %s)", [tokens.support_manager, ids[:1]])
        assert [claimed.operation_id for claimed in await claim(bench, lease, ids)] == ids[1:]
        await keeping.commit()
    assert await bench.states(ids) == ["CLOSED", "SENDING"]


async def test_keeping_back_after_a_claim_is_told_that_it_is_too_late(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """F50: one atomic change decides; whoever comes second, by milliseconds, hears what really happened."""
    lease, ids = await proposed(bench, tokens)
    async with await owner_of(ledger_database) as claiming:
        await claiming.execute(
            "SELECT remit.claim(%s, %s, %s, %s, clock_timestamp(), 8, %s)",
            [lease.run_id, lease.token, lease.worker, ids, TERMS],
        )
        keeping = asyncio.create_task(bench.people.cancel_holds(tokens.support_manager, ids))

        async def waits() -> bool:
            return bool(
                await bench.sql("SELECT pid FROM pg_locks WHERE locktype <> 'advisory' AND NOT granted")
            )

        await eventually(waits)
        await claiming.commit()
    assert [row["outcome"] for row in await keeping] == ["being_sent"]


@pytest.mark.parametrize("how", ["superseded", "revoked", "over", "not yet"])
async def test_a_mandate_that_is_not_in_force_sends_nothing(bench: Bench, tokens: Tokens, how: str) -> None:
    """I2, F21: authority is read at the claim; a mandate that is superseded, revoked or out of time sends nothing."""
    now = int((await bench.ledger.company_now()).timestamp())
    mandate = mandate_over(valid_until=now + HOUR)
    lease = await bench.run_over(tokens, [OWN], mandate)
    ids = await bench.propose(lease, "credit", [OWN], mandate=mandate)
    if how == "superseded":
        corrected = mandate_over(ask_above=AskAbove(count=5))
        await bench.people.grant(tokens.support_manager, corrected.hash, corrected.document(), [OWN])
    elif how == "revoked":
        await bench.people.revoke_mandate(tokens.support_manager, mandate.hash)
    elif how == "over":
        await bench.database.rows("advance_clock", seconds=HOUR)
    else:
        mandate = mandate_over("outage-0619", valid_from=now + HOUR)
        await bench.granted(tokens, [OWN], mandate)
        with pytest.raises(Refused, match="not in force"):
            await bench.started(tokens, mandate)
        return
    assert (await refusals(bench, lease, ids)) == [{"superseded": "closed"}.get(how, "mandate")]
    await bench.sweep()
    closed = {"superseded": "superseded", "revoked": "cancelled", "over": "expired"}[how]
    assert (await bench.operation(ids[0]))["closed"] == closed


async def test_a_send_may_not_begin_after_the_mandates_end(bench: Bench, tokens: Tokens) -> None:
    """The window of a claim ends with the mandate, even when the company's clock runs ahead."""
    await bench.database.rows("advance_clock", seconds=HOUR)
    now = int((await bench.ledger.company_now()).timestamp())
    mandate = mandate_over(valid_until=now + 3)
    lease = await bench.run_over(tokens, [OWN], mandate)
    (claimed,) = await claim(bench, lease, await bench.propose(lease, "credit", [OWN], mandate=mandate))
    assert 0 < (claimed.send_within or 0.0) <= 3


async def test_five_claims_at_once_take_exactly_what_fits(bench: Bench, tokens: Tokens) -> None:
    """F54: of 1,000.00 with 990.00 used, one of five parallel actions of 9.00 passes; the others wait at the limit."""
    lease = await bench.run_over(tokens, MANY)
    terms = limited(amount_minor=100_000)
    (used,) = await bench.propose(
        lease, "credit", MANY[:1], obligations=terms, said={"amount_minor": 99_000, "currency": "USD"}
    )
    await bench.settled(lease, [used])
    ids = await bench.propose(
        lease, "credit", MANY[1:6], obligations=terms, said={"amount_minor": 900, "currency": "USD"}
    )
    answers = await asyncio.gather(*(refusals(bench, lease, [id_]) for id_ in ids))
    assert sorted(str(refused) for (refused,) in answers) == ["None", *["limit"] * 4]
    (usage,) = await bench.sql("SELECT count, amount_minor FROM remit.limit_usage")
    assert usage == {"count": 2, "amount_minor": 99_900}


async def test_a_batch_takes_shares_in_order_until_the_limit(bench: Bench, tokens: Tokens) -> None:
    """A count limit of three lets three of a batch of five pass, and another currency never fits a limit in money."""
    lease, ids = await proposed(bench, tokens, MANY[:5], obligations=limited(count=3))
    assert await refusals(bench, lease, ids) == [None, None, None, "limit", "limit"]
    euros = {"amount_minor": 1000, "currency": "EUR"}
    (other,) = await bench.propose(
        lease, "credit", MANY[5:6], obligations=limited(amount_minor=9_999_999, name="money"), said=euros
    )
    assert await refusals(bench, lease, [other]) == ["limit"]


async def test_what_was_not_begun_gives_its_share_back_and_lets_the_next_in(
    bench: Bench, tokens: Tokens
) -> None:
    """F54: a released share is used by what had waited for it, without anybody clearing a gate by hand."""
    lease, ids = await proposed(bench, tokens, MANY[:2], obligations=limited(count=1))
    claimed, refused = await claim(bench, lease, ids)
    assert refused.refused == "limit"
    assert await bench.obstacles(ids) == ["sending", "limit"]
    assert claimed.attempt_id is not None
    await bench.ledger.unsend([claimed.attempt_id])
    await bench.people.cancel_holds(tokens.support_manager, ids[:1])
    assert await refusals(bench, lease, ids[1:]) == [None]


async def test_unknown_keeps_its_share(bench: Bench, tokens: Tokens) -> None:
    """F54: what may have happened goes on counting against the limit."""
    lease, ids = await proposed(bench, tokens, MANY[:2], obligations=limited(count=1))
    await claim(bench, lease, ids[:1])
    await bench.database.rows("worker_dead", id=bench.worker.id)
    await bench.sql("SELECT remit.tidy()")
    assert await bench.states(ids) == ["UNKNOWN", "PENDING"]
    (usage,) = await bench.sql("SELECT count FROM remit.limit_usage")
    assert usage["count"] == 1


async def test_a_budget_counts_tries_and_not_what_never_began(bench: Bench, tokens: Tokens) -> None:
    """Claims that went back unsent burn no budget; tries that the receiver could judge do."""
    lease, ids = await proposed(bench, tokens)
    most = bench.catalogue.write("issue_credit").contract.budget.attempts
    for _ in range(most + 1):
        (claimed,) = await claim(bench, lease, ids)
        assert claimed.attempt_id is not None
        await bench.ledger.unsend([claimed.attempt_id])
    for seen in ("rate_limited",) * most:
        (claimed,) = await claim(bench, lease, ids)
        receipt = {"attempt_id": claimed.attempt_id, "seen": seen, "to": "PENDING", "no_effect": True}
        await bench.sql(
            "SELECT remit.record(jsonb_build_array(%s::jsonb))", psycopg.types.json.Jsonb(receipt)
        )
    assert await refusals(bench, lease, ids) == ["budget"]


async def test_old_snapshots_and_unknown_tools_are_no_basis(bench: Bench, tokens: Tokens) -> None:
    """A claim on what was read half a minute ago, or for a tool without a contract, is refused."""
    lease, ids = await proposed(bench, tokens)
    (now,) = await bench.sql("SELECT clock_timestamp() - interval '30 seconds' AS earlier")
    (claimed,) = await bench.ledger.claim(lease, ids, now["earlier"], 8.0, bench.runner._terms)
    assert claimed.refused == "snapshot_old"
    (claimed,) = await bench.ledger.claim(lease, ids, await bench.ledger.now(), 8.0, {})
    assert claimed.refused == "no_contract"


async def test_an_ended_run_is_not_taken_up_again(bench: Bench, tokens: Tokens) -> None:
    """What an ended run had left waiting is closed, and nobody gets its lease any more."""
    lease, ids = await proposed(bench, tokens)
    await bench.sql(
        "SELECT remit.release_run(%s, %s, 'INCOMPLETE', 'for the test', '{}')", lease.run_id, lease.token
    )
    assert (await bench.operation(ids[0]))["closed"] == "cancelled"
    with pytest.raises(Refused, match="has ended"):
        await bench.leased(lease.run_id)
