"""The rules that hold for every call of every service."""

from __future__ import annotations

import io
from typing import Any

import pytest

from remit.sandbox import accounts, control, mail, model, payments
from remit.sandbox.calls import Route, Service
from remit.sandbox.gateway import LARGEST_BODY
from remit.sandbox.worlds import World

SERVICES: tuple[Service, ...] = (
    accounts.SERVICE,
    payments.SERVICE,
    mail.SERVICE,
    model.service(model.SHIPPED),
    control.SERVICE,
)
CLOSED = [(s.name, route) for s in SERVICES for route in s.routes if not route.open]


def _code(body: dict[str, Any]) -> str:
    return str(body["error"]["code"] if "error" in body else body["code"])


@pytest.mark.parametrize(("service", "route"), CLOSED, ids=lambda value: getattr(value, "name", value))
async def test_every_call_must_show_the_credential_of_its_service(
    world: World, service: str, route: Route[Any]
) -> None:
    """Neither no credential, nor a wrong one, nor another service's opens any call."""
    path = route.template.replace("{id}", "c-104")
    other = "mail" if service != "mail" else "payments"
    for shown in (
        "",
        "Bearer wrong",
        f"Basic {world.credentials[service]}",
        f"Bearer {world.credentials[other]}",
    ):
        reply = await world.ask(service, route.method, path, headers={"Authorization": shown})
        assert (reply.status, _code(reply.body)) == (401, "credential_required")


async def test_the_employees_credential_opens_accounts_alone(world: World) -> None:
    """The employee reads accounts and nothing else."""
    assert (await world.ask("accounts", "GET", "/accounts/c-104", holder="employee")).status == 200
    for service, path in (("payments", "/credits"), ("mail", "/messages"), ("control", "/faults")):
        assert (await world.ask(service, "GET", path, holder="employee")).status == 401


async def test_a_refusal_is_a_problem_document(world: World) -> None:
    """RFC 9457: type, title, status, detail, and a code of its own."""
    reply = await world.ask("accounts", "GET", "/accounts/c-999")
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.body == {
        "type": "urn:company:problem:not_found",
        "title": "Not found",
        "status": 404,
        "detail": "There is no account 'c-999'. Look the id up in the list.",
        "code": "not_found",
    }


async def test_an_unknown_call_is_a_problem_too(world: World) -> None:
    """A path or method that does not exist is told in the same form."""
    for method, path in (("GET", "/nowhere"), ("DELETE", "/accounts/c-104")):
        reply = await world.ask("accounts", method, path)
        assert (reply.status, reply.body["code"]) == (404, "route_unknown")


CREDIT = {"customer": "c-104", "amount_minor": 1000, "currency": "USD", "reason": "outage-0611"}
WRONG = {
    "an unknown field": ("payments", "POST", "/credits", {**CREDIT, "note": "x"}),
    "a missing field": ("payments", "POST", "/credits", {"customer": "c-104"}),
    "a number as text": ("payments", "POST", "/credits", {**CREDIT, "amount_minor": "1000"}),
    "a flag as number": ("payments", "POST", "/credits", {**CREDIT, "amount_minor": True}),
    "a fraction": ("payments", "POST", "/credits", {**CREDIT, "amount_minor": 10.5}),
    "a list as body": ("payments", "POST", "/credits", [CREDIT]),
    "an empty text": ("payments", "POST", "/credits", {**CREDIT, "customer": ""}),
    "a null": ("payments", "POST", "/credits", {**CREDIT, "currency": None}),
    "no changes": ("accounts", "PATCH", "/accounts/c-104", {"changes": {}}),
    "an unknown change": ("accounts", "PATCH", "/accounts/c-104", {"changes": {"balance": "1"}}),
    "an empty note": ("accounts", "PATCH", "/accounts/c-104", {"changes": {"notes": ""}}),
    "no such day": ("accounts", "PATCH", "/accounts/c-104", {"changes": {"renewal_date": "2027-02-30"}}),
    "no address": ("accounts", "PATCH", "/accounts/c-104", {"changes": {"email": "nobody"}}),
    "an unknown parameter": ("accounts", "GET", "/accounts?colour=red", None),
    "a limit beyond a batch": ("accounts", "GET", "/accounts?limit=101", None),
    "a limit of nothing": ("payments", "GET", "/credits?limit=0", None),
    "a time without offset": ("payments", "GET", "/credits?since=2027-01-01T00:00:00", None),
    "no time": ("mail", "GET", "/messages?since=yesterday", None),
    "an unknown place": ("payments", "GET", "/credits?after=cr-none", None),
    "an unknown message": ("mail", "GET", "/messages?after=msg-none", None),
    "values that are no texts": (
        "mail",
        "POST",
        "/messages",
        {"customer": "c-104", "template": "one_time_credit", "values": {"amount": 10}},
    ),
    "two searches at once": ("payments", "POST", "/credits/search", {"references": [], "customers": []}),
    "no search": ("payments", "POST", "/credits/search", {}),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_bodies_and_parameters_are_read_strictly(
    world: World, wrong: tuple[str, str, str, object]
) -> None:
    """What does not have the shape is refused as invalid, and says what to correct."""
    service, method, path, body = wrong
    reply = await world.ask(service, method, path, body, key="k")
    assert (reply.status, reply.body["code"]) == (422, "invalid")
    assert reply.body["detail"].endswith(".")


async def test_what_is_not_json_is_refused(world: World) -> None:
    """Broken text, and bytes that are no text, are invalid like any other shape."""
    url = world.urls["mail"] + "/messages"
    headers = {"Authorization": f"Bearer {world.credentials['mail']}", "Content-Type": "application/json"}
    for data in (b"{", b'{"a": \xff}', b"[" * 100_000):
        async with world.session.post(url, data=data, headers=headers) as got:
            assert (got.status, (await got.json(content_type=None))["code"]) == (422, "invalid")


BATCHES = (
    ("accounts", "/accounts/batch", "ids"),
    ("accounts", "/history/search", "references"),
    ("payments", "/credits/search", "references"),
    ("payments", "/credits/search", "customers"),
    ("payments", "/reversals/search", "references"),
    ("mail", "/messages/search", "references"),
)


@pytest.mark.parametrize(("service", "path", "name"), BATCHES)
async def test_a_batch_takes_100_and_refuses_101(world: World, service: str, path: str, name: str) -> None:
    """The limit of a batch is exact, and every answer says as of when and that it is complete."""
    names = [f"x-{n}" for n in range(101)]
    full = await world.ask(service, "POST", path, {name: names[:100]})
    assert full.status == 200
    assert full.body["complete"] is True
    assert full.body["as_of"] <= (await world.control.clock())["now"]
    over = await world.ask(service, "POST", path, {name: names})
    assert (over.status, over.body["code"]) == (422, "invalid")


async def test_a_body_beyond_the_limit_is_refused(world: World) -> None:
    """The largest honest body is far smaller than eight megabytes."""
    url = world.urls["accounts"] + "/accounts/batch"
    headers = {"Authorization": f"Bearer {world.credentials['accounts']}"}
    async with world.session.post(url, data=io.BytesIO(b"x" * (LARGEST_BODY + 1)), headers=headers) as got:
        assert (got.status, (await got.json(content_type=None))["code"]) == (413, "too_large")
