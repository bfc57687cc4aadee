"""The model: the real client plays written scripts, and what left for the provider is on record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from remit.sandbox import dump
from remit.sandbox.model import SHIPPED, read_script
from remit.sandbox.worlds import World

Message = dict[str, Any]


@pytest.fixture
async def client(world: World) -> AsyncIterator[openai.AsyncOpenAI]:
    url, key = world.urls["model"] + "/v1", world.credentials["model"]
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as opened:
        yield opened


async def _ask(client: openai.AsyncOpenAI, model: str, assistant_turns: int = 0) -> Any:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    messages += [{"role": "assistant", "content": "done"}] * assistant_turns
    tool = {"type": "function", "function": {"name": "finish", "parameters": {"type": "object"}}}
    return await client.chat.completions.create(
        model=model,
        messages=messages,
        tools=[tool],  # type: ignore[list-item]  # a plain dict, as the wire has it
        temperature=0,
    )


def _write(world: World, name: str, text: str) -> None:
    folder = world.home / "sandbox" / "scripts"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)


async def test_the_turn_is_the_number_of_assistant_messages(client: openai.AsyncOpenAI) -> None:
    """Nothing is remembered between requests: each turn is played by what the request holds."""
    names = []
    for turn in (2, 0, 1, 3):
        answer = await _ask(client, "script:outage-credit", turn)
        calls = answer.choices[0].message.tool_calls
        names.append([call.function.name for call in calls])
        assert answer.choices[0].finish_reason == "tool_calls"
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert names == [
        ["annotate_account"],
        ["list_affected_accounts"],
        ["issue_credit", "annotate_account", "send_email"],
        ["finish"],
    ]


async def test_past_the_last_turn_the_last_one_repeats(client: openai.AsyncOpenAI) -> None:
    """A script never runs out."""
    last, beyond = [await _ask(client, "script:outage-0619", turn) for turn in (2, 9)]
    assert last.choices[0].message.content == beyond.choices[0].message.content
    assert beyond.choices[0].message.tool_calls[0].function.name == "finish"


@pytest.mark.parametrize(
    ("script", "incident", "amount", "count"),
    [("outage-credit", "outage-0611", 1000, 24), ("outage-0619", "outage-0619", 500, 12)],
)
async def test_the_shipped_scripts_name_the_companys_incidents_and_remedies(
    world: World, script: str, incident: str, amount: int, count: int
) -> None:
    """Incident, amount, template and count agree with the world's own records."""
    turns = read_script((SHIPPED,), f"script:{script}")
    calls = {call.name: call.arguments for turn in turns for call in turn.tool_calls}
    found = (await world.ask("accounts", "GET", f"/incidents/{incident}")).body
    remedy = {name: calls["issue_credit"][name] for name in ("amount_minor", "currency")}
    assert calls["list_affected_accounts"] == {"incident": incident}
    assert {**remedy, "template": calls["send_email"]["template"]} == found["remedy"]
    assert remedy["amount_minor"] == amount
    statements = calls["finish"]["statements"]
    assert isinstance(statements, list)
    assert {statement["count"] for statement in statements} == {count} == {len(found["affected"])}
    assert {statement["step"] for statement in statements} == {"credit", "annotate", "notify"}


async def test_only_the_first_campaign_tries_to_move_a_date(world: World) -> None:
    """The attempt that a boundary has to deny is in the second turn of outage-credit, and nowhere else."""
    dates = [
        (script, number, call.arguments["renewal_date"])
        for script in ("outage-credit", "outage-0619")
        for number, turn in enumerate(read_script((SHIPPED,), f"script:{script}"), 1)
        for call in turn.tool_calls
        if "renewal_date" in call.arguments
    ]
    assert dates == [("outage-credit", 2, "2027-07-11")]


async def test_a_worlds_own_script_comes_first(world: World, client: openai.AsyncOpenAI) -> None:
    """A test can write a script under a shipped name."""
    _write(world, "outage-credit", "turns: [{content: mine}]")
    answer = await _ask(client, "script:outage-credit")
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("mine", "stop")


async def test_a_turn_can_be_broken_in_each_way_a_model_can(world: World, client: openai.AsyncOpenAI) -> None:
    """Arguments that are no JSON, a cut answer, no choices at all."""
    _write(
        world,
        "broken",
        """
turns:
  - tool_calls: [{name: issue_credit, raw: '{"cohort": '}]
  - {content: "I was c", finish_reason: length}
  - omit_choices: true
""",
    )
    raw, cut, none = [await _ask(client, "script:broken", turn) for turn in (0, 1, 2)]
    assert raw.choices[0].message.tool_calls[0].function.arguments == '{"cohort": '
    assert cut.choices[0].finish_reason == "length"
    assert none.choices is None


async def test_a_turn_can_be_an_error(world: World, client: openai.AsyncOpenAI) -> None:
    """The status of the turn is the status of the answer."""
    _write(world, "failing", "turns: [{status: 503, content: Overloaded.}]")
    with pytest.raises(openai.InternalServerError) as failed:
        await _ask(client, "script:failing")
    assert failed.value.status_code == 503


@pytest.mark.parametrize("model", ["script:none", "gpt", "script:../../credentials", "script:"])
async def test_an_unknown_script_is_not_found(client: openai.AsyncOpenAI, model: str) -> None:
    """In the shape in which this interface tells errors; no path leads out of the folder."""
    with pytest.raises(openai.NotFoundError) as missing:
        await _ask(client, model)
    assert missing.value.code == "model_not_found"


@pytest.mark.parametrize(
    "text", ["turns: []", "[]", "turns: [{says: x}]", "turns: [{tool_calls: [{arguments: {}}]}]", "turns: ["]
)
async def test_a_wrong_script_is_told_as_such(world: World, client: openai.AsyncOpenAI, text: str) -> None:
    """A mistake in a script is a clear refusal, never an empty turn."""
    _write(world, "wrong", text)
    with pytest.raises(openai.BadRequestError) as wrong:
        await _ask(client, "script:wrong")
    assert wrong.value.code == "script_invalid"


async def test_a_wrong_key_is_an_authentication_error(world: World) -> None:
    """The client's own error, with this company's code."""
    async with openai.AsyncOpenAI(
        base_url=world.urls["model"] + "/v1", api_key="no", max_retries=0
    ) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await _ask(client, "script:outage-credit")
    assert refused.value.code == "credential_required"


async def test_requests_that_cannot_be_played_are_refused(world: World) -> None:
    """No model, no messages, a stream: each is an invalid request."""
    message = {"role": "user", "content": "go"}
    for body in (
        {"messages": [message]},
        {"model": "script:outage-credit"},
        {"model": "script:outage-credit", "messages": []},
        {"model": "script:outage-credit", "messages": ["go"]},
        {"model": "script:outage-credit", "messages": [message], "stream": True},
    ):
        reply = await world.ask("model", "POST", "/v1/chat/completions", body)
        assert (reply.status, reply.body["error"]["code"]) == (400, "invalid_request")


async def test_every_request_is_on_record_even_when_it_fails(
    world: World, client: openai.AsyncOpenAI
) -> None:
    """What left for the provider has left, whatever the provider made of it."""
    await _ask(client, "script:outage-credit", 1)
    await world.control.add_fault("model", "error_before")
    with pytest.raises(openai.InternalServerError):
        await _ask(client, "script:outage-credit")
    await world.ask("model", "POST", "/v1/chat/completions", ["not a request"])
    calls = dump(world.home)["model_calls"]
    assert [(call["model"], call["turn"]) for call in calls] == [
        ("script:outage-credit", 1),
        ("script:outage-credit", 0),
        (None, None),
    ]
    assert json.loads(calls[0]["request"])["messages"][0] == {"role": "user", "content": "go"}
    assert "not a request" in calls[2]["request"]


def test_the_shipped_scripts_are_found_beside_the_code() -> None:
    """Both campaigns are there."""
    names = {path.stem for path in Path(SHIPPED).glob("*.yaml")}
    assert {"outage-credit", "outage-0619"} <= names
