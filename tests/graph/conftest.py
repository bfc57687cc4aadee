"""An agent per test, over the shared database and company; the compiled policy is loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remit.policies import EmbeddedEngine
from remit.sandbox.worlds import World
from remit.tools.mandates import AskAbove
from tests.fixtures import Bench, Tokens
from tests.graph.agents import ALL, FEW, Agent


@pytest.fixture(scope="session")
def engine() -> Iterator[EmbeddedEngine]:
    loaded = EmbeddedEngine()
    yield loaded
    loaded.close()


@pytest.fixture
def number() -> int:
    """How many customers the mandate of `agent` is for; `campaign` makes it all of them."""
    return FEW


@pytest.fixture
async def agent(bench: Bench, world: World, tokens: Tokens, engine: EmbeddedEngine, number: int) -> Agent:
    """An agent with a mandate, nothing planned. Of few customers two are credited without asking, three are not."""
    changes = {} if number == ALL else {"ask_above": AskAbove(count=2)}
    return await Agent.made(bench, world, tokens, engine, number, **changes)
