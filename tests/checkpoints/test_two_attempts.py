"""A later attempt's answer never hides an earlier attempt's unknown outcome: every combination of two attempts (I6).

The ledger is compared with a model of a few lines that knows nothing of its SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import psycopg

from remit.checkpoints.embedded_access import Urls
from remit.tools.contracts import Sighting
from remit.tools.ports import Claimed, Due, Lease, Receipt
from remit.tools.receipts import _receipt
from remit.tools.recovery import AFTER_ATTEMPT, Look, after_look
from remit.tools.runner import _settlement
from remit.tools.states import Seen, Sight, State
from tests.fixtures import Bench, Tokens, limited

LOST, NOT_BEGUN = "lost", "not_begun"
"""No end was ever reported; claimed and given back unsent. Neither is a word of a receiver."""

ENDS = {
    NOT_BEGUN: "PENDING",
    "not_written": "PENDING",
    "rate_limited": "PENDING",
    "credential": "PENDING",
    "refused": "CLOSED refused",
    "precondition": "CLOSED stale",
    "accepted": "ACCEPTED",
    "receiver_down": "UNKNOWN",
    "in_progress": "UNKNOWN",
    "key_reused": "UNKNOWN",
    "stored_failure": "UNKNOWN",
    "unknown": "UNKNOWN",
    LOST: "UNKNOWN",
}
"""What one attempt comes to by itself: DESIGN section 6, written a second time."""

WAYS = {"PENDING": ("again",), "UNKNOWN": ("resend", "absent"), "ACCEPTED": (), "CLOSED": ()}
"""How a second attempt of the same revision can come about, by where the first one left the operation."""


def expected(way: str, second: str) -> str:
    """Where both attempts leave the operation. Only a resend begins while the first is not proved to have no effect."""
    alone = ENDS[second]
    return "UNKNOWN" if way == "resend" and alone not in ("ACCEPTED", "UNKNOWN") else alone


@dataclass(frozen=True)
class Pair:
    """Two attempts of one operation, and how the second came about."""

    first: str
    way: str
    second: str


def pairs() -> Iterator[Pair]:
    for first, end in ENDS.items():
        for way, second in product(WAYS[end.partition(" ")[0]], ENDS):
            yield Pair(first, way, second)


def test_the_model_has_every_end_of_an_attempt() -> None:
    """Every word of a receiver is in it and leads where the table of single attempts leads."""
    assert set(ENDS) == {seen.value for seen in Seen} | {LOST, NOT_BEGUN}
    for seen, then in AFTER_ATTEMPT.items():
        assert ENDS[seen.value] == f"{then.to} {then.closed or ''}".strip()


def test_a_second_attempt_comes_about_only_where_the_key_protects_or_absence_is_proved() -> None:
    """Over all facts of a contract and its senders: a resend, a proved absence, or no second attempt at all."""
    for sight, flags in product((Sight.ABSENT, Sight.UNREADABLE), product((False, True), repeat=6)):
        counts, enforced, ended, receipt, *_ = flags
        then = after_look(Look(sight, State.UNKNOWN, *flags))
        proved = sight is Sight.ABSENT and counts
        assert then.resend == (enforced and not proved), flags
        assert (then.to is State.PENDING) == (proved and not receipt and (enforced or ended)), flags


async def recorded(
    bench: Bench, urls: Urls, lease: Lease, claims: Sequence[Claimed], seen: dict[int, str]
) -> None:
    """Ends the attempts of these claims as said, by operation."""
    receipts: list[Receipt] = []
    unsent, lost = [], []
    for claimed in claims:
        said = seen[claimed.operation_id]
        if said == NOT_BEGUN:
            unsent.append(claimed.attempt_id or 0)
        elif said == LOST:
            lost.append(claimed.attempt_id)
        else:
            receipts.append(_receipt(claimed, Seen(said), None))
    await bench.ledger.record(receipts)
    await bench.ledger.unsend(unsent)
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(
            "UPDATE remit.attempts SET send_by = now() - interval '1 hour' WHERE id = ANY (%s)", [lost]
        )
    await bench.sql("SELECT remit.tidy()")
    await bench.database.rows("clear_gates", run=lease.run_id, token=lease.token)


async def claimed(bench: Bench, lease: Lease, ids: Sequence[int]) -> list[Claimed]:
    now = await bench.ledger.now()
    return await bench.ledger.claim(lease, ids, now, 30.0, bench.runner._terms)


async def looked(bench: Bench, ways: dict[int, str]) -> None:
    """One look at what is not known: unreadable where the key protects, or absent after the bound."""

    def look(item: Due) -> tuple[Sighting, Look]:
        sight = Sight.UNREADABLE if ways[item.operation_id] == "resend" else Sight.ABSENT
        resend = sight is Sight.UNREADABLE
        facts = Look(sight, State.UNKNOWN, not resend, resend, True, False, True, False)
        return Sighting(item.key, sight, "test", "", complete=True), facts

    for item in [due for due in await bench.ledger.due(None, 1_000) if due.state is State.UNKNOWN]:
        if item.operation_id in ways:
            sighting, facts = look(item)
            await bench.ledger.settle([_settlement(item, sighting, after_look(facts))])


async def test_two_attempts_leave_what_the_model_says(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """All combinations in one ledger: state, fact, doubt, wire key, generation and the share of the limit."""
    every = list(pairs())
    subjects = [f"customer:c-{number}" for number in range(1001, 1001 + len(every))]
    lease = await bench.run_over(tokens, subjects)
    ids = await bench.propose(lease, "credit", subjects, obligations=limited(count=1_000))
    by_id = dict(zip(ids, every, strict=True))
    first = await claimed(bench, lease, ids)
    assert {one.refused for one in first} == {None}
    await recorded(bench, ledger_database, lease, first, {id_: p.first for id_, p in by_id.items()})
    await looked(bench, {id_: p.way for id_, p in by_id.items()})
    second = await claimed(bench, lease, ids)
    told = {one.operation_id: one.refused for one in second}
    barred = {id_ for id_, p in by_id.items() if p.first == "key_reused"}
    assert {id_ for id_, why in told.items() if why is not None} == barred
    assert {told[id_] for id_ in barred} == {"case"}, "a conflict about the key is a person's matter"
    going = [one for one in second if one.refused is None]
    await recorded(bench, ledger_database, lease, going, {id_: p.second for id_, p in by_id.items()})
    for one in going:
        await _compare(bench, one.operation_id, by_id[one.operation_id])


async def _compare(bench: Bench, id_: int, pair: Pair) -> None:
    row = await bench.operation(id_)
    end = expected(pair.way, pair.second)
    assert f"{row['state']} {row['closed'] or ''}".strip() == end, pair
    assert row["doubt"] == (end == "UNKNOWN"), pair
    if pair.way == "resend":
        assert row["fact"] in ("UNKNOWN", "IN_PROGRESS"), pair
    # A final answer under the first key, and absence beside it: only then does the second attempt have another one.
    first_key_over = pair.first == "stored_failure" and pair.way == "absent"
    assert row["generation"] == 1 + first_key_over + (end == "CLOSED refused"), pair
    attempts = await bench.database.rows("attempts", id=id_)
    assert len({attempt["wire_key"] for attempt in attempts}) == 1 + first_key_over, pair
    proved = pair.way != "resend"
    assert attempts[0]["no_effect"] == proved, pair
    shares = await bench.sql("SELECT 1 AS one FROM remit.reservations WHERE operation_id = %s", id_)
    assert len(shares) == (0 if end.partition(" ")[0] in ("PENDING", "CLOSED") else 1), pair
