"""A world per test, and a bench that does with a tool what the runner does, without a ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from remit.sandbox.worlds import World, served_world
from remit.tools.actions import operation_key, reference, wire_key
from remit.tools.contracts import Sighting, Snapshot, Sought, WriteTool
from remit.tools.mandates import Step
from remit.tools.states import Seen, Sight
from remit.tools.transport import Transport

INSTALLATION = "inst"
PURPOSE = "outage-0611"
CUSTOMER = "customer:c-104"


@dataclass(frozen=True)
class Bench:
    """One world and one transport to it."""

    world: World
    transport: Transport

    def sought(
        self,
        tool: WriteTool,
        subject: str = CUSTOMER,
        *,
        step: Step | None = None,
        named: str = "act",
        **said: object,
    ) -> Sought:
        arguments = tool.arguments.model_validate({"subject": subject, **said})
        intent = tool.intent(subject, arguments, step, PURPOSE)
        return Sought(reference(INSTALLATION, operation_key(PURPOSE, named, subject)), subject, intent)

    async def send(
        self, tool: WriteTool, one: Sought, *, generation: int = 1, etag: str | None = None
    ) -> Seen:
        contract, request = tool.contract, tool.request(one.subject, one.intent, one.reference)
        key = wire_key(INSTALLATION, one.reference.partition(":")[2], generation)
        response = await self.transport.call(
            contract.receiver,
            request.method,
            request.path,
            credential=contract.credential,
            seconds=contract.timeout,
            body=request.body,
            headers=tool.headers(key, etag),
        )
        return tool.classify(response, request)

    async def sighting(self, tool: WriteTool, one: Sought) -> Sighting:
        (found,) = await tool.verify_many(self.transport, [one])
        assert found.reference == one.reference
        return found

    async def sight(self, tool: WriteTool, one: Sought) -> Sight:
        return (await self.sighting(tool, one)).sight

    async def snapshot(self, tool: WriteTool, one: Sought) -> Snapshot:
        return (await tool.snapshot_many(self.transport, [one]))[one.reference]


def opened(world: World) -> Transport:
    return Transport(world.urls, world.credentials.__getitem__)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with served_world(tmp_path) as world, opened(world) as transport:
        yield Bench(world, transport)


Canned = Callable[[int, str], Awaitable[Transport]]


@pytest.fixture
async def canned() -> AsyncIterator[Canned]:
    """A transport to receivers that answer everything with one status and one body."""
    async with AsyncExitStack() as stack:

        async def answering(status: int, text: str) -> Transport:
            async def handle(request: web.Request) -> web.Response:
                return web.Response(status=status, text=text, content_type="application/json")

            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", handle)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            urls = dict.fromkeys(("accounts", "payments", "mail"), url)
            return await stack.enter_async_context(Transport(urls, "credential-of-{}".format))

        yield answering
