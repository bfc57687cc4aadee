"""Processes that carry one run on and kill themselves at a numbered moment. A test starts this and writes it lines.

The first line is where everything is: {app_url, home, urls, credentials, mandate, run}. Each further line is a moment:
a fork of this process drives the run until it ends or a person is needed, and sends itself SIGKILL when it has passed
so many statements, calls and checkpoints; 0 is never, and -1 is as soon as a receiver has accepted a credit. After the
moment may stand LangGraph's durability mode, by default `sync`. The answer is how the fork ended, as JSON, for each.
Forked, since importing everything takes longer than all the work.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from remit.graph import Deps, Driver, OpenAIModel, RunEnd
from remit.policies import EmbeddedEngine
from remit.sandbox.client import Control
from remit.sandbox.worlds import World
from remit.tools.mandates import Mandate
from tests.fixtures import Bench, Tokens, opened_bench
from tests.graph.agents import Agent, Script, Switched

Place = dict[str, Any]


class Moments:
    """Counts what this process does, before and after each act, and ends it at one moment without any farewell."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._passed = 0

    def around(self, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            self._pass()
            try:
                return await act(*args, **kwargs)
            finally:
                self._pass()

        return counted

    def after_effect(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(receiver: str, method: str, path: str, **rest: Any) -> Any:
            answer = await call(receiver, method, path, **rest)
            if self._last == -1 and (method, path) == ("POST", "/credits"):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return called

    def _pass(self) -> None:
        self._passed += 1
        if self._passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


async def carry_on(place: Place, moment: int, durability: str) -> RunEnd:
    """Sweeps and drives the run as one worker of its own, over the sandbox's model through the real client."""
    home, moments = Path(place["home"]), Moments(moment)
    urls, credentials = place["urls"], place["credentials"]
    async with (
        opened_bench(place["app_url"], home, urls, credentials) as bench,
        Control(urls, credentials) as control,
        aiohttp.ClientSession() as session,
    ):
        model = OpenAIModel(urls["model"] + "/v1", credentials["model"], "script:outage-credit")
        agent = _agent(bench, World(home, urls, credentials, control, session), model, place)
        bench.database.rows = moments.around(bench.database.rows)  # type: ignore[assignment, method-assign]
        called = moments.after_effect(moments.around(bench.transport.call))
        bench.transport.call = called  # type: ignore[assignment, method-assign]
        graph: Any = agent.driver.graph
        invoke, saver = graph.ainvoke, graph.checkpointer
        graph.ainvoke = lambda *args, **rest: invoke(*args, **{**rest, "durability": durability})
        saver.aput, saver.aput_writes = moments.around(saver.aput), moments.around(saver.aput_writes)
        end = await agent.finished(place["run"], seconds=60.0)
        await model.close()
        return end


def _agent(bench: Bench, world: World, model: OpenAIModel, place: Place) -> Agent:
    policy = Switched(EmbeddedEngine())
    deps = Deps(
        database=bench.database,
        ledger=bench.ledger,
        catalogue=bench.catalogue,
        transport=bench.transport,
        runner=bench.runner,
        policy=policy,
        model=model,
    )
    mandate = Mandate.model_validate_json(place["mandate"])
    nobody = Tokens("", "", "")
    return Agent(bench, world, nobody, policy, Script(), Driver(deps, bench.worker), mandate, deps, [])


def fork(place: Place, moment: int, durability: str = "sync") -> dict[str, Any]:
    """How the fork ended: {signal} or {status, reason}."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        end = asyncio.run(carry_on(place, moment, durability))
        os.write(writing, json.dumps({"status": end.status, "reason": end.reason}).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        return {"signal": os.WTERMSIG(ended)}
    answer: dict[str, Any] = json.loads(told) if told else {"exit": os.waitstatus_to_exitcode(ended)}
    return answer


def main() -> None:
    place = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        moment, *mode = line.split()
        print(json.dumps(fork(place, int(moment), *mode)), flush=True)


if __name__ == "__main__":
    main()
