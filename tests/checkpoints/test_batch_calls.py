"""One call that carries several operations: each is judged by what the answer says of it, and of nothing else (F48)."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from remit.sandbox import dump
from remit.sandbox.store import Store, database
from remit.sandbox.worlds import World
from remit.tools.actions import Request
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Item
from remit.tools.payments import IssueCredit
from remit.tools.ports import Lease
from remit.tools.transport import Response
from tests.fixtures import Bench, Tokens, batching

CREDIT, BATCH = "POST /credits", "POST /credits/batch"
FEW = [f"customer:c-{number}" for number in range(101, 111)]


@pytest.fixture
def catalogue() -> Catalogue:
    """The tools of `bench`: credits are sent up to a hundred in one call."""
    return batching(100)


async def batch_of(bench: Bench, tokens: Tokens, subjects: list[str]) -> tuple[Lease, list[int]]:
    lease = await bench.run_over(tokens, subjects)
    return lease, await bench.propose(lease, "credit", subjects)


async def states_by_subject(bench: Bench) -> dict[str, str]:
    rows = await bench.sql("SELECT subject, state FROM remit.operations")
    return {row["subject"]: row["state"] for row in rows}


def credited(bench: Bench) -> Counter[str]:
    return Counter(credit["customer"] for credit in dump(bench.home)["credits"])


def a_hundred_customers(world: World) -> list[str]:
    """The company's sixty and forty more."""
    with closing(Store(database(world.home))) as store, store.transaction():
        account = "INSERT INTO accounts VALUES (?, ?, ?, 'basic', '2027-03-04', 1)"
        for number in range(301, 341):
            store.db.execute(account, (f"c-{number}", f"Customer {number}", f"c-{number}@example.test"))
    return [f"customer:c-{n}" for n in (*range(101, 131), *range(201, 231), *range(301, 341))]


async def test_of_a_hundred_in_one_call_only_the_three_that_failed_are_sent_again(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """200 with three failures in it: the three are asked for and sent again alone, and the totals are right (F48)."""
    subjects = a_hundred_customers(world)
    failing = {"c-104", "c-205", "c-333"}
    for customer in failing:
        await world.control.add_fault("payments", "item_fails", BATCH, match={"customer": customer})
    lease, ids = await batch_of(bench, tokens, subjects)
    await bench.send(lease)
    unknown = {s for s, state in (await states_by_subject(bench)).items() if state == "UNKNOWN"}
    assert unknown == {f"customer:{customer}" for customer in failing}
    await bench.settled(lease, ids)
    assert Counter(call for call in bench.transport.called if call in (CREDIT, BATCH)) == {
        BATCH: 1,
        CREDIT: 3,
    }
    assert credited(bench) == Counter(subject.partition(":")[2] for subject in subjects)
    assert sum(credit["amount_minor"] for credit in dump(bench.home)["credits"]) == 100 * 1000
    tried = await bench.sql("SELECT count(*) AS count, count(DISTINCT wire_key) AS keys FROM remit.attempts")
    assert tried == [{"count": 103, "keys": 100}]


@pytest.mark.parametrize("fault", ["item_left_out", "item_twice"])
async def test_an_item_that_is_not_mentioned_exactly_once_is_unknown_and_settled_by_the_records(
    bench: Bench, tokens: Tokens, world: World, fault: str
) -> None:
    """No word of it, or two: nothing is concluded from it, the others stand, and nothing is sent again (F48)."""
    await world.control.add_fault("payments", fault, BATCH, match={"customer": "c-104"})
    lease, ids = await batch_of(bench, tokens, FEW)
    await bench.send(lease)
    states = await states_by_subject(bench)
    assert states.pop("customer:c-104") == "UNKNOWN"
    assert set(states.values()) == {"ACCEPTED"}
    await bench.settled(lease, ids)
    assert bench.transport.called.count(CREDIT) == 0
    assert set(credited(bench).values()) == {1}


async def test_a_batch_that_nobody_answers_in_time_is_unknown_item_by_item(
    bench: Bench, tokens: Tokens, world: World
) -> None:
    """The time is over for all of them at once; each is asked for by its own reference, and none is sent twice."""
    await world.control.add_fault("payments", "delay_after", BATCH, seconds=1.3)
    lease, ids = await batch_of(bench, tokens, FEW)
    await bench.send(lease)
    assert set((await states_by_subject(bench)).values()) == {"UNKNOWN"}
    await bench.settled(lease, ids)
    assert (bench.transport.called.count(BATCH), bench.transport.called.count(CREDIT)) == (1, 0)
    assert set(credited(bench).values()) == {1}


async def test_an_item_that_is_refused_closes_alone(bench: Bench, tokens: Tokens) -> None:
    """A currency that the service does not take: that one is CLOSED(refused), the others are on their way (F48)."""
    lease, ids = await batch_of(bench, tokens, FEW[1:])
    wrong = {"amount_minor": 1000, "currency": "XXX"}
    (refused,) = await bench.propose(lease, "credit", ["customer:c-230"], said=wrong)
    await bench.send(lease)
    row = await bench.operation(refused)
    assert (row["state"], row["closed"], row["generation"]) == ("CLOSED", "refused", 2)
    await bench.settled(lease, ids)
    assert bench.transport.called.count(BATCH) == 1


@pytest.mark.parametrize(
    ("fault", "obstacle"),
    [("expired_credential", "receiver"), ("rate_limit", "backoff"), ("error_before", "verification")],
)
async def test_what_comes_before_the_content_holds_for_every_item(
    bench: Bench, tokens: Tokens, world: World, fault: str, obstacle: str
) -> None:
    """401 and 429 sent nothing of the batch; a 500 for all of it says nothing of any."""
    await world.control.add_fault("payments", fault, BATCH, seconds=1)
    lease, ids = await batch_of(bench, tokens, FEW)
    await bench.send(lease)
    assert set(await bench.obstacles(ids)) == {obstacle}
    await bench.database.rows("clear_gates", run=lease.run_id, token=lease.token)
    await bench.settled(lease, ids)
    assert set(credited(bench).values()) == {1}


def _result(key: str, status: int = 202) -> dict[str, Any]:
    return {"key": key, "status": status, "replayed": False, "body": {}}


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([_result("a"), _result("b")], {"a", "b"}),
        ([_result("a")], {"a"}),
        ([_result("a"), _result("a", 422), _result("b")], {"b"}),
        ([_result("a"), _result("c"), _result("c")], {"a"}),
        ([], set()),
        ([{"key": "a"}], set()),
        ("no list", set()),
    ],
)
def test_only_what_was_asked_and_is_said_once_counts(results: Any, said: set[str]) -> None:
    """Left out, twice, unknown, or no such answer at all: what is not told exactly once is not told (F48)."""
    items = [Item(key, Request(method="POST", path="/credits", body={})) for key in ("a", "b")]
    assert IssueCredit().split(Response(200, {"results": results}), items).keys() == said
