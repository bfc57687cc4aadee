"""A ledger restored from an older copy, with a whole agent over it: nothing is sent twice (I1, I5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit.checkpoints.restores import Restores
from remit.policies import EmbeddedEngine
from remit.sandbox.worlds import World
from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove
from tests.clusters import Cluster, own_cluster
from tests.fixtures import mint_tokens, opened_bench
from tests.graph.agents import CAMPAIGN, FEW, LIST, Agent, Script, done


@dataclass
class Story:
    """An agent on a server of its own, and how to speak of restores."""

    agent: Agent
    cluster: Cluster
    restores: Restores

    async def process_begins(self) -> list[str]:
        """Another process of the same home begins and ends; the kinds of the orders that stand then."""
        world = self.agent.world
        async with opened_bench(self.cluster.urls.app_url, world.home, world.urls, world.credentials):
            return [order["kind"] for order in await self.agent.bench.database.rows("orders", all=False)]

    async def past_the_bound(self) -> None:
        """As if everything that was sent before the restore had had the time to show."""
        async with await self.cluster.owner() as owner:
            await owner.execute("UPDATE remit.restores SET noticed_at = noticed_at - interval '1 minute'")

    async def verified(self) -> list[str]:
        """Verifies every purpose as the support manager; the keys that the ledger had lost."""
        agent = self.agent
        purposes = [agent.mandate.purpose]
        secret = agent.tokens.support_manager
        found = await self.restores.verify(agent.bench.catalogue, agent.bench.transport, secret, purposes)
        return found.lost

    async def lift(self) -> None:
        """The finance lead lifts the one order that stands."""
        (order,) = await self.agent.bench.database.rows("orders", all=False)
        await self.agent.bench.people.lift(self.agent.tokens.finance_lead, order["id"])


@pytest.fixture
async def story(world: World, engine: EmbeddedEngine) -> AsyncIterator[Story]:
    async with (
        own_cluster() as cluster,
        opened_bench(cluster.urls.app_url, world.home, world.urls, world.credentials) as bench,
    ):
        tokens = await mint_tokens(bench.people)
        agent = await Agent.made(bench, world, tokens, engine, FEW, ask_above=AskAbove(count=2))
        yield Story(agent, cluster, Restores(bench.database, bench.ledger.installation))


async def completed_on_an_older_copy(story: Story, *, noticed: bool = True) -> str:
    """A run that was paused in the copy, ran to its end, and is paused again in the ledger as it is put back."""
    agent = story.agent
    run, _ = await agent.started()
    copy = await story.cluster.copied()
    await agent.approve()
    assert (await agent.finished(run)).status == "COMPLETED"
    if not noticed:
        for seen in Path(agent.world.home).glob("seen-*.json"):
            seen.unlink()
    await story.cluster.put_back(copy)
    assert (await agent.row(run))["status"] == "PAUSED_AWAITING_APPROVAL"
    return run


async def carried_through(story: Story) -> None:
    """Verify, lift, and a fresh run of the purpose: it completes on what was there already."""
    agent = story.agent
    keys = [
        f"{agent.mandate.purpose}/{step}/{s}/1"
        for s in agent.cohort
        for step in ("annotate", "credit", "notify")
    ]
    with agent.nothing_changes():
        assert await story.verified() == sorted(keys)
        await story.lift()
        assert {(cell.fact, cell.operation_id) for cell in (await agent.status()).cells} == {
            ("UNKNOWN", None)
        }
        driver = agent.driver_with(model=Script([LIST, CAMPAIGN, done(FEW)]))
        run = await driver.start(agent.tokens.support_manager, agent.mandate.hash)
        assert (await agent.finished(run, driver=driver)).status == "COMPLETED"
    assert {cell.fact for cell in (await agent.status()).cells} == {"COMPLETED"}
    assert agent.breaches(final=True) == []
    assert await agent.bench.cases() == []


@pytest.mark.slow
async def test_an_older_copy_stops_everything_until_it_is_verified_and_then_nothing_is_sent_twice(
    story: Story,
) -> None:
    """The copy is recognised by what this home has seen; each effect is found instead of repeated."""
    agent = story.agent
    run = await completed_on_an_older_copy(story)
    with agent.nothing_changes():
        assert await story.process_begins() == ["restore"]
        await agent.approve()
        end = await agent.drive(run)
        assert (end.status, end.reason) == ("STOPPED", "stopped: order 1 is in force")
        with pytest.raises(Refused, match="remit db verify"):
            await story.lift()
        with pytest.raises(Refused, match="may not show yet"):
            await story.verified()
    await story.past_the_bound()
    await carried_through(story)


@pytest.mark.slow
async def test_what_nothing_can_notice_a_person_says_and_the_same_follows(story: Story) -> None:
    """A home that never saw the newer ledger cannot tell; `remit db restored` places the same stop."""
    agent = story.agent
    run = await completed_on_an_older_copy(story, noticed=False)
    assert await story.process_begins() == []
    order = await story.restores.restored(agent.tokens.support_manager, "the backup of last night")
    assert (order["kind"], order["issued_by"]) == ("restore", "support-manager")
    with agent.nothing_changes():
        await agent.approve()
        assert (await agent.drive(run)).status == "STOPPED"
    await story.past_the_bound()
    await carried_through(story)
