"""The path of one HTTP call: credential, shape, key, faults, effect, answer.

The effect, the key's stored answer and the use of a fault are one transaction, committed before any
byte of the answer is written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from remit.sandbox import faults, keys
from remit.sandbox.calls import Answer, Call, Problem, Route, Service
from remit.sandbox.shapes import Invalid, parse
from remit.sandbox.store import Store

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes. A model request with a long digest is the largest body that is honest."""


@dataclass(frozen=True)
class _Request:
    """A request that has shown its credential and has the right shape."""

    input: Any
    actor: str
    path: dict[str, str]
    headers: dict[str, str]
    facts: dict[str, object]
    key: str | None
    fingerprint: str


class Gateway:
    """Serves the routes of one service. ``after`` is awaited between the commit and the answer."""

    def __init__(
        self, store: Store, service: Service, after: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.store = store
        self.service = service
        self.after = after
        self._working: set[str] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        for route in self.service.routes:
            app.router.add_route(route.method, route.template, self._handler(route))
        app.router.add_route("*", "/{tail:.*}", self._unknown)
        return app

    def _handler(self, route: Route[Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                return await self._serve(route, request)
            except Problem as problem:
                return _written(self.service.wording(problem))

        return handle

    async def _unknown(self, request: web.Request) -> web.Response:
        try:
            self._actor(request)
            detail = f"There is no {request.method} {request.path} here. See the table of endpoints."
            raise Problem(404, "route_unknown", detail)
        except Problem as problem:
            return _written(self.service.wording(problem))

    async def _serve(self, route: Route[Any], request: web.Request) -> web.Response:
        arrived = await self._read(route, request)
        if arrived.key is not None and arrived.key in self._working:
            raise keys.in_progress()
        if arrived.key is not None:
            self._working.add(arrived.key)
        try:
            barred = await self._arrival_faults(route, arrived)
            if barred is not None:
                return _written(barred)
            answer, plan = self._perform(route, arrived)
        finally:
            self._working.discard(arrived.key or "")
        if self.after is not None:
            await self.after()
        return await self._reply(request, answer, plan)

    def _actor(self, request: web.Request) -> str:
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        holder = self.store.holder_of(credential.strip()) if scheme.lower() == "bearer" else None
        if holder is None or holder not in self.service.holders:
            detail = f"The {self.service.name} service needs its credential. Send it as a bearer token."
            raise Problem(401, "credential_required", detail, {"WWW-Authenticate": "Bearer"})
        return "employee" if holder == "employee" else "agent"

    async def _read(self, route: Route[Any], request: web.Request) -> _Request:
        actor = "agent" if route.open else self._actor(request)
        raw = await _body(request)
        if route.arrived is not None:
            with self.store.transaction():
                route.arrived(self.store, self.store.now(), raw)
        path = dict(request.match_info)
        fields = _fields(request, raw)
        try:
            shaped = parse(route.input, fields)
        except Invalid as wrong:
            raise Problem(422, "invalid", f"{wrong}. Correct it and send it again.") from None
        key = keys.key_of(request.headers.get("Idempotency-Key")) if route.keyed else None
        return _Request(
            input=shaped,
            actor=actor,
            path=path,
            headers={name.lower(): value for name, value in request.headers.items()},
            facts={**fields, **path},
            key=key,
            fingerprint=keys.fingerprint(route.name, path, raw) if key is not None else "",
        )

    def _take(self, route: Route[Any], arrived: _Request, kinds: frozenset[str]) -> faults.Plan:
        return faults.take(self.store.db, self.service.name, route.name, arrived.facts, kinds)

    async def _arrival_faults(self, route: Route[Any], arrived: _Request) -> Answer | None:
        with self.store.transaction():
            plan = self._take(route, arrived, faults.ARRIVAL)
        if delay := plan.first("delay"):
            await asyncio.sleep(delay.seconds)
        return faults.barrier(plan)

    def _perform(self, route: Route[Any], arrived: _Request) -> tuple[Answer, faults.Plan]:
        now = self.store.now()
        with self.store.transaction():
            plan = self._take(route, arrived, faults.EFFECT)
            call = Call(
                self.store, now, arrived.actor, arrived.input, arrived.path, arrived.headers, plan.delays()
            )
            try:
                answer = self._effect(route, arrived, call, plan)
            except Problem as problem:
                answer = self.service.wording(problem)
        return answer, plan

    def _effect(self, route: Route[Any], arrived: _Request, call: Call[Any], plan: faults.Plan) -> Answer:
        before, after = plan.first("error_before"), plan.first("error_after")
        if before is not None:
            failed = self.service.wording(faults.broken())
            self._remember(arrived, call, failed, before.stored)
            return failed
        if arrived.key is not None:
            known = keys.replay(self.store, call.now, arrived.key, arrived.fingerprint)
            if known is not None:
                return known
        answer = self._run(route, call, keep=plan.first("lying_ok") is None)
        failed = self.service.wording(faults.broken())
        self._remember(
            arrived, call, failed if after and after.stored else answer, not plan.first("lying_ok")
        )
        return failed if after else answer

    def _remember(self, arrived: _Request, call: Call[Any], answer: Answer, wanted: bool) -> None:
        if wanted and arrived.key is not None:
            keys.remember(self.store, call.now, arrived.key, arrived.fingerprint, answer)

    def _run(self, route: Route[Any], call: Call[Any], *, keep: bool) -> Answer:
        """A refusal, and a lie, leave no trace in the company's records."""
        self.store.db.execute("SAVEPOINT effect")
        try:
            answer = route.run(call)
        except Problem as problem:
            answer, keep = self.service.wording(problem), False
        if not keep:
            self.store.db.execute("ROLLBACK TO effect")
        self.store.db.execute("RELEASE effect")
        return answer

    async def _reply(self, request: web.Request, answer: Answer, plan: faults.Plan) -> web.Response:
        if late := plan.first("delay_after"):
            await asyncio.sleep(late.seconds)
        if plan.first("reply_lost") and request.transport is not None:
            request.transport.abort()
        return _written(answer)


async def _body(request: web.Request) -> str:
    try:
        return await request.text()
    except web.HTTPRequestEntityTooLarge:
        raise Problem(413, "too_large", "The body is too large. Send less at a time.") from None
    except UnicodeDecodeError:
        raise Problem(422, "invalid", "The body is not UTF-8. Send JSON in UTF-8.") from None


def _fields(request: web.Request, raw: str) -> dict[str, Any]:
    """The fields of the body, or of the query where a call has no body."""
    if request.method in ("GET", "DELETE"):
        return {name: int(value) if value.isdecimal() else value for name, value in request.query.items()}
    if not raw:
        return {}
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise Problem(422, "invalid", "The body is not JSON. Send a JSON object.") from None
    if not isinstance(fields, dict):
        raise Problem(422, "invalid", "The body is not a JSON object. Send a JSON object.")
    return fields


def _written(answer: Answer) -> web.Response:
    if isinstance(answer.body, str):
        return web.Response(status=answer.status, text=answer.body, content_type="text/html")
    headers = {"Content-Type": "application/json", **answer.headers}
    return web.Response(status=answer.status, body=json.dumps(answer.body).encode(), headers=headers)
