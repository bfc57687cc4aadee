"""One contract for whoever plans: the real client over a served script, and the script that tests play in process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remit.graph import Model, ModelUnavailable, OpenAIModel
from remit.sandbox.worlds import World
from tests.graph.agents import LIST, Script

MESSAGES = [{"role": "user", "content": "Plan."}]


@pytest.fixture(params=["client", "script"])
async def models(request: pytest.FixtureRequest, world: World) -> AsyncIterator[tuple[Model, Model]]:
    """A model that answers, and one that does not."""
    if request.param == "script":
        gone = ModelUnavailable("The model gave no answer. Try again.", code="model")
        yield Script([LIST]), Script([gone])
        return
    url, key = world.urls["model"] + "/v1", world.credentials["model"]
    answering, silent = (
        OpenAIModel(url, key, "script:outage-credit"),
        OpenAIModel(url, "wrong", "script:none"),
    )
    yield answering, silent
    await answering.close()
    await silent.close()


async def test_a_turn_is_calls_with_text_arguments_and_a_cost(models: tuple[Model, Model]) -> None:
    """Names and arguments as text, tokens counted, nothing cut short."""
    reply = await models[0].plan(MESSAGES, [])
    assert [call.name for call in reply.calls] == ["list_affected_accounts"]
    assert all(json.loads(call.arguments) == {"incident": "outage-0611"} and call.id for call in reply.calls)
    assert reply.tokens > 0
    assert not reply.truncated


async def test_the_same_conversation_may_be_asked_again(models: tuple[Model, Model]) -> None:
    """A node that is executed twice does no harm."""
    first, second = [await models[0].plan(MESSAGES, []) for _ in range(2)]
    assert [call.name for call in first.calls] == [call.name for call in second.calls]


async def test_no_answer_is_one_error_that_says_what_to_do(models: tuple[Model, Model]) -> None:
    """Whatever went wrong, the run pauses by its name."""
    with pytest.raises(ModelUnavailable) as refused:
        await models[1].plan(MESSAGES, [])
    assert refused.value.code == "model"


async def test_a_model_has_a_name(models: tuple[Model, Model]) -> None:
    """Part of the agent's version."""
    named: Any = models[0].name
    assert isinstance(named, str)
    assert named
