"""The only way to a company system: HTTP with a deadline, without library retries or redirects.

It tells apart what was certainly never written (NotSent) from what may have been received (OutcomeUnknown),
and resolves a credential by reference at the moment of the call, so that none is held in state, log or error.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from remit.tools.actions import Json, canonical, read_json
from remit.tools.doors import Doors, Met
from remit.tools.errors import NotSent, OutcomeUnknown, RemitError

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""An answer beyond this is unreadable, not partly read: 100 records of a batch stay far below it."""

ECHO = "[credential]"
"""What stands in the place of a credential that a receiver sent back."""

_SHORTEST_SECRET = 8

_KEPT = frozenset({"etag", "retry-after", "idempotency-replayed"})
"""The last one tells a stored answer from a fresh one: a stored failure is final for its key."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a receiver answered. `body` is None where it was not JSON; header names are lower case."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where one company system lives, and the name under which its credential is kept."""

    name: str
    url: str


class Transport:
    """One HTTP session for all receivers of a process. Use as an async context manager.

    `credential` maps a reference such as `payments` to its secret and is called for each request.
    """

    def __init__(self, receivers: Mapping[str, str], credential: Callable[[str], str]) -> None:
        self._urls = dict(receivers)
        self._credential = credential
        self._session: aiohttp.ClientSession | None = None
        self._doors: Doors | None = None
        self.calls = 0

    def guard(self, doors: Doors) -> None:
        """From now on each call passes these doors; without any, as where no ledger is at hand, all are open."""
        self._doors = doors

    async def __aenter__(self) -> "Transport":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, limit_per_host=32),
            middlewares=(_once,),
            # A cookie would make one call's answer depend on another's.
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        receiver: str,
        method: str,
        path: str,
        *,
        credential: str,
        seconds: float,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One request, one answer, at most `seconds` in all.

        Raises NotSent when no connection came about or the receiver's door is closed, OutcomeUnknown when the
        request may have been received.
        """
        rest: dict[str, Any] = {
            "credential": credential,
            "seconds": seconds,
            "body": body,
            "headers": headers,
        }
        if self._doors is None:
            return await self._call(receiver, method, path, **rest)
        await self._doors.before(receiver)
        try:
            response = await self._call(receiver, method, path, **rest)
        except (NotSent, OutcomeUnknown) as error:
            if error.code in _MET:
                await self._doors.after(receiver, _MET[error.code], _first_words(str(error)))
            raise
        await self._doors.after(receiver, *_met(receiver, response))
        return response

    async def _call(
        self,
        receiver: str,
        method: str,
        path: str,
        *,
        credential: str,
        seconds: float,
        body: Json,
        headers: Mapping[str, str] | None,
    ) -> Response:
        if self._session is None:
            raise RuntimeError("Transport is used outside `async with`. Enter it first.")
        self.calls += 1
        secret = self._credential(credential)
        sent = {"Authorization": f"Bearer {secret}", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(
                    method,
                    self._urls[receiver] + path,
                    data=None if body is None else canonical(body),
                    headers=sent,
                    allow_redirects=False,
                ) as answer,
            ):
                return await _read(answer, secret)
        except aiohttp.ClientConnectorError:
            failed: RemitError = NotSent(
                f"{receiver} refused the connection; nothing was written. Look at it, then `remit resume`.",
                code="not_written",
            )
        except TimeoutError:
            failed = OutcomeUnknown(
                f"{receiver} gave no answer within {seconds:g} s. Verify it before anything is sent again.",
                code="timeout",
            )
        except (aiohttp.ClientError, OSError) as error:
            failed = OutcomeUnknown(
                f"{receiver} broke off ({type(error).__name__}). Verify it before anything is sent again.",
                code="broken_off",
            )
        # Raised here, so without a cause: some of the client's errors show the request's headers.
        raise failed


_MET = {"not_written": Met.GONE, "timeout": Met.SILENT, "broken_off": Met.SILENT}
"""What a call without an answer met, by its error's code; other errors are our own and say nothing of the receiver."""


def _met(receiver: str, response: Response) -> tuple[Met, str]:
    """What an answer says of the receiver as a whole. A failure that was kept under a key is an answer like any."""
    if response.status in (401, 403):
        return Met.CREDENTIAL, f"{receiver} refused the credential with {response.status}"
    if response.status >= 500 and "idempotency-replayed" not in response.headers:
        return Met.SILENT, f"{receiver} answered {response.status}"
    if response.status == 200 and response.body is None:
        # What a gateway shows in the receiver's place.
        return Met.SILENT, f"{receiver} answered with a page"
    return Met.ANSWERED, ""


def _first_words(message: str) -> str:
    """What happened, without what to do next: the door says that itself."""
    return message.split(";", maxsplit=1)[0].split(". ", maxsplit=1)[0]


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps the client from sending GET and PUT a second time by itself when a connection breaks."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        # The client repeats after these two classes only; their common base passes through to the caller.
        raise aiohttp.ClientConnectionError(str(error)) from error


def unechoed(text: str, secret: str) -> str:
    """`text` without the secret that was sent for it: gateways and debug pages repeat the headers of a request.

    One of fewer than 8 characters is left: it would be found in any text, and is no secret.
    """
    return text.replace(secret, ECHO) if len(secret) >= _SHORTEST_SECRET else text


async def _read(answer: aiohttp.ClientResponse, secret: str) -> Response:
    raw = bytearray()
    async for chunk in answer.content.iter_any():
        raw += chunk
        if len(raw) > MAX_ANSWER_BYTES:
            answer.close()
            return Response(answer.status, None, {})
    headers = {
        name.lower(): unechoed(value, secret)
        for name, value in answer.headers.items()
        if name.lower() in _KEPT
    }
    try:
        # Before it is parsed, so that no part of an answer, known or not, can carry it anywhere.
        return Response(answer.status, read_json(unechoed(raw.decode(), secret), exact=False), headers)
    except ValueError:
        return Response(answer.status, None, headers)
