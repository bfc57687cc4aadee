"""The listener of `remit serve` in a process of its own, which kills itself between the first store and its answer.

Started by tests as `python -m tests.checkpoints.serve_process ORDER`, ORDER being JSON with the fields of `Order`. It
prints its base URL in one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass

from remit.checkpoints import Database, open_pool
from remit.checkpoints.events import Events
from remit.console.serve import listening
from remit.tools.catalogue import RECEIVERS


@dataclass(frozen=True)
class Order:
    """Where the database is, and the secrets by receiver."""

    app_url: str
    secrets: dict[str, str]

    def text(self) -> str:
        return json.dumps(asdict(self))


async def carry_out(order: Order) -> None:
    """Listens until it is killed."""

    def stored() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async with open_pool(order.app_url) as pool:
        events = Events(Database(pool), RECEIVERS, order.secrets.__getitem__)
        async with listening(events, "127.0.0.1", 0, stored) as url:
            print(url, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(carry_out(Order(**json.loads(sys.argv[1]))))
