"""Five processes that decide one approval and carry its run on, all at the same moment. A test starts this.

The first line is where everything is, as for `driver_process`, with {approval, set_hash, secret} besides. This process
has imported everything and forks; the children open their parts, wait for one pipe to be closed, and begin together.
The answer is one line: a JSON list with {decided, drove, at} of each, `at` in seconds on the machine's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from remit.graph import OpenAIModel
from remit.sandbox.client import Control
from remit.sandbox.worlds import World
from remit.tools.errors import LeaseLost, Refused
from tests.fixtures import opened_bench
from tests.graph.driver_process import Place, _agent

PROCESSES = 5


async def decide_and_drive(place: Place, ready: int, go: int) -> dict[str, Any]:
    """One child: its parts are open when it says so, and it acts when `go` is closed."""
    urls, credentials = place["urls"], place["credentials"]
    async with (
        opened_bench(place["app_url"], Path(place["home"]), urls, credentials) as bench,
        Control(urls, credentials) as control,
        aiohttp.ClientSession() as session,
    ):
        model = OpenAIModel(urls["model"] + "/v1", credentials["model"], "script:outage-credit")
        world = World(Path(place["home"]), urls, credentials, control, session)
        driver = _agent(bench, world, model, place).driver
        await asyncio.to_thread(_rendezvous, ready, go)
        at = time.monotonic()
        try:
            told = await bench.people.decide(
                place["secret"], place["approval"], place["set_hash"], grant=True, rationale="seen"
            )
            decided = str(told["outcome"])
        except Refused as refused:
            decided = refused.code
        try:
            drove = str((await driver.drive(place["run"])).status)
        except LeaseLost as lost:
            drove = lost.code
        await model.close()
        return {"decided": decided, "drove": drove, "at": at}


def _rendezvous(ready: int, go: int) -> None:
    os.write(ready, b".")
    os.read(go, 1)


def rush(place: Place) -> list[dict[str, Any]]:
    """What came of each."""
    ready, say_ready = os.pipe()
    go, hold = os.pipe()
    answers = []
    for _ in range(PROCESSES):
        answer, tell = os.pipe()
        if os.fork() == 0:
            os.close(hold)
            os.write(tell, json.dumps(asyncio.run(decide_and_drive(place, say_ready, go))).encode())
            os._exit(0)
        os.close(tell)
        answers.append(answer)
    for _ in range(PROCESSES):
        os.read(ready, 1)
    os.close(hold)
    told = []
    for answer in answers:
        with os.fdopen(answer, "rb") as pipe:
            told.append(json.loads(pipe.read()))
    return told


if __name__ == "__main__":
    print(json.dumps(rush(json.loads(sys.stdin.readline()))), flush=True)
