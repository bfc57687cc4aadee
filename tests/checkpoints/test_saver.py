"""LangGraph's saver on our database: plain data only (F30, F32), nothing from a runner that was taken over (F05)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import ormsgpack
import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from remit.checkpoints.embedded_access import Urls
from remit.checkpoints.saver import Unreadable, saver, thread_config
from remit.tools.ports import Lease
from tests.fixtures import Bench, Tokens


class Counted(TypedDict, total=False):
    """The state of the test's graph."""

    n: int
    seen: dict[str, list[int]]


def graph_over(bench: Bench) -> Any:
    """Two nodes with a pause in between, compiled over a saver of its own."""

    def count(state: Counted) -> Counted:
        return {"n": state.get("n", 0) + 1, "seen": {"n": [state.get("n", 0)]}}

    def wait(state: Counted) -> Counted:
        interrupt({"waits": {"approval": state["n"]}})
        return {}

    graph = StateGraph(Counted)
    graph.add_node("count", count)
    graph.add_node("wait", wait)
    graph.add_edge(START, "count")
    graph.add_edge("count", "wait")
    graph.add_edge("wait", END)
    return graph.compile(checkpointer=saver(bench.database.pool))


async def held(bench: Bench, tokens: Tokens) -> tuple[Lease, RunnableConfig]:
    lease = await bench.run_over(tokens, ["customer:c-104"])
    return lease, thread_config(lease.run_id, 1, lease.token, "g")


async def test_a_pause_survives_the_process(bench: Bench, tokens: Tokens) -> None:
    """State and interrupt are written by one saver and read, resumed and finished by another."""
    lease, config = await held(bench, tokens)
    await graph_over(bench).ainvoke({"n": 4}, config, durability="sync")
    again = graph_over(bench)
    paused = await again.aget_state(config)
    assert [one.value for one in paused.interrupts] == [{"waits": {"approval": 5}}]
    assert paused.values == {"n": 5, "seen": {"n": [4]}}
    assert paused.metadata["run_token"] == str(lease.token)
    await again.ainvoke(Command(resume={"wake": True}), config, durability="sync")
    assert (await again.aget_state(config)).next == ()


def _ext(code: int, value: object) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(value)))


UNSAFE: dict[str, Callable[[Path], tuple[str, bytes]]] = {
    "a call with one argument": lambda mark: ("msgpack", _ext(0, ["os", "system", f"touch {mark}"])),
    "a call with arguments": lambda mark: ("msgpack", _ext(1, ["os", "system", [f"touch {mark}"]])),
    "a call with names": lambda mark: (
        "msgpack",
        _ext(2, ["subprocess", "call", {"args": ["touch", str(mark)]}]),
    ),
    "a method": lambda mark: ("msgpack", _ext(3, ["pathlib", "Path", str(mark), "touch"])),
    "a pydantic class": lambda mark: (
        "msgpack",
        _ext(5, ["remit.tools.actions", "Request", {}, "model_validate"]),
    ),
    "an import": lambda mark: ("msgpack", _ext(0, ["turtledemo", "x", 1])),
    "no list at all": lambda mark: ("msgpack", _ext(0, 7)),
    "inside a list": lambda mark: (
        "msgpack",
        ormsgpack.packb([1, ormsgpack.Ext(0, ormsgpack.packb(["os", "system", "x"]))]),
    ),
    "inside an interrupt": lambda mark: (
        "msgpack",
        _ext(
            2,
            [
                "langgraph.types",
                "Interrupt",
                {"value": ormsgpack.Ext(0, ormsgpack.packb(["os", "system", f"touch {mark}"])), "id": "x"},
            ],
        ),
    ),
    "pickle": lambda mark: ("pickle", b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."),
    "json": lambda mark: (
        "json",
        b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"]}',
    ),
}


async def test_a_checkpoint_that_names_a_class_is_unreadable_and_imports_nothing(
    bench: Bench, tokens: Tokens, ledger_database: Urls, tmp_path: Path
) -> None:
    """F32: whatever form a stored value has, it builds plain data or an interrupt, calls and imports nothing."""
    _, config = await held(bench, tokens)
    graph = graph_over(bench)
    await graph.ainvoke({"n": 4}, config, durability="sync")
    change = "UPDATE remit.checkpoint_blobs SET type = %s, blob = %s WHERE channel = 'seen'"
    mark = tmp_path / "mark"
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        for name, stored in UNSAFE.items():
            assert (await owner.execute(change, stored(mark))).rowcount >= 1
            with pytest.raises(Unreadable, match="quarantined"):
                await graph.aget_state(config)
            assert not mark.exists(), name
    assert "turtledemo" not in sys.modules


async def test_a_runner_that_was_taken_over_writes_no_checkpoint(bench: Bench, tokens: Tokens) -> None:
    """F05: after a takeover the earlier runner's step is refused by the database, and the thread stays where it was."""
    lease, config = await held(bench, tokens)
    graph = graph_over(bench)
    await graph.ainvoke({"n": 4}, config, durability="sync")
    await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
    fresh = thread_config(lease.run_id, 1, (await bench.leased(lease.run_id)).token, "g")
    before = await bench.sql("SELECT count(*) AS count FROM remit.checkpoints")
    with pytest.raises(psycopg.DatabaseError) as refused:
        await graph.ainvoke(Command(resume={"wake": True}), config, durability="sync")
    assert refused.value.sqlstate == "RM020"
    assert await bench.sql("SELECT count(*) AS count FROM remit.checkpoints") == before
    await graph.ainvoke(Command(resume={"wake": True}), fresh, durability="sync")
    assert (await graph.aget_state(fresh)).next == ()


async def test_a_runner_that_was_taken_over_leaves_no_result_of_a_node(bench: Bench, tokens: Tokens) -> None:
    """What a node of the earlier runner returned is not kept beside the checkpoint that its successor resumes from."""
    lease, config = await held(bench, tokens)
    graph = graph_over(bench)
    await graph.ainvoke({"n": 4}, config, durability="sync")
    tuple_ = await graph.checkpointer.aget_tuple(config)
    await bench.sql("SELECT remit.heartbeat(%s, %s, 0)", lease.run_id, lease.token)
    await bench.leased(lease.run_id)
    stale = {"configurable": {**tuple_.config["configurable"], "run_token": str(lease.token)}}
    before = await bench.sql("SELECT * FROM remit.checkpoint_writes ORDER BY task_id, idx")
    for place in (stale, tuple_.config):
        with pytest.raises(psycopg.DatabaseError) as refused:
            await graph.checkpointer.aput_writes(place, [("n", 99)], "task")
        assert refused.value.sqlstate == "RM020"
    assert await bench.sql("SELECT * FROM remit.checkpoint_writes ORDER BY task_id, idx") == before


async def test_a_thread_that_was_left_takes_no_checkpoint(bench: Bench, tokens: Tokens) -> None:
    """When a run goes on in a fresh thread, the old one is closed to everybody, its own runner included."""
    lease, config = await held(bench, tokens)
    graph = graph_over(bench)
    await graph.ainvoke({"n": 4}, config, durability="sync")
    number = await bench.database.value(
        "new_thread",
        run=lease.run_id,
        token=lease.token,
        state="QUARANTINED",
        why="for the test",
        fingerprint="h",
    )
    with pytest.raises(psycopg.DatabaseError):
        await graph.ainvoke(Command(resume={"wake": True}), config, durability="sync")
    fresh = thread_config(lease.run_id, number, lease.token, "h")
    await graph.ainvoke({"n": 0}, fresh, durability="sync")
    states = [(row["number"], row["state"]) for row in await bench.database.rows("threads", run=lease.run_id)]
    assert states == [(1, "QUARANTINED"), (2, "LIVE")]
