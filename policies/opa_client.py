"""One POST to an OPA server: no redirect, no retry, no unbounded body, no rule name that anybody else chose.

opa-python-client 3.0.0 makes the request. Where it would follow a redirect, accept any 2xx, keep cookies, or read a
body without end, its two private methods are narrowed here; hence its version is pinned exactly.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from opa_client.opa_async import AsyncOpaClient  # type: ignore[import-untyped]  # it ships no types

from remit.policies.silence import no_answer
from remit.tools.actions import Json, read_json

MAX_BODY_BYTES = 4 * 1024 * 1024
"""100 decisions with their reasons are about 100 kB; forty times that is no answer of ours."""


class _Body:
    """The part of a response that the client reads after the request."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def raise_for_status(self) -> None:
        """The status was judged before the body was read."""

    async def json(self) -> Json:
        return self._document


class PolicyClient(AsyncOpaClient):  # type: ignore[misc]  # untyped base
    """The async client, narrowed to exact answers. Raises NoAnswer for every other status, size or form.

    `trusted` is a file of certificate authorities, the only ones that are believed; None believes the system's.
    """

    _session: aiohttp.ClientSession | None

    def __init__(self, *, trusted: Path | None = None, **options: Any) -> None:
        super().__init__(retries=0, **options)
        # The base makes a context of its own that knows no file of authorities, and shares its jar of cookies.
        self._tls = ssl.create_default_context(cafile=trusted) if options.get("ssl") else False

    async def _init_session(self) -> None:
        self._session = aiohttp.ClientSession(
            headers=self.headers,
            connector=aiohttp.TCPConnector(ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self.timeout),
            trust_env=False,
        )

    @asynccontextmanager
    async def _request(self, method: str, url: str, **options: Any) -> AsyncIterator[_Body]:
        async with super()._request(method, url, allow_redirects=False, **options) as response:
            if response.status != 200:
                raise no_answer(
                    _refusal(response.status), f"the server answered with status {response.status}"
                )
            if response.headers.get("Age", "0").strip() != "0":
                raise no_answer(
                    "policy_too_old", "the answer was given earlier and kept by somebody in between"
                )
            yield _Body(_parsed(await _bounded(response)))

    async def decisions(self, document: Json) -> Json:
        """The server's whole answer to the one question that is ever asked, with the bundle's revision."""
        if self._session is None:
            await self._init_session()
        return await self.query_rule(
            document, "remit/boundary", "decisions", query_params={"provenance": "true"}
        )


def _refusal(status: int) -> str:
    return {3: "policy_redirect", 4: "policy_refused", 5: "policy_failed"}.get(status // 100, "policy_status")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise no_answer("policy_too_large", f"the server's answer is longer than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parsed(body: bytes) -> Json:
    try:
        return read_json(body, exact=False)
    except ValueError as error:
        raise no_answer("policy_not_json", "the server's answer is not JSON") from error
