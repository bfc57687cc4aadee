"""LangGraph's Postgres saver on our pool, with a serializer that can build nothing but plain data.

A checkpoint that names a class is refused (F32), state is JSON primitives (F30), and a stale runner's write is refused
by the triggers on `checkpoints` and `checkpoint_writes` (DESIGN section 5).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from remit.checkpoints.database import Pool
from remit.tools.errors import RemitError
from remit.tools.ports import FaultPoint, Reach, inert

_ALLOWED = {("langgraph.types", "Interrupt")}
"""What LangGraph itself writes beside our state. Nothing else may be rebuilt, whatever a row says."""


class Unreadable(RemitError):
    """A checkpoint cannot be read safely. It is kept and quarantined; the run goes on in a fresh thread."""


class _Strict(JsonPlusSerializer):
    """Loads plain data and LangGraph's own interrupt, and raises Unreadable at anything else."""

    def __init__(self) -> None:
        super().__init__(
            pickle_fallback=False, allowed_msgpack_modules=None, __unpack_ext_hook__=self._rebuild
        )
        self._safe = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """As the base class, for the two forms that it writes for plain data."""
        if data[0] not in {"msgpack", "null", "bytes", "bytearray"}:
            raise Unreadable(
                f"A checkpoint holds a value of the form {data[0]!r}. It is quarantined.", code="quarantined"
            )
        try:
            return super().loads_typed(data)
        except ValueError as error:
            # ormsgpack hides what the hook below raised; bytes that are no msgpack at all end here as well.
            raise Unreadable(
                "A checkpoint holds a value that is not plain data. It is quarantined.", code="quarantined"
            ) from error

    def _rebuild(self, code: int, data: bytes) -> Any:
        named = ormsgpack.unpackb(data, ext_hook=self._rebuild, option=ormsgpack.OPT_NON_STR_KEYS)
        if not isinstance(named, list | tuple) or tuple(named[:2]) not in _ALLOWED:
            raise ValueError("a class that has no place in a checkpoint")
        return self._safe.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data))))


_WRITE = """
INSERT INTO checkpoint_writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob, run_token)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) """

_KEEP_FIRST = _WRITE + "DO NOTHING"
_KEEP_LAST = (
    _WRITE
    + """DO UPDATE SET
    channel = excluded.channel, type = excluded.type, blob = excluded.blob, run_token = excluded.run_token"""
)


class FencedSaver(AsyncPostgresSaver):
    """The stock saver; a node's results name their runner as well, so that the trigger can refuse them.

    `reach` is a fault hook for tests, called around what is written.
    """

    reach: Reach = staticmethod(inert)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As the base class. Raises psycopg's error with SQLSTATE RM020 for a runner that was taken over."""
        await self.reach(FaultPoint.BEFORE_CHECKPOINT)
        put = await super().aput(config, checkpoint, metadata, new_versions)
        await self.reach(FaultPoint.AFTER_CHECKPOINT)
        return put

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As the base class. Raises psycopg's error with SQLSTATE RM020 for a runner that was taken over."""
        place = config["configurable"]
        rows = await asyncio.to_thread(
            self._dump_writes,
            place["thread_id"],
            place["checkpoint_ns"],
            place["checkpoint_id"],
            task_id,
            task_path,
            writes,
        )
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        token = place.get("run_token")
        await self.reach(FaultPoint.BEFORE_WRITES)
        async with self._cursor(pipeline=True) as cursor:
            await cursor.executemany(_KEEP_LAST if special else _KEEP_FIRST, [(*row, token) for row in rows])
        await self.reach(FaultPoint.AFTER_WRITES)


def saver(pool: Pool, reach: Reach = inert) -> AsyncPostgresSaver:
    """The saver of every graph. Its tables are made by the migrations, never by a worker (F33)."""
    made = FencedSaver(pool, serde=_Strict())
    made.reach = reach
    return made


def thread_config(run_id: str, thread: int, token: int, fingerprint: str) -> RunnableConfig:
    """The config of one run's live thread. `run_token` and `graph` appear in each checkpoint's metadata."""
    return {
        "configurable": {"thread_id": f"{run_id}/{thread}", "run_token": str(token), "graph": fingerprint},
        "recursion_limit": 200,
    }
