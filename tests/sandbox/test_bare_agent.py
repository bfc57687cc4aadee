"""The control group does what such scripts do."""

from __future__ import annotations

from remit.sandbox import bare_agent, check, dump
from remit.sandbox.worlds import World


async def test_a_lost_reply_makes_it_credit_twice_and_say_once(world: World) -> None:
    """It believes in one credit for each; the provider shows two for the one whose reply was lost."""
    await world.control.add_fault("payments", "reply_lost", "POST /credits", match={"customer": "c-104"})
    told: list[str] = []
    lines = await bare_agent.run(world.urls, world.credentials, ["c-104", "c-205"], tell=told.append)
    assert lines == told == ["I issued one credit to c-104", "I issued one credit to c-205"]
    made = [(credit["customer"], credit["path"]) for credit in dump(world.home)["credits"]]
    assert made == [("c-104", "credits"), ("c-104", "legacy"), ("c-205", "credits")]
    findings = check(world.home, "outage-0611")
    assert [(found.invariant, found.subject) for found in findings] == [("I1", "customer:c-104")]


async def test_a_slow_reply_is_a_lost_one_to_it(world: World) -> None:
    """Its patience is short."""
    await world.control.add_fault("payments", "delay_after", "POST /credits", seconds=0.3)
    lines = await bare_agent.run(world.urls, world.credentials, ["c-104"], timeout=0.1)
    assert lines == ["I issued one credit to c-104"]
    assert len(dump(world.home)["credits"]) == 2


async def test_it_admits_what_failed_both_ways(world: World) -> None:
    """A provider that is down leaves it without a credit, and it says so."""
    await world.control.add_fault("payments", "refuse")
    lines = await bare_agent.run(world.urls, world.credentials, ["c-104"])
    assert lines == ["I could not issue a credit to c-104"]
    assert dump(world.home)["credits"] == []


async def test_it_announces_only_when_told_to_and_too_early(world: World) -> None:
    """The e-mail leaves before the credit has settled, which the checker sees."""
    lines = await bare_agent.run(world.urls, world.credentials, ["c-104"], announce=True)
    assert lines == ["I issued one credit to c-104", "I told c-104 about the credit"]
    assert {found.invariant for found in check(world.home)} == {"I12"}
