"""What may be forgotten, and what never is: retention keeps paused runs and whatever a later key is judged by (F36)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.tools.errors import Refused
from tests.fixtures import Bench, Tokens

KEPT = (
    *("operations", "attempts", "evidence", "approvals", "approval_items", "votes", "proposals", "plans"),
    *("mandates", "runs", "threads", "orders", "cases", "statements", "tokens"),
)


async def aged(urls: Urls, *statements: str) -> None:
    """What happened happened three days ago."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        for statement in statements:
            await owner.execute(statement.encode())


async def forgotten(bench: Bench, tokens: Tokens, days: int = 2) -> dict[str, int]:
    rows = await bench.database.rows("forget", secret=tokens.administrator, days=days)
    return {row["what"]: row["removed"] for row in rows}


async def counts(bench: Bench, *tables: str) -> dict[str, Any]:
    return {
        table: (await bench.sql(f"SELECT count(*) AS rows FROM remit.{table}"))[0]["rows"]  # noqa: S608 - of this file
        for table in tables
    }


async def test_only_an_administrator_lets_things_be_forgotten_and_never_the_last_day(
    bench: Bench, tokens: Tokens
) -> None:
    """Nobody else's word, and no number of days that would take what is going on."""
    with pytest.raises(Refused, match="only an administrator"):
        await bench.database.rows("forget", secret=tokens.finance_lead, days=30)
    with pytest.raises(Refused, match="at least 1"):
        await bench.database.rows("forget", secret=tokens.administrator, days=0)


async def test_whatever_a_later_key_is_judged_by_stays(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """All of the ledger's tables are as they were, however old; the journal has one row more, which says who did it."""
    lease = await bench.run_over(tokens, affected[:3])
    await bench.settled(lease, await bench.propose(lease, "credit", affected[:3]))
    await bench.sql("SELECT remit.release_run(%s, %s, 'COMPLETED', '', '{}')", lease.run_id, lease.token)
    await aged(ledger_database, "UPDATE remit.runs SET ended_at = now() - interval '3 days'")
    before, journal = await counts(bench, *KEPT), await counts(bench, "journal")
    await forgotten(bench, tokens)
    assert await counts(bench, *KEPT) == before
    assert before["attempts"] == 3
    assert (await counts(bench, "journal"))["journal"] == journal["journal"] + 1
    (row,) = await bench.sql("SELECT data FROM remit.journal WHERE kind = 'forgotten'")
    assert row["data"] == {"by": "administrator", "older_than_days": 2}


async def test_dead_workers_go_unless_they_sent_something(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """One that made an attempt is what a later proof of its death, or a late receipt, is about."""
    lease = await bench.run_over(tokens, affected[:1])
    await bench.settled(lease, await bench.propose(lease, "credit", affected[:1]))
    for name, dead in (("w-old", "now() - interval '3 days'"), ("w-new", "now()"), ("w-alive", "NULL")):
        await aged(
            ledger_database,
            f"INSERT INTO remit.workers (id, host, pid, lock_path, dead_at) VALUES ('{name}', 'h', 1, '', {dead})",  # noqa: S608
        )
    mine = f"UPDATE remit.workers SET dead_at = now() - interval '3 days' WHERE id = '{bench.worker.id}'"  # noqa: S608
    await aged(ledger_database, mine)
    assert (await forgotten(bench, tokens))["workers"] == 1
    left = {row["id"] for row in await bench.sql("SELECT id FROM remit.workers")}
    assert left == {bench.worker.id, "w-new", "w-alive"}


async def test_events_go_when_their_business_is_over(
    bench: Bench, tokens: Tokens, ledger_database: Urls, affected: list[str]
) -> None:
    """Those of an operation that goes on are kept, however old; refused ones are only numbers."""
    lease = await bench.run_over(tokens, affected[:2])
    over, going = await bench.propose(lease, "credit", affected[:2])
    await aged(
        ledger_database,
        f"UPDATE remit.operations SET state = 'CLOSED', closed = 'cancelled', version = 2 WHERE id = {over}",  # noqa: S608
        *(
            "INSERT INTO remit.events (receiver, id, type, at, operation_id, due, received_at)"  # noqa: S608
            f" VALUES ('payments', '{id_}', 't', now(), {operation}, false, now() - interval '{days} days')"
            for id_, operation, days in (("a", over, 3), ("b", going, 3), ("c", "NULL", 3), ("d", over, 1))
        ),
        "INSERT INTO remit.refused_events VALUES ('payments', 'forged', 7, now() - interval '3 days')",
    )
    assert (await forgotten(bench, tokens))["events"] == 3
    assert [row["id"] for row in await bench.sql("SELECT id FROM remit.events ORDER BY id")] == ["b", "d"]
