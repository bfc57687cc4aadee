"""Notices leave the outbox: a signed post, or a command of the operator's. What is told is written by the database.

Keeps "once" as far as it can be kept: a notice is recorded as told after somebody took it, so a crash in between posts
the same id again, and whoever is told drops what it knows. Nothing is lost, and nothing but ids and counts leaves here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import aiohttp

from remit.checkpoints.database import Database, Row
from remit.tools.actions import canonical
from remit.tools.errors import NotSent
from remit.tools.signatures import signed

SECONDS = 5.0
"""For one post or one command: a chat's webhook answers within a second, and the next try is never far."""

_TAKEN_SECONDS = 30.0
"""How long a worker has for what it took, before another one posts it as well."""

_BATCH = 20

Channel = Callable[[str, bytes], Awaitable[None]]
"""Hands one notice over: its id, and its body. Raises NotSent with a sentence when it was not taken."""


class Notices:
    """The outbox of one process. `taken_seconds`: after how long another worker tries what this one took."""

    def __init__(self, database: Database, channel: Channel, taken_seconds: float = _TAKEN_SECONDS) -> None:
        self._database = database
        self._channel = channel
        self._taken_seconds = taken_seconds

    async def deliver(self) -> int:
        """Post what is due, at most one batch. Returns how many were told."""
        due = await self._database.rows("take_notices", limit=_BATCH, seconds=self._taken_seconds)
        errors = await asyncio.gather(*(self._post(notice) for notice in due))
        told = [notice["id"] for notice, error in zip(due, errors, strict=True) if error is None]
        if told:
            await self._database.rows("notices_told", ids=told)
        for sentence in sorted({error for error in errors if error is not None}):
            failed = [notice["id"] for notice, error in zip(due, errors, strict=True) if error == sentence]
            await self._database.rows("notices_failed", ids=failed, error=sentence)
        return len(told)

    async def _post(self, notice: Row) -> str | None:
        """Why it was not taken, or None."""
        try:
            await self._channel(notice["id"], body_of(notice))
        except NotSent as error:
            return str(error)[:300]
        return None


def body_of(notice: Row) -> bytes:
    """The JSON of one notice: id, type, time, run and data, the same bytes at every try."""
    content = {
        "id": notice["id"],
        "type": notice["kind"],
        "timestamp": notice["at"].isoformat(),
        "run": notice["run_id"],
        "data": notice["data"],
    }
    return canonical(content)


def posting(session: aiohttp.ClientSession, url: str, key: bytes) -> Channel:
    """A signed post; taken is any answer of 200 to 299. Redirects are not followed: the body is for that address."""

    async def post(id_: str, body: bytes) -> None:
        headers = {"content-type": "application/json", **signed(key, id_, int(time.time()), body)}
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotSent(
                f"Nobody took it ({type(error).__name__}). Look at REMIT_NOTIFY_URL.", code="notice"
            ) from error
        if not 200 <= status < 300:
            raise NotSent(f"It was answered with {status}. Look at REMIT_NOTIFY_URL.", code="notice")

    return post


def running(command: Sequence[str]) -> Channel:
    """A command that gets the notice on its standard input; taken is exit code 0. No shell reads it."""

    async def run(id_: str, body: bytes) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise NotSent(
                f"It cannot be run ({error.strerror}). Look at REMIT_NOTIFY_COMMAND.", code="notice"
            ) from error
        try:
            async with asyncio.timeout(SECONDS):
                with suppress(BrokenPipeError, ConnectionResetError):
                    await process.communicate(body)
                code = await process.wait()
        except TimeoutError as error:
            raise NotSent(
                f"It ran for more than {SECONDS:g} seconds. Look at REMIT_NOTIFY_COMMAND.", code="notice"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code != 0:
            raise NotSent(f"It ended with code {code}. Look at REMIT_NOTIFY_COMMAND.", code="notice")

    return run


async def untold(database: Database) -> tuple[int, datetime, str] | None:
    """How many notices nobody took so far, since when, and why the last try failed; None where all went well."""
    row: dict[str, Any] | None = await database.row("untold")
    return None if row is None or row["count"] == 0 else (row["count"], row["since"], row["error"])
