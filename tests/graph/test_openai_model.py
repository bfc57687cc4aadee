"""The real client against an endpoint that answers badly: either one strict turn comes of it, or no answer."""

from __future__ import annotations

import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from remit.graph import ModelUnavailable, OpenAIModel
from remit.graph.model import Reply, bounded
from remit.sandbox.worlds import World

MESSAGES = [{"role": "user", "content": "Plan."}]
Asked = Callable[..., Awaitable[Reply]]


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    """Asks a model whose endpoint answers every request with one body."""
    async with AsyncExitStack() as stack:

        async def ask(body: Any, *, status: int = 200, kind: str = "application/json") -> Reply:
            text = body if isinstance(body, str) else json.dumps(body)

            async def handle(_: web.Request) -> web.Response:
                return web.Response(status=status, text=text, content_type=kind)

            app = web.Application()
            app.router.add_post("/v1/chat/completions", handle)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            model = OpenAIModel(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "key", "m")
            stack.push_async_callback(model.close)
            return await model.plan(MESSAGES, [])

        yield ask


def completion(message: Any, reason: str = "tool_calls", usage: Any = None) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def calling(name: Any, arguments: Any) -> dict[str, Any]:
    return {
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    }


async def test_a_turn_is_its_text_its_calls_and_its_tokens(asked: Asked) -> None:
    """Arguments stay the very text that the model wrote."""
    message = {"content": "I look.", **calling("list_affected_accounts", '{"incident": "x"}')}
    reply = await asked(completion(message, usage={"total_tokens": 12}))
    assert (reply.content, reply.tokens, reply.truncated) == ("I look.", 12, False)
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("list_affected_accounts", '{"incident": "x"}')
    ]


@pytest.mark.parametrize("arguments", [{}, {"amount_minor": 1}, [], None, 5, True])
async def test_arguments_that_are_no_text_stay_no_json(asked: Asked, arguments: object) -> None:
    """An object where text is declared was not written by the model like that, so it is not taken for its words."""
    (call,) = (await asked(completion(calling("finish", arguments)))).calls
    assert call.arguments == "(no text)"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        completion({"content": None}),
        completion({"content": ["parts"], "tool_calls": "none"}),
        completion({"tool_calls": None}, "stop", "much"),
    ],
)
async def test_a_completion_without_a_readable_call_is_a_turn_without_calls(
    asked: Asked, body: object
) -> None:
    """Empty choices and odd shapes raise nothing; a turn without calls ends the run when it comes twice."""
    reply = await asked(body)
    assert (reply.content, reply.calls) == ("", ())


@pytest.mark.parametrize("call", [None, {}, {"function": None}, {"function": {"name": 5, "arguments": "{}"}}])
async def test_a_call_without_a_name_is_still_answered(asked: Asked, call: object) -> None:
    """It becomes a call of a tool that there is not, so that the model is told."""
    assert [c.name for c in (await asked(completion({"tool_calls": [call]}))).calls] == ["(no name)"]


@pytest.mark.parametrize(
    "usage", [None, {}, {"total_tokens": None}, {"total_tokens": -1}, {"total_tokens": True}]
)
async def test_tokens_that_nobody_counted_are_estimated(asked: Asked, usage: object) -> None:
    """An endpoint that reports no usage still uses up the budget."""
    assert (await asked(completion({"content": "x" * 400}, "stop", usage))).tokens > 100


async def test_a_turn_that_the_endpoint_cut_keeps_no_call(asked: Asked) -> None:
    """`length` says that something is missing, and nobody knows what."""
    reply = bounded(await asked(completion(calling("finish", '{"statements": []}'), "length")))
    assert (reply.calls, reply.truncated) == ((), True)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ("<!doctype html>", 200, "text/html"),
        ("{", 200, "application/json"),
        ("[" * 100_000, 200, "application/json"),
        ([], 200, "application/json"),
        (None, 200, "application/json"),
        ({"error": "x"}, 401, "application/json"),
        ({"error": "x"}, 429, "application/json"),
        ({"error": "x"}, 500, "application/json"),
    ],
)
async def test_what_is_no_completion_is_no_answer(asked: Asked, body: object, status: int, kind: str) -> None:
    """A page, half an answer or a refusal pauses the run; no library retries it."""
    with pytest.raises(ModelUnavailable, match="nothing was planned"):
        await asked(body, status=status, kind=kind)


async def test_a_key_that_the_endpoint_repeats_is_told_to_nobody() -> None:
    """Neither its refusal, nor the error's cause, nor a turn holds the key that the request carried."""
    key = "key-of-the-model-0123456789"

    async def handle(request: web.Request) -> web.Response:
        said = f"Incorrect API key provided: {request.headers['Authorization']}"
        if "refuse" in await request.text():
            return web.json_response({"error": {"message": said}}, status=401)
        return web.json_response(completion({"content": said}, "stop"))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    model, refusing = OpenAIModel(url, key, "m"), OpenAIModel(url, key, "refuse")
    with pytest.raises(ModelUnavailable, match="Incorrect API key") as refused:
        await refusing.plan(MESSAGES, [])
    assert key not in "".join(traceback.format_exception(refused.value))
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)
    assert (await model.plan(MESSAGES, [])).content == "Incorrect API key provided: Bearer [credential]"
    for one in (model, refusing):
        await one.close()
    await runner.cleanup()


@pytest.mark.parametrize("fault", ["html", "error_before", "expired_credential", "rate_limit", "refuse"])
async def test_the_sandbox_model_in_each_of_its_bad_moods_is_asked_once_and_named(
    world: World, fault: str
) -> None:
    """The client's own retries are off: one request leaves, and the error says what to look at (F62)."""
    await world.control.add_fault("model", fault)
    model = OpenAIModel(world.urls["model"] + "/v1", world.credentials["model"], "script:outage-credit")
    with pytest.raises(ModelUnavailable, match="REMIT_MODEL_URL"):
        await model.plan(MESSAGES, [])
    await model.close()
    # A closed door counts no hits.
    assert [rule["hits"] for rule in await world.control.faults()] == [0 if fault == "refuse" else 1]
