"""The example of README: what it shows is what runs here, between the two marks."""

from __future__ import annotations

from remit.checkpoints.embedded_access import Urls
from remit.graph import OpenAIModel
from tests.graph.agents import FEW, Agent


async def test_a_run_from_python_is_a_few_lines(agent: Agent, ledger_database: Urls) -> None:
    """Given a database, receivers, a model and a granted mandate, the parts make a graph that pauses for a person."""
    world, database_url, secret = agent.world, ledger_database.app_url, agent.tokens.support_manager
    home, receivers, credential, mandate_hash = (
        world.home,
        world.urls,
        world.credentials.__getitem__,
        agent.mandate.hash,
    )
    model = OpenAIModel(world.urls["model"] + "/v1", world.credentials["model"], "script:outage-credit")

    # --8<-- start
    from remit.checkpoints import Database, Ledger, Worker, open_pool
    from remit.graph import Deps, Driver, build_graph
    from remit.policies import EmbeddedEngine
    from remit.tools.catalogue import credit_catalogue
    from remit.tools.runner import Runner
    from remit.tools.transport import Transport

    async with open_pool(database_url) as pool, Transport(receivers, credential) as transport:
        database, catalogue = Database(pool), credit_catalogue()
        ledger = await Ledger.open(database)
        runner = Runner(ledger, catalogue, transport)
        deps = Deps(database, ledger, catalogue, transport, runner, EmbeddedEngine(), model)
        print(build_graph(deps).get_graph().draw_mermaid())  # the state machine, built from its parts

        worker = await Worker.begin(database, home)
        driver = Driver(deps, worker)  # builds that graph; the one runner of each run that it carries on
        end = await driver.drive(await driver.start(secret, mandate_hash))
        await worker.end(database)
    # --8<-- end

    await model.close()
    assert (end.status, end.waits) == ("PAUSED_AWAITING_APPROVAL", {"approval": FEW, "requirement": FEW})
