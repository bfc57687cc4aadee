"""A client for the company's strings: faults, clock, settings, and the employee's hand."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from remit.sandbox.lifecycle import SandboxError, credentials, info


class Control:
    """Speaks to the control service, and to accounts as the employee. Use it as ``async with``.

    Each method returns the service's JSON and raises SandboxError where the service refuses.
    """

    def __init__(self, urls: dict[str, str], credentials: dict[str, str]) -> None:
        self._urls = urls
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def at(cls, home: Path) -> Control:
        """The client for the running company of a home."""
        found = info(home)
        if found is None:
            raise SandboxError("The sandbox company is not running. Start it first.")
        return cls(found.urls, credentials(home))

    async def __aenter__(self) -> Control:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(
        self, method: str, path: str, body: object = None, service: str = "control", holder: str = "control"
    ) -> dict[str, Any]:
        if self._session is None:
            raise SandboxError("The client is not open. Use it as an async context manager.")
        headers = {"Authorization": f"Bearer {self._credentials[holder]}"}
        async with self._session.request(
            method, self._urls[service] + path, json=body, headers=headers
        ) as got:
            answer: dict[str, Any] = await got.json(content_type=None)
        if got.status >= 400:
            raise SandboxError(answer["detail"])
        return answer

    async def health(self) -> dict[str, Any]:
        return await self._ask("GET", "/healthz")

    async def add_fault(
        self,
        service: str,
        kind: str,
        route: str = "*",
        *,
        match: dict[str, object] | None = None,
        times: int | None = 1,
        skip: int = 0,
        seconds: float | None = None,
        stored: bool = False,
    ) -> dict[str, Any]:
        """Adds a rule and returns it with its id; README names the kinds. ``times`` None: always."""
        rule = {
            "service": service,
            "kind": kind,
            "route": route,
            "match": match or {},
            "times": times,
            "skip": skip,
            "seconds": seconds,
            "stored": stored,
        }
        return await self._ask("POST", "/faults", rule)

    async def faults(self) -> list[dict[str, Any]]:
        """The rules with their hits."""
        found: list[dict[str, Any]] = (await self._ask("GET", "/faults"))["faults"]
        return found

    async def clear_faults(self, fault: int | None = None) -> None:
        """Removes one rule, or all."""
        await self._ask("DELETE", "/faults" if fault is None else f"/faults/{fault}")

    async def clock(self) -> dict[str, Any]:
        """``now`` in company time and ``offset_seconds`` from real time."""
        return await self._ask("GET", "/clock")

    async def advance(self, seconds: float) -> dict[str, Any]:
        return await self._ask("POST", "/clock", {"advance_seconds": seconds})

    async def settings(self, **seconds: float) -> dict[str, Any]:
        """Changes settle_seconds, deliver_seconds or key_retention_seconds; returns all of them."""
        return await self._ask("POST", "/settings", seconds)

    async def spend(self, credit: str) -> None:
        """The customer spends the credit: it can no longer be reversed."""
        await self._ask("POST", "/spend", {"credit": credit})

    async def register_webhook(self, service: str, url: str) -> None:
        """From now on ``payments`` or ``mail`` posts its events to this URL."""
        await self._ask("POST", "/webhooks", {"service": service, "url": url})

    async def webhooks(self) -> list[dict[str, Any]]:
        """Each with ``service``, ``url`` and ``since``."""
        found: list[dict[str, Any]] = (await self._ask("GET", "/webhooks"))["webhooks"]
        return found

    async def clear_webhooks(self, service: str | None = None) -> None:
        """Ends the posting of one service, or of both; what was not posted yet never is."""
        await self._ask("DELETE", "/webhooks" if service is None else f"/webhooks/{service}")

    async def posts(self) -> list[dict[str, Any]]:
        """Every post of an event: the event's fields, ``service``, ``tries``, last ``status``, ``outcome``."""
        found: list[dict[str, Any]] = (await self._ask("GET", "/outbox"))["posts"]
        return found

    async def edit(
        self, account: str, changes: dict[str, str], reference: str | None = None
    ) -> dict[str, Any]:
        """An employee's change; returns the account."""
        body = {"changes": changes, "reference": reference}
        return await self._ask("PATCH", f"/accounts/{account}", body, "accounts", "employee")
