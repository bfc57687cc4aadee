"""Threads can be thrown away: F29, F30, F32. The ledger holds everything, so a fresh thread completes the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from psycopg import sql

from remit.checkpoints.embedded_access import Urls
from remit.graph.model import Reply
from remit.graph.state import fits, initial
from tests.graph.agents import FEW, LIST, Agent, Script


async def threads(agent: Agent, run: str) -> list[str]:
    return [row["state"] for row in await agent.bench.database.rows("threads", run=run)]


async def test_a_run_that_was_paused_while_the_graph_changed_completes_in_a_fresh_thread(
    agent: Agent,
) -> None:
    """The old thread is left, the last plan is taken up again, and the approval still counts."""
    run, _ = await agent.approved()
    agent.driver.fingerprint = "0" * 12
    assert (await agent.finished(run)).status == "COMPLETED"
    assert await threads(agent, run) == ["LEFT", "LIVE"]
    assert (await agent.row(run))["fingerprint"] == "0" * 12
    assert agent.breaches(final=True) == []


async def test_a_run_that_was_killed_in_its_plan_while_the_graph_changed_completes(agent: Agent) -> None:
    """Nothing was stored but the start of the run; the fresh thread begins at the beginning."""
    run = await agent.start()
    asked = asyncio.Event()

    class Endless(Script):
        async def plan(self, messages: Any, tools: Any) -> Reply:
            asked.set()
            await asyncio.Event().wait()
            return LIST

    driving = asyncio.create_task(agent.driver_with(model=Endless()).drive(run))
    await asked.wait()
    driving.cancel()
    await asyncio.wait([driving])
    agent.driver.fingerprint = "0" * 12
    assert (await agent.drive(run)).status == "PAUSED_AWAITING_APPROVAL"
    assert await threads(agent, run) == ["LEFT", "LIVE"]


async def test_a_thread_that_ended_without_its_run_is_left_and_the_end_is_found_again(
    agent: Agent, ledger_database: Urls
) -> None:
    """Killed after the last checkpoint and before the run's row: the same end, by the same facts."""
    run, _ = await agent.approved()
    end = await agent.finished(run)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.runs SET ended_at = NULL, status = 'RUNNING' WHERE id = %s", [run])
    again = await agent.drive(run)
    assert (again.status, again.reason) == (end.status, end.reason)
    assert await threads(agent, run) == ["LEFT", "LIVE"]
    assert agent.breaches(final=True) == []


CLASS = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", "touch broken-in"))))
CONSTRUCTOR = ormsgpack.packb(
    ormsgpack.Ext(5, ormsgpack.packb(("remit.graph.state", "State", {}, "model_validate")))
)

BROKEN_BLOBS = {
    "a class to be called": ("msgpack", CLASS),
    "a class to be rebuilt": ("msgpack", CONSTRUCTOR),
    "bytes that are no value": ("msgpack", b"\xc1\xff\xff"),
    "half a value": ("msgpack", b"\x92\x01"),
    "a pickle": ("pickle", b"\x80\x04N."),
    "a value of another kind": ("msgpack", ormsgpack.packb(["approval"])),
    "a count that is text": ("msgpack", ormsgpack.packb({"approval": "24"})),
}
BROKEN_CHECKPOINTS = {
    "another version of the state": "jsonb_set(checkpoint, '{channel_values,v}', '2')",
    "the state of another run": "jsonb_set(checkpoint, '{channel_values,run_id}', '\"run-000000\"')",
    "a plan that is text": "jsonb_set(checkpoint, '{channel_values,plan}', '\"2\"')",
    "a field that is gone": "checkpoint #- '{channel_values,run_id}'",
    "no versions": "checkpoint - 'channel_versions'",
    "an empty object": "'{}'::jsonb",
    "a list": "'[]'::jsonb",
}


async def test_a_thread_that_cannot_be_read_safely_is_quarantined_and_the_run_completes(
    agent: Agent, ledger_database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way of breaking a checkpoint, one thread after the other: kept and shown, nothing imported, nothing lost."""
    monkeypatch.chdir(tmp_path)
    await agent.world.control.add_fault("payments", "refuse")
    run, end = await agent.started()
    assert end.waits["receiver"] == FEW
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        for number, what in enumerate([*BROKEN_BLOBS, *BROKEN_CHECKPOINTS], start=1):
            await _break(owner, f"{run}/{number}", what)
            assert (await agent.drive(run, by_person=True)).waits == end.waits, what
            assert await threads(agent, run) == ["QUARANTINED"] * number + ["LIVE"], what
    assert not (tmp_path / "broken-in").exists()
    await agent.world.control.clear_faults()
    await agent.drive(run, by_person=True)
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"
    assert (agent.breaches(final=True), len(agent.model.asked)) == ([], 3)


class Killed(BaseException):
    """Ends a node as a kill does: no handler of anybody's sees it."""


async def test_a_node_that_is_killed_after_the_provider_accepted_repeats_no_effect(agent: Agent) -> None:
    """It is executed again from whatever checkpoint there is, in every durability mode; the ledger knows (F29)."""
    run, _ = await agent.started()
    ids = [operation["id"] for operation in await agent.operations("credit")]

    async def killed(*_: object) -> int:
        raise Killed

    for number, durability in enumerate(("sync", "async", "exit"), start=1):
        await agent.approve(only=ids[number - 1 : number])
        lease = await agent.bench.leased(run, seconds=5.0)
        config, given = await agent.driver._thread(lease, await agent.row(run))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agent.deps.runner, "look", killed)
            with pytest.raises(Killed):
                await agent.driver.graph.ainvoke(given, config, durability=durability)  # type: ignore[call-overload]
        await agent.bench.database.rows(
            "release_run", run=run, token=lease.token, status="RUNNING", reason="", waits="{}"
        )
        assert len(agent.records()["credits"]) == number
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []


def test_only_this_version_of_the_state_of_this_run_fits() -> None:
    """Every field and type is checked at each load; nothing is coerced and nothing is filled in (F30, F31)."""
    state = dict(initial("run-1", 2))
    assert fits(state, "run-1")
    wrong: list[dict[str, Any]] = [
        {"v": 2},
        {"v": True},
        {"plan": "2"},
        {"plan": -1},
        {"waits": {"approval": 1.0}},
        {"more": 1},
        {"run_id": "run-2"},
    ]
    assert [one for one in wrong if fits(state | one, "run-1")] == []
    assert not fits(None, "run-1")
    assert not fits({"v": 1}, "run-1")


async def _break(owner: psycopg.AsyncConnection[Any], thread: str, what: str) -> None:
    """Spoils the thread's rows as the database's owner, past the triggers."""
    if what in BROKEN_BLOBS:
        kind, blob = BROKEN_BLOBS[what]
        query = "UPDATE checkpoint_blobs SET type = %s, blob = %s WHERE thread_id = %s AND channel = 'waits'"
        changed = await owner.execute(query, [kind, blob, thread])
        assert changed.rowcount > 0
        return
    await owner.execute("ALTER TABLE checkpoints DISABLE TRIGGER USER")
    change = sql.SQL("UPDATE checkpoints SET checkpoint = {} WHERE thread_id = %s")
    changed = await owner.execute(change.format(sql.SQL(BROKEN_CHECKPOINTS[what])), [thread])
    assert changed.rowcount > 0
    await owner.execute("ALTER TABLE checkpoints ENABLE TRIGGER USER")


AGED = (
    """UPDATE remit.checkpoints
    SET checkpoint = jsonb_set(checkpoint, '{ts}', to_jsonb((now() - interval '3 days')::text))""",
    "UPDATE remit.runs SET ended_at = ended_at - interval '3 days'",
)


async def tidied(agent: Agent, urls: Urls) -> int:
    """Forgets what is older than two days, when everything is three days old. How many checkpoints went."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        # The triggers refuse whoever holds no lease, and this is no runner.
        await owner.execute("ALTER TABLE remit.checkpoints DISABLE TRIGGER checkpoints_refuse_stale")
        for statement in AGED:
            await owner.execute(statement.encode())
        await owner.execute("ALTER TABLE remit.checkpoints ENABLE TRIGGER checkpoints_refuse_stale")
    rows = await agent.bench.database.rows("forget", secret=agent.tokens.administrator, days=2)
    return int(rows[0]["removed"])


async def kept(agent: Agent) -> tuple[int, int]:
    """How many checkpoints and how many stored values there are."""
    found = []
    for table in ("checkpoints", "checkpoint_blobs"):
        query = sql.SQL("SELECT count(*) AS count FROM {}").format(sql.Identifier(table))
        async with agent.bench.database.pool.connection() as connection:
            row = await (await connection.execute(query)).fetchone()
            found.append(row["count"] if row else 0)
    return found[0], found[1]


async def kept_of(agent: Agent, run: str) -> int:
    """How many checkpoints there are of the first thread of a run."""
    rows = await agent.bench.sql("SELECT count(*) AS count FROM checkpoints WHERE thread_id = %s", f"{run}/1")
    return int(rows[0]["count"])


async def test_a_paused_run_outlives_retention_on_its_newest_checkpoint(
    agent: Agent, ledger_database: Urls
) -> None:
    """F36: everything but the newest checkpoint goes, and the same thread is carried on to its end."""
    run, _ = await agent.approved()
    before = await kept(agent)
    assert await tidied(agent, ledger_database) == before[0] - 1
    after = await kept(agent)
    assert after[0] == 1
    assert 0 < after[1] < before[1]
    assert (await agent.finished(run)).status == "COMPLETED"
    assert await threads(agent, run) == ["LIVE"]
    assert agent.breaches(final=True) == []


async def test_the_checkpoints_of_an_ended_run_go_and_those_of_one_at_work_stay(
    agent: Agent, ledger_database: Urls
) -> None:
    """Whoever drives a run writes values before the checkpoint that names them, so a held run is left alone."""
    run, _ = await agent.approved()
    assert (await agent.finished(run)).status == "COMPLETED"
    second = await agent.start()
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Waiting(Script):
        async def plan(self, messages: Any, tools: Any) -> Reply:
            asked.set()
            await go_on.wait()
            return await super().plan(messages, tools)

    driving = asyncio.create_task(agent.driver_with(model=Waiting()).drive(second))
    await asked.wait()
    both = [await kept_of(agent, one) for one in (run, second)]
    assert min(both) > 0
    assert await tidied(agent, ledger_database) == both[0]
    assert [await kept_of(agent, one) for one in (run, second)] == [0, both[1]]
    go_on.set()
    assert (await driving).status == "COMPLETED"


async def test_connections_that_end_while_a_thread_waits_for_a_person_cost_nothing(
    agent: Agent, ledger_database: Urls
) -> None:
    """F35: every backend is terminated during the pause; the approval and all that follows go through, once."""
    run, end = await agent.started()
    assert end.waits["approval"] > 0
    async with await psycopg.AsyncConnection.connect(ledger_database.app_url, autocommit=True) as killer:
        await killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
        )
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"
    assert agent.breaches(final=True) == []
