"""A policy server that can do everything wrong that a server can do wrong; one way per server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from remit.tools.actions import Json

REVISION = "r1-0123456789abcdef"
NOTHING: dict[str, Json] = {
    "hold_seconds": 0,
    "approvers": [],
    "quorum": 0,
    "quorum_of": {},
    "decide_within": 0,
    "on_expiry": None,
    "execute_within": 0,
    "volume": [],
    "auto_budget": [],
    "verify": False,
}
VOLUME = [{"name": "mandate:credit.issue", "count": 1, "amount_minor": None, "currency": None}]
ALLOW: dict[str, Json] = {
    "verdict": "allow",
    "reasons": [{"code": "matrix_allow"}],
    "obligations": NOTHING | {"volume": VOLUME},
}
PROVENANCE: dict[str, Json] = {"version": "1.22.3", "bundles": {"policy": {"revision": REVISION}}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def right(*ids: str) -> Json:
    """An allow for each id, as a right server would answer."""
    return [ALLOW | {"id": one} for one in ids]


def result(value: Json, **more: Json) -> Handler:
    """Answers with this result, under the right revision unless `more` says otherwise."""
    return document({"result": value, "provenance": PROVENANCE} | more)


def document(value: Json) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=json.dumps(value), content_type="application/json")

    return answer


def body(text: str, status: int = 200, kind: str = "application/json", **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status, content_type=kind, headers=headers)

    return answer


def drip(answer: Json, seconds: float) -> Handler:
    """Sends one byte at a time, each soon enough for a timeout per read."""

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for byte in json.dumps(answer).encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(seconds)
        return response

    return slowly


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """The address of a server that answers every request like this, and the requests that it saw."""
    seen: list[web.Request] = []

    async def remembered(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        await request.read()
        return await handler(request)

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", remembered)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


@asynccontextmanager
async def wired(raw: bytes) -> AsyncIterator[str]:
    """The address of a server that sends these bytes to whoever connects, and hangs up."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
