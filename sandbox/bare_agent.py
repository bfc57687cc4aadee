"""The control group: a naive script, as many are in use today.

It takes a missing answer for a missing effect and tries again by another way. Its lines say what it
believes; the provider's records say what happened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import aiohttp

IMPATIENCE = 0.5
"""Seconds until it gives up on an answer."""


async def run(
    urls: dict[str, str],
    credentials: dict[str, str],
    customers: Sequence[str],
    *,
    incident: str = "outage-0611",
    amount_minor: int = 1000,
    currency: str = "USD",
    timeout: float = IMPATIENCE,
    announce: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Issues one credit to each customer, and with ``announce`` an e-mail about it.

    Returns the lines of what it believes it did; ``tell`` gets each as it comes. ``timeout`` is in
    seconds, ``amount_minor`` in minor units.
    """
    lines = []
    patience = aiohttp.ClientTimeout(total=timeout)
    async with aiohttp.ClientSession(timeout=patience) as session:
        for customer in customers:
            order = {"customer": customer, "amount_minor": amount_minor, "currency": currency}
            lines.append(await _credit(session, urls, credentials, order, incident))
            if announce:
                lines.append(await _announce(session, urls, credentials, customer, incident))
            for line in lines[-2 if announce else -1 :]:
                tell(line)
    return lines


def _bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}


async def _credit(
    session: aiohttp.ClientSession,
    urls: dict[str, str],
    credentials: dict[str, str],
    order: dict[str, object],
    incident: str,
) -> str:
    headers = {**_bearer(credentials["payments"]), "Idempotency-Key": f'"{uuid.uuid4()}"'}
    body = {**order, "reason": incident}
    try:
        async with session.post(urls["payments"] + "/credits", json=body, headers=headers) as answer:
            if answer.status == 202:
                return f"I issued one credit to {order['customer']}"
    except (aiohttp.ClientError, TimeoutError):
        pass
    return await _credit_again(session, urls, credentials, order, incident)


async def _credit_again(
    session: aiohttp.ClientSession,
    urls: dict[str, str],
    credentials: dict[str, str],
    order: dict[str, object],
    incident: str,
) -> str:
    customer = order["customer"]
    body = {
        "cust": customer,
        "cents": order["amount_minor"],
        "cur": order["currency"],
        "memo": f"{incident} {customer}",
    }
    headers = _bearer(credentials["payments"])
    try:
        async with session.post(urls["payments"] + "/legacy/credits", json=body, headers=headers) as answer:
            if answer.status == 200:
                return f"I issued one credit to {customer}"
    except (aiohttp.ClientError, TimeoutError):
        pass
    return f"I could not issue a credit to {customer}"


async def _announce(
    session: aiohttp.ClientSession,
    urls: dict[str, str],
    credentials: dict[str, str],
    customer: str,
    incident: str,
) -> str:
    body = {
        "customer": customer,
        "template": "one_time_credit",
        "values": {},
        "reference": f"bare:{incident}/notify/{customer}",
    }
    headers = _bearer(credentials["mail"])
    try:
        async with session.post(urls["mail"] + "/messages", json=body, headers=headers) as answer:
            if answer.status == 202:
                return f"I told {customer} about the credit"
    except (aiohttp.ClientError, TimeoutError):
        pass
    return f"I could not tell {customer} about the credit"
