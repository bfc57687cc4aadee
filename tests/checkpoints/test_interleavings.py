"""Claims, decisions and windows against orders and revocations, in every order of two connections (I3, I4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from remit.checkpoints.embedded_access import Urls
from remit.tools.mandates import AskAbove, Mandate
from remit.tools.ports import Lease
from tests.fixtures import ASK_FINANCE, HOUR, NO_OBLIGATIONS, Bench, Tokens, eventually, limited, mandate_over
from tests.schedules import interleavings, played, waits_for

OWN = "customer:c-104"
TERMS = '{"issue_credit": {"attempts": 5, "budget_ms": 90000, "timeout_ms": 1000, "retention_ms": null}}'

Call = tuple[str, Sequence[object]]


def claiming(lease: Lease, ids: list[int]) -> Call:
    return "SELECT * FROM remit.claim(%s, %s, %s, %s, clock_timestamp(), 8, %s)", [
        lease.run_id,
        lease.token,
        lease.worker,
        ids,
        TERMS,
    ]


def barring(kind: str, tokens: Tokens, mandate: Mandate, lease: Lease) -> Call:
    """What takes away the right to begin, as a person's one call."""
    corrected = mandate.model_copy(update={"ask_above": AskAbove(count=5)})
    calls: dict[str, Call] = {
        "stop all": ("SELECT * FROM remit.stop(%s, 'all', '', 'a doubt')", [tokens.support_manager]),
        "stop mandate": (
            "SELECT * FROM remit.stop(%s, 'mandate', %s, 'a doubt')",
            [tokens.support_manager, mandate.purpose],
        ),
        "stop run": (
            "SELECT * FROM remit.stop(%s, 'run', %s, 'a doubt')",
            [tokens.support_manager, lease.run_id],
        ),
        "freeze": (
            "SELECT * FROM remit.freeze(%s, 'effect', 'credit.issue', 'a doubt')",
            [tokens.finance_lead],
        ),
        "revocation": ("SELECT remit.revoke_mandate(%s, %s)", [tokens.support_manager, mandate.hash]),
        "supersession": (
            "SELECT * FROM remit.grant_mandate(%s, %s, %s, %s)",
            [tokens.support_manager, corrected.hash, Jsonb(corrected.document()), [OWN]],
        ),
    }
    return calls[kind]


MOMENT = {
    "revocation": "SELECT revoked_at AS moment FROM remit.mandates WHERE hash = %s",
    "supersession": "SELECT superseded_at AS moment FROM remit.mandates WHERE hash = %s",
}
"""Since when it is in force, by committed rows; an order says so itself."""


async def prepared(bench: Bench, tokens: Tokens, number: int) -> tuple[Mandate, Lease, int]:
    """A mandate, a run and one credit of its own for each interleaving."""
    mandate = mandate_over(f"outage-{number:04}")
    lease = await bench.run_over(tokens, [OWN], mandate)
    (id_,) = await bench.propose(lease, "credit", [OWN], mandate=mandate)
    return mandate, lease, id_


async def in_force(bench: Bench, kind: str, mandate: Mandate) -> datetime:
    if kind in MOMENT:
        (row,) = await bench.sql(MOMENT[kind], mandate.hash)
    else:
        (row,) = await bench.sql(
            "SELECT issued_at AS moment, id FROM remit.orders WHERE lifted_at IS NULL ORDER BY id DESC LIMIT 1"
        )
    moment: datetime = row["moment"]
    return moment


async def cleared(bench: Bench, tokens: Tokens) -> None:
    for order in await bench.database.rows("orders", all=False):
        await bench.people.lift(tokens.finance_lead, order["id"])


@pytest.mark.parametrize(
    "kind", ["stop all", "stop mandate", "stop run", "freeze", "revocation", "supersession"]
)
async def test_no_claim_commits_after_what_bars_it_committed(
    bench: Bench, tokens: Tokens, ledger_database: Urls, kind: str
) -> None:
    """I4: in all 20 orders of both sides' steps, an attempt is there exactly where its claim committed first."""
    firsts: set[str] = set()
    for number, schedule in enumerate(interleavings(("claim", "bar"))):
        mandate, lease, id_ = await prepared(bench, tokens, number)
        calls = {"claim": claiming(lease, [id_]), "bar": barring(kind, tokens, mandate, lease)}
        _, commits = await played(ledger_database.owner_url, schedule, calls)
        attempts = await bench.database.rows("attempts", id=id_)
        assert len(attempts) == (1 if commits[0] == "claim" else 0), schedule
        moment = await in_force(bench, kind, mandate)
        assert all(attempt["claimed_at"] < moment for attempt in attempts), schedule
        firsts.add(commits[0])
        sent = await bench.ledger.may_send(lease, [attempt["id"] for attempt in attempts])
        assert sent == set(), "whoever was first, nothing begins any more"
        await cleared(bench, tokens)
    assert firsts == {"claim", "bar"}


@pytest.mark.parametrize("kind", ["stop", "freeze"])
async def test_no_claim_commits_before_the_lift_that_it_needs(
    bench: Bench, tokens: Tokens, ledger_database: Urls, kind: str
) -> None:
    """What a stop kept back is closed by its lift, whoever is first; what a freeze kept is claimed only after it."""
    claimed = 0
    for number, schedule in enumerate(interleavings(("claim", "lift"))):
        mandate, lease, id_ = await prepared(bench, tokens, number)
        place = bench.people.stop if kind == "stop" else bench.people.freeze
        order = await place(tokens.finance_lead, "mandate", mandate.purpose, "a doubt")
        lifting: Call = ("SELECT * FROM remit.lift(%s, %s)", [tokens.finance_lead, order["id"]])
        calls = {"claim": claiming(lease, [id_]), "lift": lifting}
        await played(ledger_database.owner_url, schedule, calls)
        attempts = await bench.database.rows("attempts", id=id_)
        (lifted,) = await bench.sql("SELECT lifted_at FROM remit.orders WHERE id = %s", order["id"])
        assert all(attempt["claimed_at"] > lifted["lifted_at"] for attempt in attempts), schedule
        claimed += len(attempts)
        assert (await bench.operation(id_))["closed"] == ("cancelled" if kind == "stop" else None)
    assert (claimed > 0) == (kind == "freeze")


@pytest.mark.parametrize(
    "kind", ["stop all", "stop mandate", "stop run", "freeze", "revocation", "supersession"]
)
async def test_what_was_claimed_may_begin_until_the_moment_that_the_order_commits_and_not_after(
    bench: Bench, tokens: Tokens, ledger_database: Urls, kind: str
) -> None:
    """I4: the sender's last look sees an order as soon as it is committed, and not before."""
    mandate, lease, id_ = await prepared(bench, tokens, 1)
    (claimed,) = await bench.ledger.claim(lease, [id_], await bench.ledger.now(), 8.0, bench.runner._terms)
    attempts = [claimed.attempt_id or 0]
    statement, values = barring(kind, tokens, mandate, lease)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url) as placing:
        await placing.execute(statement.encode(), values)
        assert await bench.ledger.may_send(lease, attempts) == set(attempts)
        await placing.commit()
        assert await bench.ledger.may_send(lease, attempts) == set()


async def asked(bench: Bench, lease: Lease, id_: int, **changes: object) -> Call:
    """The approval of one credit, as the finance lead's grant of it."""
    (row,) = await bench.database.rows(
        "ask_approvals", run=lease.run_id, token=lease.token, new_id=f"ap-{id_:06}"
    )
    (approval,) = await bench.database.rows("approvals", which=row["id"])
    return "SELECT * FROM remit.decide({}, %s, %s, 'granted', NULL, '')", [
        approval["id"],
        approval["set_hash"],
    ]


async def spoken(bench: Bench, tokens: Tokens, verb: str, number: int) -> tuple[Call, str]:
    """Something that a person says (without the token), and a query that finds what came of it."""
    mandate = mandate_over(f"outage-{number:04}")
    lease = await bench.run_over(tokens, [OWN], mandate)
    if verb == "decide":
        (id_,) = await bench.propose(lease, "credit", [OWN], mandate=mandate, verdict="needs_approval")
        found = f"SELECT at AS moment FROM remit.votes WHERE operation_id = {id_}"  # noqa: S608 - a number
        return await asked(bench, lease, id_), found
    if verb == "lift":
        order = await bench.people.stop(tokens.support_manager, "mandate", mandate.purpose, "a doubt")
        found = (
            f"SELECT lifted_at AS moment FROM remit.orders WHERE id = {order['id']} AND lifted_at IS NOT NULL"  # noqa: S608
        )
        return ("SELECT * FROM remit.lift({}, %s)", [order["id"]]), found
    window = {**NO_OBLIGATIONS, "hold_seconds": HOUR, "release_by": ["finance_lead"]}
    (id_,) = await bench.propose(lease, "credit", [OWN], mandate=mandate, obligations=window)
    found = f"SELECT at AS moment FROM remit.hold_changes WHERE operation_id = {id_} AND outcome = 'released'"  # noqa: S608
    return ("SELECT * FROM remit.release_holds({}, %s)", [[id_]]), found


@pytest.mark.parametrize("verb", ["decide", "lift", "release"])
async def test_nothing_that_a_token_says_commits_after_its_revocation_committed(
    bench: Bench, tokens: Tokens, ledger_database: Urls, verb: str
) -> None:
    """I3: of a decision, a lift or a release and the revocation of its token, the first to commit wins."""
    firsts: set[str] = set()
    for number, schedule in enumerate(interleavings(("say", "revoke"))):
        (statement, values), found = await spoken(bench, tokens, verb, number)
        id_, secret, _ = await bench.people.mint(
            tokens.administrator, f"lead-{number}", "finance_lead", 24 * HOUR
        )
        calls: dict[str, Call] = {
            "say": (statement.format("%s"), [secret, *values]),
            "revoke": ("SELECT remit.revoke_token(%s, %s)", [tokens.administrator, id_]),
        }
        _, commits = await played(ledger_database.owner_url, schedule, calls)
        said = await bench.sql(found)
        assert len(said) == (1 if commits[0] == "say" else 0), schedule
        (token,) = await bench.sql("SELECT revoked_at FROM remit.tokens WHERE id = %s", id_)
        assert all(row["moment"] < token["revoked_at"] for row in said), schedule
        firsts.add(commits[0])
    assert firsts == {"say", "revoke"}


HELD = {
    "the boundary's lock": ("SELECT pg_advisory_xact_lock(remit.boundary_lock())", None),
    "the lease's row": ("SELECT FROM remit.leases WHERE run_id = %s FOR UPDATE", "run"),
    "a limit's row": ("SELECT FROM remit.limit_usage FOR UPDATE", None),
}
"""What a claim may have to wait for before it looks at anything."""


async def approved(bench: Bench, tokens: Tokens, within: int) -> tuple[Lease, int]:
    """A credit with a share of a limit, granted by the finance lead, to be begun within so many seconds."""
    lease = await bench.run_over(tokens, [OWN])
    terms = {**ASK_FINANCE, "execute_within": within, "volume": limited(count=5)["volume"]}
    (id_,) = await bench.propose(lease, "credit", [OWN], verdict="needs_approval", obligations=terms)
    statement, values = await asked(bench, lease, id_)
    (done,) = await bench.sql(statement.format("%s"), tokens.finance_lead, *values)
    assert done["outcome"] == "granted"
    return lease, id_


@pytest.mark.parametrize("held", list(HELD))
@pytest.mark.parametrize("passes", [True, False])
async def test_an_approval_that_runs_out_while_the_claim_waits_is_not_used(
    bench: Bench, tokens: Tokens, ledger_database: Urls, held: str, passes: bool
) -> None:
    """The claim reads the clock after its last wait, not when it was called; in time it is claimed (F15)."""
    lease, id_ = await approved(bench, tokens, 60)
    first = await bench.ledger.claim(lease, [id_], await bench.ledger.now(), 8.0, bench.runner._terms)
    await bench.ledger.unsend([first[0].attempt_id or 0])
    statement, what = HELD[held]
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url) as holding:
        await holding.execute(statement.encode(), None if what is None else [lease.run_id])
        now = await bench.ledger.now()
        coming = asyncio.create_task(bench.ledger.claim(lease, [id_], now, 8.0, bench.runner._terms))

        async def waits() -> bool:
            return await waits_for(bench, holding)

        await eventually(waits)
        if passes:
            await bench.database.rows("advance_clock", seconds=61)
        await holding.commit()
    (claimed,) = await coming
    assert claimed.refused == ("approval" if passes else None)
    assert len(await bench.database.rows("attempts", id=id_)) == (1 if passes else 2)


async def test_an_approval_that_runs_out_after_the_claim_lets_nothing_begin(
    bench: Bench, tokens: Tokens
) -> None:
    """The sender's last look reads the company's clock again; what was claimed in time goes back unsent (F15)."""
    lease, id_ = await approved(bench, tokens, 60)
    (claimed,) = await bench.ledger.claim(lease, [id_], await bench.ledger.now(), 8.0, bench.runner._terms)
    attempts: list[Any] = [claimed.attempt_id]
    assert await bench.ledger.may_send(lease, attempts) == set(attempts)
    await bench.database.rows("advance_clock", seconds=61)
    assert await bench.ledger.may_send(lease, attempts) == set()
