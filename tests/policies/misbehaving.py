"""A policy server that can do everything wrong that a server can do wrong; one way per server."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from remit.tools.actions import Json

REVISION = "r1-0123456789abcdef"
NOTHING: dict[str, Json] = {
    "hold_seconds": 0,
    "release_by": [],
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
VOLUME = [
    {
        "name": "mandate:credit.issue/purpose/ever",
        "scope": "purpose",
        "window": "ever",
        "count": 1,
        "amount_minor": None,
        "currency": None,
    }
]
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


def _right(*ids: str, **more: Json) -> dict[str, Json]:
    return {"result": right(*ids), "provenance": PROVENANCE} | more


def _first(change: Json) -> Callable[..., Handler]:
    """A right answer but for one change of its first decision."""

    def made(*ids: str) -> Handler:
        first, *rest = right(*ids)
        return result([first | change, *rest])

    return made


def _to_an_allow(*ids: str) -> Handler:
    """Sends elsewhere, where an allow waits for whoever follows."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/allow":
            return web.Response(text=json.dumps(_right(*ids)), content_type="application/json")
        return web.Response(status=302, headers={"Location": "/allow"})

    return answer


OTHER_REVISION = {"bundles": {"policy": {"revision": "r1-0000000000000000"}}}
SECOND_BUNDLE = {"bundles": PROVENANCE["bundles"] | {"more": {"revision": REVISION}}}

WAYS: dict[str, Callable[..., Handler]] = {
    "policy_undefined": lambda *_: document({}),
    "policy_shape": _first({"verdict": "ALLOW"}),
    "policy_extra_field": _first({"allow": True}),
    "policy_ids": lambda *ids: result(right(*ids, "another")),
    "policy_refused": lambda *ids: body(json.dumps(_right(*ids)), 403),
    "policy_failed": lambda *ids: body(json.dumps(_right(*ids)), 503),
    "policy_redirect": _to_an_allow,
    "policy_status": lambda *ids: body(json.dumps(_right(*ids)), 203),
    "policy_timeout": lambda *ids: drip(_right(*ids), 0.02),
    "policy_not_json": lambda *_: body("<html>Sign in</html>", kind="text/html"),
    "policy_bundle": lambda *ids: document(_right(*ids, provenance=SECOND_BUNDLE)),
    "policy_revision": lambda *ids: document(_right(*ids, provenance=OTHER_REVISION)),
    "policy_too_old": lambda *ids: body(json.dumps(_right(*ids)), Age="61"),
}
"""For each code an answer that brings it about, made from an allow wherever the way leaves room for one."""

RAW = {
    "policy_not_http": b"SSH-2.0-server\r\n\r\n",
    "policy_cut_off": b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"result": [{"verdict": "allow"',
}


WITHOUT_HTTP = ("policy_unreachable", *RAW)


@asynccontextmanager
async def silent_by(code: str, *ids: str) -> AsyncIterator[str]:
    """The address of a server that brings this code about for a question about these ids."""
    if code == "policy_unreachable":
        yield f"http://127.0.0.1:{free_port()}"
    elif code in RAW:
        async with wired(RAW[code]) as url:
            yield url
    else:
        async with served(WAYS[code](*ids)) as (url, _):
            yield url


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
