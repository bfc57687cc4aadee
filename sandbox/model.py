"""A chat-completions endpoint that plays written scripts, so that a real client is on the path offline.

It keeps no conversation: the turn is the number of assistant messages in the request. Each request is
recorded before anything else happens to it: it has left for the provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.sandbox.calls import Answer, Call, Problem, Route, Service
from remit.sandbox.shapes import Anything, Invalid, parse
from remit.sandbox.store import MICROS, Moment, Store

SHIPPED = Path(__file__).parent / "scripts"
_NAME = re.compile(r"script:([a-z0-9][a-z0-9_-]{0,99})")


@dataclass(frozen=True)
class ToolCall:
    """A call with its arguments as an object, or ``raw``: the arguments' text as it is, even if broken."""

    name: str
    arguments: dict[str, object] = field(default_factory=dict)
    raw: str | None = None

    def text(self) -> str:
        return json.dumps(self.arguments) if self.raw is None else self.raw


@dataclass(frozen=True)
class Turn:
    content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str | None = None
    status: int | None = None
    omit_choices: bool = False


@dataclass(frozen=True)
class _Conversation:
    """What this endpoint reads of a request; the rest is the client's business."""

    model: str
    messages: list[dict[str, Any]]

    @property
    def turn(self) -> int:
        return sum(message.get("role") == "assistant" for message in self.messages)


def _conversation(fields: dict[str, Any]) -> _Conversation:
    model, messages = fields.get("model"), fields.get("messages")
    if not isinstance(model, str) or not isinstance(messages, list):
        raise Problem(400, "invalid_request", "A request has a 'model' and 'messages'. Send both.")
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise Problem(400, "invalid_request", "'messages' is a list of objects. Send at least one.")
    if fields.get("stream"):
        raise Problem(400, "invalid_request", "Streaming is not offered here. Ask without 'stream'.")
    return _Conversation(model, messages)


def record(store: Store, now: Moment, raw: str) -> None:
    """Keeps the text of a request, readable or not."""
    model, turn = None, None
    try:
        asked = _conversation(json.loads(raw))
        model, turn = asked.model, asked.turn
    except (ValueError, AttributeError, RecursionError, Problem):
        pass
    store.db.execute(
        "INSERT INTO model_calls (at, model, turn, request) VALUES (?, ?, ?, ?)", (now, model, turn, raw)
    )


def read_script(folders: tuple[Path, ...], model: str) -> list[Turn]:
    """The turns of ``script:NAME`` from the first folder that has it."""
    named = _NAME.fullmatch(model)
    found = [folder / f"{named[1]}.yaml" for folder in folders] if named else []
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise Problem(404, "model_not_found", f"There is no script {model!r}. Name one as script:NAME.")
    # Imported on first use: the parser would add a fifth to the time that the process takes to start.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return _turns(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except (YAMLError, Invalid) as wrong:
        raise Problem(400, "script_invalid", f"The script {model!r} is wrong: {wrong}. Correct it.") from None


def _turns(raw: object) -> list[Turn]:
    turns = raw.get("turns") if isinstance(raw, dict) else None
    if not isinstance(turns, list) or not turns:
        raise Invalid("a script has a list 'turns' with at least one turn")
    return [parse(Turn, turn, f"turn {number}") for number, turn in enumerate(turns, 1)]


def _completion(asked: _Conversation, turn: Turn, now: Moment, sent: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{asked.turn}_{n}",
            "type": "function",
            "function": {"name": c.name, "arguments": c.text()},
        }
        for n, c in enumerate(turn.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": turn.content, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    reason = turn.finish_reason or ("tool_calls" if calls else "stop")
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{now}",
        "object": "chat.completion",
        "created": now // MICROS,
        "model": asked.model,
        "usage": _usage(sent, len(json.dumps(message))),
    }
    if not turn.omit_choices:
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}]
    return answer


def _usage(sent: int, received: int) -> dict[str, int]:
    """Four characters to a token: a rough count, but one that grows with the text as a bill does."""
    asked, answered = -(-sent // 4), -(-received // 4)
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def player(folders: tuple[Path, ...]) -> Callable[[Call[Anything]], Answer]:
    """The handler that plays the scripts of these folders."""

    def complete(call: Call[Anything]) -> Answer:
        asked = _conversation(call.input.fields)
        turns = read_script(folders, asked.model)
        turn = turns[min(asked.turn, len(turns) - 1)]
        if turn.status is not None:
            raise Problem(
                turn.status, "script_error", turn.content or "The model failed. Ask it again later."
            )
        sent = len(json.dumps(call.input.fields))
        return Answer(200, _completion(asked, turn, call.now, sent))

    return complete


def wording(problem: Problem) -> Answer:
    """A refusal in the shape that clients of this interface expect."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.code}
    return Answer(problem.status, {"error": error}, problem.headers)


def service(world_scripts: Path) -> Service:
    """The world's own scripts come before the shipped ones."""
    run = player((world_scripts, SHIPPED))
    route = Route("POST", "/v1/chat/completions", Anything, run, arrived=record)
    return Service("model", frozenset({"model"}), (route,), wording)
