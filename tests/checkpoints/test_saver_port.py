"""One contract for two savers: LangGraph's own in memory, and ours on Postgres with its fence and its strict reader.

What the graph relies on when it is carried on by another process: what was put is got, nothing else is, and a node's
results stay beside the checkpoint that they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from remit.checkpoints.saver import saver, thread_config
from tests.fixtures import Bench, Tokens


@dataclass
class Port:
    """One saver with two threads that may be written."""

    saver: BaseCheckpointSaver[Any]
    config: RunnableConfig
    other: RunnableConfig

    def at(self, where: RunnableConfig) -> RunnableConfig:
        """The first thread's config with a checkpoint as the latest."""
        return {"configurable": {**self.config["configurable"], **where["configurable"]}}

    async def put(self, config: RunnableConfig, **values: Any) -> RunnableConfig:
        """A further checkpoint with these channel values, all of them new."""
        versions = {name: self.saver.get_next_version(None, None) for name in values}
        made: Checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
        return await self.saver.aput(config, made, {"source": "loop", "step": 1, "parents": {}}, versions)


@pytest.fixture(params=["memory", "postgres"])
async def port(request: pytest.FixtureRequest, bench: Bench, tokens: Tokens) -> Port:
    first = await bench.run_over(tokens, ["customer:c-104"])
    run = await bench.database.row("run", run=first.run_id)
    assert run is not None
    started = await bench.database.rows(
        "start_run",
        secret=tokens.support_manager,
        run="run-second",
        mandate=run["mandate_hash"],
        agent_version="test",
        fingerprint="",
    )
    second = await bench.leased(started[0]["id"])
    configs = [thread_config(lease.run_id, 1, lease.token, "g") for lease in (first, second)]
    for config in configs:
        config["configurable"]["checkpoint_ns"] = ""
    made = InMemorySaver() if request.param == "memory" else saver(bench.database.pool)
    return Port(made, *configs)


async def test_a_thread_without_checkpoints_has_none(port: Port) -> None:
    """Not an error, and nothing of another thread."""
    await port.put(port.other, n=1)
    assert await port.saver.aget_tuple(port.config) is None
    assert [one async for one in port.saver.alist(port.config)] == []


async def test_what_was_put_is_got_with_its_metadata(port: Port) -> None:
    """Values of every JSON type, who wrote them, and where the checkpoint is."""
    values = {"n": 2**40, "text": "é\u2028", "flag": True, "none": None, "nested": {"list": [1, [2, {}]]}}
    where = await port.put(port.config, **values)
    got = await port.saver.aget_tuple(port.config)
    assert got is not None
    assert got.checkpoint["channel_values"] == values
    assert got.metadata["step"] == 1
    assert dict(got.metadata)["run_token"] == port.config["configurable"]["run_token"]
    assert got.config["configurable"]["checkpoint_id"] == where["configurable"]["checkpoint_id"]
    assert got.pending_writes == []


async def test_the_latest_is_got_and_an_earlier_one_by_its_id(port: Port) -> None:
    """In order, each naming its parent."""
    first = await port.put(port.config, n=1)
    chained = port.at(first)
    await port.put(chained, n=2)
    latest, earlier = await port.saver.aget_tuple(port.config), await port.saver.aget_tuple(first)
    assert latest is not None
    assert earlier is not None
    assert (latest.checkpoint["channel_values"], earlier.checkpoint["channel_values"]) == ({"n": 2}, {"n": 1})
    assert latest.parent_config is not None
    assert latest.parent_config["configurable"]["checkpoint_id"] == first["configurable"]["checkpoint_id"]
    listed = [one.checkpoint["channel_values"]["n"] async for one in port.saver.alist(port.config)]
    assert listed == [2, 1]


async def test_a_channel_that_did_not_change_is_not_written_again_and_still_got(port: Port) -> None:
    """A checkpoint names the version of each channel; only new versions bring a value."""
    version = port.saver.get_next_version(None, None)
    base: Checkpoint = {
        **empty_checkpoint(),
        "channel_values": {"n": [7]},
        "channel_versions": {"n": version},
    }
    where = await port.saver.aput(
        port.config, base, {"source": "loop", "step": 1, "parents": {}}, {"n": version}
    )
    later: Checkpoint = {
        **empty_checkpoint(),
        "channel_values": {"n": [7]},
        "channel_versions": {"n": version},
    }
    chained = port.at(where)
    await port.saver.aput(chained, later, {"source": "loop", "step": 2, "parents": {}}, {})
    got = await port.saver.aget_tuple(port.config)
    assert got is not None
    assert got.checkpoint["channel_values"] == {"n": [7]}


async def test_results_of_a_node_stay_with_their_checkpoint_and_are_kept_once(port: Port) -> None:
    """The first result of a task counts: a repeated node does not replace what its first execution returned."""
    where = await port.put(port.config, n=1)
    place = port.at(where)
    await port.saver.aput_writes(place, [("n", 2), ("m", {"a": 1})], "task-1")
    await port.saver.aput_writes(place, [("n", 3)], "task-1")
    await port.saver.aput_writes(place, [("n", 4)], "task-2")
    got = await port.saver.aget_tuple(port.config)
    assert got is not None
    assert got.pending_writes is not None
    assert sorted(got.pending_writes, key=str) == [
        ("task-1", "m", {"a": 1}),
        ("task-1", "n", 2),
        ("task-2", "n", 4),
    ]
    await port.put(place, n=2)
    latest = await port.saver.aget_tuple(port.config)
    assert latest is not None
    assert latest.pending_writes == []


async def test_versions_only_rise(port: Port) -> None:
    """The next version of a channel is later than the last one by the saver's own order."""
    versions = [port.saver.get_next_version(None, None)]
    versions += [port.saver.get_next_version(versions[0], None)]
    versions += [port.saver.get_next_version(versions[1], None)]
    assert versions == sorted(versions)
    assert len(set(versions)) == 3
