"""Posting events, by a task that lives while a webhook is registered.

It sleeps until a call, a registration, the clock or a retry gives it something to do. No effect waits for it, and
without a webhook there is no task and no work at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby

import aiohttp

from remit.sandbox import outbox
from remit.sandbox.outbox import Post
from remit.sandbox.signatures import new_secret, signed
from remit.sandbox.store import MICROS, Store, real_now

ANSWER_SECONDS = 5.0
"""How long a listener may take to answer one post."""


class Deliverer:
    """Posts the events of one world, signed with ``secret_of`` the service. All methods belong to one event loop."""

    def __init__(self, store: Store, secret_of: Callable[[str], str]) -> None:
        self._store = store
        self._secret_of = secret_of
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def arrange(self) -> None:
        """Brings the task in line with what is registered, and wakes it: the clock may have moved."""
        if not outbox.registered(self._store.db):
            await self.close()
        elif self._task is None:
            self._task = asyncio.create_task(self._deliver())
        self._woken.set()

    async def nudge(self) -> None:
        """Something may have happened that is to be told."""
        self._woken.set()

    async def close(self) -> None:
        """Ends the task; what was not posted stays in the outbox."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _deliver(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                self._woken.clear()
                outbox.announce(self._store)
                posts = outbox.due(self._store.db, real_now())
                if not posts:
                    await self._rest()
                    continue
                by_effect = groupby(sorted(posts, key=lambda post: post.effect), lambda post: post.effect)
                await asyncio.gather(*(self._in_order(session, list(found)) for _, found in by_effect))

    async def _rest(self) -> None:
        until = outbox.next_time(self._store)
        seconds = None if until is None else max(0.0, (until - real_now()) / MICROS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _in_order(self, session: aiohttp.ClientSession, posts: Iterable[Post]) -> None:
        """The events of one effect one after the other; the duplicates of one event at once."""
        for _, twins in groupby(posts, lambda post: post.event):
            await asyncio.gather(*(self._post(session, post) for post in twins))

    async def _post(self, session: aiohttp.ClientSession, post: Post) -> None:
        secret = new_secret() if post.forged else self._secret_of(post.service)
        body = post.body.encode()
        at = real_now() // MICROS if post.signed_at is None else post.signed_at
        headers = {"Content-Type": "application/json", **signed(secret, post.event, at, body)}
        try:
            async with session.post(post.url, data=body, headers=headers, allow_redirects=False) as got:
                status = got.status
        except (aiohttp.ClientError, TimeoutError):
            status = None
        outbox.record(self._store, post, status)
