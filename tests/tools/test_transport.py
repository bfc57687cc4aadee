"""The transport: what was certainly not sent, what may have been received, and what is never told to anybody."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from remit.tools.errors import NotSent, OutcomeUnknown, RemitError
from remit.tools.transport import MAX_ANSWER_BYTES, Response, Transport

SECRET = "s3cret-of-payments"
SHORT = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Raw bytes over TCP: what no well-behaved HTTP server would send. `asked` keeps each request's bytes."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[bytes] = []
        self.answer: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        self.asked.append(head + await reader.readexactly(length))
        assert self.answer is not None
        try:
            await self.answer(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        made = Server()
        listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        stack.callback(listening.close)
        made.port = listening.sockets[0].getsockname()[1]
        yield made


@pytest.fixture
async def transport(server: Server) -> AsyncIterator[Transport]:
    async with Transport(
        {"payments": f"http://127.0.0.1:{server.port}"}, {"payments": SECRET}.__getitem__
    ) as made:
        yield made


def _http(status: str, body: bytes, *headers: str) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return answer


async def _call(transport: Transport, method: str = "POST", seconds: float = 5.0, **more: Any) -> Response:
    return await transport.call("payments", method, "/x", credential="payments", seconds=seconds, **more)


async def test_one_call_is_one_request_with_credential_and_canonical_body(
    server: Server, transport: Transport
) -> None:
    """The body's bytes do not depend on the order in which its fields were written."""
    server.answer = _http("200 OK", b'{"a": 1}')
    for body in ({"b": 1, "a": "\u00e9"}, {"a": "\u00e9", "b": 1}):
        assert (await _call(transport, body=body, headers={"If-Match": '"1"'})).body == {"a": 1}
    first, second = server.asked
    assert first == second
    assert first.endswith('\r\n\r\n{"a":"\u00e9","b":1}'.encode())
    assert f"Authorization: Bearer {SECRET}".encode() in first
    assert b'If-Match: "1"' in first
    assert transport.calls == 2


async def test_a_refused_connection_is_not_sent(server: Server) -> None:
    """No connection, no byte: trying again is safe."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with Transport({"payments": url}, lambda _: SECRET) as transport:
            with pytest.raises(NotSent) as caught:
                await _call(transport)
    assert caught.value.code == "not_written"


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _half(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a"')
    await writer.drain()


async def _garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ready to serve\r\n\r\n")
    await writer.drain()


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (_silence, "timeout"),
        (_drip, "timeout"),
        (_reset, "broken_off"),
        (_half, "broken_off"),
        (_garbage, "broken_off"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH", "GET"])
async def test_what_was_written_and_not_answered_is_unknown_and_sent_once(
    server: Server, transport: Transport, answer: Any, code: str, method: str
) -> None:
    """Silence, drops, resets and half answers: the outcome is unknown, and nothing is repeated behind our back."""
    server.answer = answer
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(OutcomeUnknown) as caught:
        await _call(transport, method, SHORT if code == "timeout" else 5.0)
    assert caught.value.code == code
    assert loop.time() - began < 4.0
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
async def test_a_redirect_is_an_answer_and_is_not_followed(
    server: Server, transport: Transport, status: str
) -> None:
    """A credential is shown to the receiver alone."""
    server.answer = _http(status, b"{}", "Location: /elsewhere")
    assert (await _call(transport, "GET")).status == int(status[:3])
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"", b"{", b'{"a": 1}}', b"\xff\xfe", b"[" * 100_000, b"1" * 5_000],
    ids=["html", "empty", "half", "more", "not-utf8", "deep", "long-number"],
)
async def test_a_body_that_is_no_json_is_unreadable(
    server: Server, transport: Transport, body: bytes
) -> None:
    """The status is kept, the body is None, and nothing breaks."""
    server.answer = _http("200 OK", body)
    assert await _call(transport) == Response(200, None, {})


async def test_a_body_beyond_the_limit_is_unreadable(server: Server, transport: Transport) -> None:
    """It is cut off, not partly read."""
    server.answer = _http("200 OK", b'"' + b"x" * MAX_ANSWER_BYTES + b'"')
    assert await _call(transport) == Response(200, None, {})


async def test_only_the_headers_that_decide_something_are_kept(server: Server) -> None:
    """Names in lower case; cookies are neither kept nor sent back."""
    headers = ('ETag: "7"', "Retry-After: 3", "Idempotency-Replayed: true", "Set-Cookie: a=b", "X-More: 1")
    server.answer = _http("200 OK", b"{}", *headers)
    # By name: clients keep no cookies of bare addresses anyway.
    async with Transport({"payments": f"http://localhost:{server.port}"}, lambda _: SECRET) as transport:
        for _ in range(2):
            kept = (await _call(transport)).headers
            assert kept == {"etag": '"7"', "retry-after": "3", "idempotency-replayed": "true"}
    assert b"Cookie" not in server.asked[1]


def _chain(error: BaseException | None) -> str:
    if error is None:
        return ""
    return f"{error!r} {error} {vars(error)} {_chain(error.__cause__)} {_chain(error.__context__)}"


@pytest.mark.parametrize("answer", [_silence, _reset, _half, _garbage])
async def test_no_error_tells_the_credential(server: Server, transport: Transport, answer: Any) -> None:
    """Neither the error nor what caused it, and the error survives on its way to another process."""
    server.answer = answer
    with pytest.raises(RemitError) as caught:
        await _call(transport, seconds=SHORT)
    assert SECRET not in _chain(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made one line above
    assert (type(again), str(again), again.code) == (type(caught.value), str(caught.value), caught.value.code)


async def test_the_credential_is_resolved_for_each_call(server: Server) -> None:
    """A rotated credential is used at once, because none is held."""
    server.answer = _http("200 OK", b"{}")
    current = iter(["first", "second"])
    url = {"payments": f"http://127.0.0.1:{server.port}"}
    async with Transport(url, lambda _: next(current)) as transport:
        for _ in range(2):
            await _call(transport)
    assert [b"Bearer first" in server.asked[0], b"Bearer second" in server.asked[1]] == [True, True]


async def test_a_transport_that_is_not_entered_says_so() -> None:
    """A mistake of the programmer, told as one."""
    with pytest.raises(RuntimeError, match="Enter it first"):
        await _call(Transport({}, lambda _: SECRET))
