"""A ledger that is not on its own server any more, or an older copy: what is noticed, asked and adopted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from remit.checkpoints import Database, Worker
from remit.checkpoints.embedded_access import Urls
from remit.checkpoints.restores import Restores, Verified, watch
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.errors import Refused
from tests.clusters import own_cluster
from tests.fixtures import PURPOSE, Bench, Tokens, limited, mint_tokens, opened_bench


async def standing(database: Database) -> list[dict[str, Any]]:
    """The orders in force."""
    return await database.rows("orders", all=False)


async def change(urls: Urls, statement: str) -> None:
    """One statement of the owner."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(statement.encode())


async def past_the_bound(urls: Urls) -> None:
    """As if everything that was sent before the restore had had the time to show."""
    await change(urls, "UPDATE remit.restores SET noticed_at = noticed_at - interval '1 minute'")


async def verified(bench: Bench, tokens: Tokens, *purposes: str) -> Verified:
    restores = Restores(bench.database, bench.ledger.installation)
    return await restores.verify(bench.catalogue, bench.transport, tokens.support_manager, purposes)


async def restored(bench: Bench, tokens: Tokens, urls: Urls) -> int:
    """A restore that somebody said, long enough ago; the order's number."""
    restores = Restores(bench.database, bench.ledger.installation)
    order = await restores.restored(tokens.support_manager, "")
    await past_the_bound(urls)
    return int(order["id"])


async def credited(world: World, bench: Bench, subject: str, *, cents: int = 1000, times: int = 1) -> None:
    """Effects under this installation's reference that its ledger knows nothing of."""
    memo = f"{bench.ledger.installation}:{PURPOSE}/credit/{subject}/1"
    order = {"cust": subject.partition(":")[2], "cents": cents, "cur": "USD", "memo": memo}
    for _ in range(times):
        assert (await world.ask("payments", "POST", "/legacy/credits", order)).status == 200


async def test_a_claim_on_another_server_is_refused_and_places_the_order(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """The claim itself compares, so a process that lived through the change sends nothing either."""
    lease = await bench.run_over(tokens, affected[:2])
    ids = await bench.propose(lease, "credit", affected[:2])
    for column, other in (("system_identifier", "1"), ("timeline", "000000FF")):
        await change(ledger_database, f"UPDATE remit.installation SET {column} = '{other}'")  # noqa: S608 - of this test
        sent = await bench.send(lease)
        assert (sent.attempted, set(sent.refused.values())) == ([], {"stop"})
        (order,) = await standing(bench.database)
        assert (order["kind"], order["scope"], order["issued_by"]) == ("restore", "all", "database")
        await past_the_bound(ledger_database)
        await verified(bench, tokens, PURPOSE)
        await bench.people.lift(tokens.finance_lead, order["id"])
        assert set(await bench.states(ids)) == {"CLOSED"}
        ids = await bench.propose(lease, "credit", affected[:2])
    await bench.settled(lease, ids)


@pytest.mark.slow
async def test_a_promotion_is_noticed_by_its_timeline(world: World, affected: list[str]) -> None:
    """The same data on the same system: only the timeline tells that a part of it may be missing."""
    async with (
        own_cluster() as cluster,
        opened_bench(cluster.urls.app_url, world.home, world.urls, world.credentials) as bench,
    ):
        tokens = await mint_tokens(bench.people)
        lease = await bench.run_over(tokens, affected[:1])
        await bench.propose(lease, "credit", affected[:1])
        await cluster.promoted()
        sent = await bench.send(lease)
        assert set(sent.refused.values()) == {"stop"}
        assert [order["kind"] for order in await standing(bench.database)] == ["restore"]
    assert dump(world.home)["credits"] == []


async def test_a_restart_is_no_restore(bench: Bench, tokens: Tokens, affected: list[str]) -> None:
    """Another process of the same home on the same ledger finds nothing to say."""
    lease = await bench.run_over(tokens, affected[:1])
    await bench.settled(lease, await bench.propose(lease, "credit", affected[:1]))
    another = await Worker.begin(bench.database, bench.home)
    assert await another.watch(bench.database) is None
    await another.end(bench.database)


async def test_the_lost_time_is_told_once_and_not_by_every_home(
    bench: Bench, tokens: Tokens, ledger_database: Urls, tmp_path: Path
) -> None:
    """A home that saw the lost part too, and comes back after the order was lifted, places no second one."""
    installation = bench.ledger.installation
    early, late = tmp_path / "early", tmp_path / "late"
    for home in (early, late):
        home.mkdir()
        moment = (await bench.ledger.now()).isoformat()
        (home / f"seen-{installation}.json").write_text(f'{{"journal": 999999, "at": "{moment}"}}')
    order = await watch(bench.database, early, installation)
    assert order is not None
    assert await watch(bench.database, early, installation) == order
    await past_the_bound(ledger_database)
    await change(ledger_database, "UPDATE remit.restores SET noticed_at = noticed_at + interval '1 minute'")
    await verified_and_lifted(bench, tokens, ledger_database, order)
    assert await watch(bench.database, late, installation) is None


async def verified_and_lifted(bench: Bench, tokens: Tokens, urls: Urls, order: int) -> None:
    await change(urls, "UPDATE remit.restores SET noticed_at = noticed_at - interval '1 minute'")
    await verified(bench, tokens, PURPOSE)
    await change(urls, "UPDATE remit.restores SET noticed_at = noticed_at + interval '1 minute'")
    await bench.people.lift(tokens.finance_lead, order)


async def test_an_order_is_lifted_when_every_purpose_was_verified_and_by_a_lead(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """Not by the database's own word, not half verified, and not by anybody."""
    await bench.run_over(tokens, affected[:1])
    await change(ledger_database, "UPDATE remit.installation SET timeline = '000000FF'")
    order = await watch(bench.database, bench.home, bench.ledger.installation)
    assert order is not None
    with pytest.raises(Refused, match="a finance lead or an administrator"):
        await bench.people.lift(tokens.support_manager, order)
    with pytest.raises(Refused, match="may not show yet"):
        await verified(bench, tokens, PURPOSE)
    await past_the_bound(ledger_database)
    await verified(bench, tokens)
    with pytest.raises(Refused, match=PURPOSE):
        await bench.people.lift(tokens.finance_lead, order)
    await verified(bench, tokens, PURPOSE)
    await bench.people.lift(tokens.finance_lead, order)
    assert await standing(bench.database) == []


async def test_what_waits_is_looked_up_and_not_sent_where_its_effect_is_there(
    bench: Bench, tokens: Tokens, ledger_database: Urls, world: World, affected: list[str]
) -> None:
    """Proposed before the backup and sent after it: the effect settles it. Others' effects are left alone."""
    lease = await bench.run_over(tokens, affected[:2])
    first = min(affected[:2])
    sent, unsent = await bench.propose(lease, "credit", affected[:2])
    await credited(world, bench, first)
    stranger = {
        "cust": "c-205",
        "cents": 1,
        "cur": "USD",
        "memo": f"another:{PURPOSE}/credit/customer:c-205/1",
    }
    await world.ask("payments", "POST", "/legacy/credits", stranger)
    order = await restored(bench, tokens, ledger_database)
    found = await verified(bench, tokens, PURPOSE)
    assert (found.lost, found.found) == ([f"{PURPOSE}/credit/{first}/1"], {PURPOSE: 1})
    assert await bench.states([sent, unsent]) == ["UNKNOWN", "PENDING"]
    await bench.people.lift(tokens.finance_lead, order)
    await bench.settled(lease, [sent])
    assert await bench.states([unsent]) == ["CLOSED"]
    assert len(dump(world.home)["credits"]) == 2
    kinds = [
        row["kind"]
        for row in await bench.sql("SELECT kind FROM remit.journal WHERE operation_id = %s ORDER BY id", sent)
    ]
    assert kinds[:4] == ["operation.proposed", "operation.sending", "attempts.added", "operation.unknown"]


@pytest.mark.parametrize("there", [(900, 1, "different", "SETTLED"), (1000, 2, "multiple", "UNKNOWN")])
async def test_a_lost_effect_that_is_not_what_is_proposed_now_is_a_case_and_never_a_second_effect(
    bench: Bench,
    tokens: Tokens,
    world: World,
    affected: list[str],
    *,
    ledger_database: Urls,
    there: tuple[int, int, str, str],
) -> None:
    """Another amount, or the effect twice: a person's matter."""
    cents, times, case, state = there
    lease = await bench.run_over(tokens, affected[:1])
    await credited(world, bench, affected[0], cents=cents, times=times)
    order = await restored(bench, tokens, ledger_database)
    await verified(bench, tokens, PURPOSE)
    await bench.people.lift(tokens.finance_lead, order)
    (id_,) = await bench.propose(lease, "credit", affected[:1])

    async def told() -> bool:
        return await bench.cases() == [case]

    await bench.carry_on(lease, told)
    assert await bench.states([id_]) == [state]
    assert len(dump(world.home)["credits"]) == times


async def test_a_lost_effect_is_never_sent_again_where_its_record_cannot_be_read(
    bench: Bench, tokens: Tokens, ledger_database: Urls, world: World, affected: list[str]
) -> None:
    """The receiver's memory of a key is no ground to resend what was sent at a time that nobody knows."""
    lease = await bench.run_over(tokens, affected[:1])
    await credited(world, bench, affected[0])
    order = await restored(bench, tokens, ledger_database)
    await verified(bench, tokens, PURPOSE)
    await bench.people.lift(tokens.finance_lead, order)
    (id_,) = await bench.propose(lease, "credit", affected[:1])
    sought: dict[str, object] = {
        "references": f"{bench.ledger.installation}:{PURPOSE}/credit/{affected[0]}/1"
    }
    await world.control.add_fault("payments", "error_before", "POST /credits/search", match=sought, times=3)
    before = len(bench.transport.called)
    await bench.settled(lease, [id_])
    assert "POST /credits" not in bench.transport.called[before:]
    assert len(dump(world.home)["credits"]) == 1


async def test_a_lost_effect_takes_its_share_of_every_limit(
    bench: Bench, tokens: Tokens, ledger_database: Urls, world: World, affected: list[str]
) -> None:
    """One credit is allowed, and there is one: the next customer's waits."""
    lease = await bench.run_over(tokens, affected[:2])
    await credited(world, bench, affected[0])
    order = await restored(bench, tokens, ledger_database)
    await verified(bench, tokens, PURPOSE)
    await bench.people.lift(tokens.finance_lead, order)
    await bench.settled(
        lease, await bench.propose(lease, "credit", affected[:1], obligations=limited(count=1))
    )
    await bench.propose(lease, "credit", affected[1:2], obligations=limited(count=1))
    assert list((await bench.send(lease)).refused.values()) == ["limit"]
    assert len(dump(world.home)["credits"]) == 1


async def test_a_known_effect_is_not_lost(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """What the restored ledger itself has as sent is found and counted, and is nothing new."""
    lease = await bench.run_over(tokens, affected[:2])
    await bench.settled(lease, await bench.propose(lease, "credit", affected[:2]))
    await restored(bench, tokens, ledger_database)
    found = await verified(bench, tokens, PURPOSE)
    assert (found.lost, found.found, found.unlisted) == ([], {PURPOSE: 2}, ["credit.reverse"])
