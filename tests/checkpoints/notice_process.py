"""An outbox in a process of its own, which kills itself between the post of a notice and its record.

Started by tests as `python -m tests.checkpoints.notice_process ORDER`, ORDER being JSON with the fields of `Order`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass

import aiohttp

from remit.checkpoints import Database, open_pool
from remit.checkpoints.notices import Notices, posting
from remit.tools.signatures import key_of


@dataclass(frozen=True)
class Order:
    """Where the database is, where notices go, and for how long others leave alone what this one took."""

    app_url: str
    url: str
    secret: str
    taken_seconds: float

    def text(self) -> str:
        return json.dumps(asdict(self))


async def carry_out(order: Order) -> None:
    """Posts one batch and dies with the first answer in its hand."""
    async with open_pool(order.app_url) as pool, aiohttp.ClientSession() as session:
        post = posting(session, order.url, key_of(order.secret))

        async def deadly(id_: str, body: bytes) -> None:
            await post(id_, body)
            os.kill(os.getpid(), signal.SIGKILL)

        await Notices(Database(pool), deadly, order.taken_seconds).deliver()


if __name__ == "__main__":
    asyncio.run(carry_out(Order(**json.loads(sys.argv[1]))))
