"""One POST to an OPA server: no redirect, no retry, no unbounded body, no rule name that anybody else chose.

opa-python-client 3.0.0 makes the request. Where it would follow a redirect, accept any 2xx, or read a body
without end, its one private method is narrowed here; hence its version is pinned exactly.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from opa_client.opa_async import AsyncOpaClient  # type: ignore[import-untyped]  # it ships no types

from remit.policies.answers import no_answer
from remit.tools.actions import Json

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
    """The async client, narrowed to exact answers. Raises NoAnswer (policy_status, policy_shape)."""

    @asynccontextmanager
    async def _request(self, method: str, url: str, **options: Any) -> AsyncIterator[_Body]:
        async with super()._request(method, url, allow_redirects=False, **options) as response:
            if response.status != 200:
                raise no_answer("policy_status", f"the server answered with status {response.status}")
            yield _Body(_parsed(await _bounded(response)))

    async def decisions(self, document: Json) -> Json:
        """The server's whole answer to the one question that is ever asked, with the bundle's revision."""
        if self._session is None:
            await self._init_session()
        return await self.query_rule(
            document, "remit/boundary", "decisions", query_params={"provenance": "true"}
        )


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise no_answer("policy_shape", f"the server's answer is longer than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parsed(body: bytes) -> Json:
    try:
        return json.loads(body, object_pairs_hook=_without_repeats, parse_constant=_refuse)
    except ValueError as error:
        raise no_answer("policy_shape", "the server's answer is not JSON") from error


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
