"""Worlds for tests: one per test is cheap.

``served_world`` serves from the event loop of the caller (some hundredths of a second);
``running_world`` is a process of its own, for tests that kill it or that hold clients in other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from remit.sandbox import world
from remit.sandbox.client import Control
from remit.sandbox.lifecycle import credentials, start, stop
from remit.sandbox.server import Company


@dataclass(frozen=True)
class Reply:
    """One answer as the client sees it: ``body`` is its JSON, or an empty dict, ``text`` all of it."""

    status: int
    body: dict[str, Any]
    text: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class World:
    """A fresh world that answers: base URLs by service, credentials by holder, and its strings."""

    home: Path
    urls: dict[str, str]
    credentials: dict[str, str]
    control: Control
    session: aiohttp.ClientSession

    async def ask(
        self,
        service: str,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        holder: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One plain HTTP call with the credential of ``holder`` (the service's own by default).

        ``key`` is sent as a quoted Idempotency-Key. Errors of the connection are aiohttp's.
        """
        sent = {"Authorization": f"Bearer {self.credentials[holder or service]}"}
        if key is not None:
            sent["Idempotency-Key"] = f'"{key}"'
        url = self.urls[service] + path
        async with self.session.request(method, url, json=body, headers={**sent, **(headers or {})}) as got:
            readable = got.content_type.endswith("json")
            found = await got.json(content_type=None) if readable else {}
            return Reply(got.status, found, await got.text(), got.headers)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
    """Waits until the condition holds; TimeoutError when it does not within ``seconds``."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in the company
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _opened(home: Path, urls: dict[str, str]) -> AsyncIterator[World]:
    keys = credentials(home)
    async with Control(urls, keys) as control, aiohttp.ClientSession() as session:
        yield World(home, urls, keys, control, session)


@asynccontextmanager
async def served_world(home: Path, seed: int = world.SEED) -> AsyncIterator[World]:
    """A fresh world in this process."""
    world.create(home, seed)
    company = Company(home)
    try:
        async with _opened(home, await company.start()) as opened:
            yield opened
    finally:
        await company.close()


@asynccontextmanager
async def running_world(home: Path, seed: int = world.SEED) -> AsyncIterator[World]:
    """A fresh world in a process of its own, which ends with the context."""
    world.create(home, seed)
    try:
        async with _opened(home, (await start(home)).urls) as opened:
            yield opened
    finally:
        await stop(home)
