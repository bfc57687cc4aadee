"""The company's clock and settings, and the employee's hand."""

from __future__ import annotations

import pytest

from remit.sandbox import Control, SandboxError
from remit.sandbox.store import MICROS, moment, real_now
from remit.sandbox.worlds import World


async def test_the_company_lives_in_real_time_plus_its_offset(world: World) -> None:
    """Advancing adds up, and every time that the company tells is company time."""
    assert (await world.control.clock())["offset_seconds"] == 0
    await world.control.advance(3600)
    after = await world.control.advance(0.5)
    assert after["offset_seconds"] == 3600.5
    ahead = (moment(after["now"]) - real_now()) / MICROS
    assert 3595 < ahead <= 3600.5
    listed = (await world.ask("accounts", "GET", "/accounts?limit=1")).body["as_of"]
    assert listed >= after["now"]


async def test_time_does_not_run_backwards(world: World) -> None:
    """A negative advance is refused."""
    with pytest.raises(SandboxError, match="backwards"):
        await world.control.advance(-1)


async def test_settings_change_one_at_a_time(world: World) -> None:
    """What is not named stays; what does not exist or is negative is refused."""
    changed = await world.control.settings(settle_seconds=2.5)
    assert changed == {"settle_seconds": 2.5, "deliver_seconds": 1.0, "key_retention_seconds": 86400.0}
    for wrong in ({"settle_seconds": -1.0}, {"colour": 1.0}):
        with pytest.raises(SandboxError):
            await world.control.settings(**wrong)
    assert (await world.ask("control", "GET", "/settings")).body == changed


async def test_health_needs_no_credential(world: World) -> None:
    """It is the one open call."""
    async with world.session.get(world.urls["control"] + "/healthz") as got:
        assert (got.status, (await got.json())["status"]) == (200, "ok")
    assert (await world.control.health())["status"] == "ok"


async def test_the_employee_edits_an_account(world: World) -> None:
    """The change carries the employee as its actor; a refusal is told."""
    account = await world.control.edit("c-104", {"plan": "premium", "notes": "called us"}, "ticket-1")
    assert (account["plan"], account["version"]) == ("premium", 2)
    note = account["notes"][0]
    assert (note["text"], note["actor"], note["reference"]) == ("called us", "employee", "ticket-1")
    with pytest.raises(SandboxError, match="There is no account"):
        await world.control.edit("c-999", {"plan": "basic"})


async def test_a_client_that_is_not_open_says_so(world: World) -> None:
    """Rather than failing somewhere inside."""
    with pytest.raises(SandboxError, match="async context manager"):
        await Control(world.urls, world.credentials).clock()
