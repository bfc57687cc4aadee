"""The model behind a port: messages in, tool calls out. It has no tool, no credential of a company system, no ledger.

Its answer is text until `intake` has validated it (F56, F60); library retries are off, since budgets belong here (F62).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from remit.tools.actions import Json, read_json
from remit.tools.errors import RemitError
from remit.tools.transport import unechoed

_MOST_CALLS = 32
_MOST_TEXT = 20_000
"""Bounds on one answer; what lies beyond is cut and so fails validation instead of filling the ledger."""

_MOST_REFUSAL = 300
"""Characters of an endpoint's own refusal: the first sentence says it, and the reason of a pause stays one line."""

_MOST_TOKENS = 10_000_000
"""More than any context window: an absurd count ends the run by its budget and breaks no column."""

_SECONDS = 90.0


class ModelUnavailable(RemitError):
    """The model gave no answer, so nothing was planned. The run is paused; `remit resume` asks again."""


@dataclass(frozen=True, slots=True)
class Call:
    """One proposed tool call, unvalidated: `arguments` is whatever text the model wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn of the model. `truncated` turns carry no calls: a call cut short is not a call."""

    content: str
    calls: tuple[Call, ...]
    tokens: int
    truncated: bool = False


class Model(Protocol):
    """Whoever plans. `name` becomes part of the agent's version."""

    name: str

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        """The next turn. Raises ModelUnavailable when there is none."""
        ...


class OpenAIModel:
    """Any OpenAI-compatible chat-completions endpoint. `url` ends before `/chat/completions`."""

    def __init__(self, url: str, key: str, name: str) -> None:
        # Imported when a model is built: it takes as long as a whole `remit stop`, which needs none.
        from openai import APIError, AsyncOpenAI

        self.name = name
        self._key = key
        self._failure = APIError
        self._client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=_SECONDS)

    async def close(self) -> None:
        await self._client.close()

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        try:
            # Raw: the client's own models are built without validation, so a dict may stand where text is declared.
            answer = await self._client.chat.completions.with_raw_response.create(
                model=self.name,
                messages=list(messages),  # type: ignore[arg-type]
                tools=list(tools),  # type: ignore[arg-type]
            )
        except self._failure as error:
            failed = _unavailable(_refusal(error, self._key))
        else:
            return _read(unechoed(answer.text, self._key), len(json.dumps([*messages, *tools])))
        # Raised here, so without a cause: the client's errors hold the request with the key in its headers.
        raise failed


def bounded(reply: Reply) -> Reply:
    """The reply as the ledger can hold it, whichever model gave it. Applied to every reply before it is kept."""
    calls = tuple(Call(clean(c.id), clean(c.name), clean(c.arguments)) for c in reply.calls[:_MOST_CALLS])
    return replace(
        reply,
        content=clean(reply.content),
        calls=() if reply.truncated else calls,
        tokens=min(max(reply.tokens, 0), _MOST_TOKENS),
    )


def clean(text: str) -> str:
    """Bounded text that Postgres can hold: NUL and lone surrogates are replaced."""
    return text[:_MOST_TEXT].encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def _read(text: str, asked: int) -> Reply:
    """The turn in an answer to `asked` characters. Raises ModelUnavailable where it is no completion."""
    try:
        body = read_json(text, exact=False)
    except ValueError as error:
        raise _unavailable("no JSON") from error
    if not isinstance(body, dict):
        raise _unavailable("no completion")
    return _reply(body, asked + len(text))


def _reply(body: dict[str, Json], characters: int) -> Reply:
    choice = _fields(next(iter(_items(body.get("choices"))), None))
    message = _fields(choice.get("message"))
    calls = tuple(_call(_fields(call)) for call in _items(message.get("tool_calls")))
    used = _fields(body.get("usage")).get("total_tokens")
    return Reply(
        content=_text(message.get("content")) or "",
        calls=calls,
        # Four characters to a token where the endpoint does not say: a budget that counts nothing never ends.
        tokens=used if type(used) is int and used > 0 else characters // 4,
        truncated=choice.get("finish_reason") == "length",
    )


def _call(call: dict[str, Json]) -> Call:
    """What is not text stays no JSON: arguments that came as an object were not written by the model like that."""
    function = _fields(call.get("function"))
    arguments = function.get("arguments")
    return Call(
        id=_text(call.get("id")) or "",
        name=_text(function.get("name")) or "(no name)",
        arguments=arguments if isinstance(arguments, str) else "(no text)",
    )


def _refusal(error: Exception, key: str) -> str:
    """What the endpoint itself said, where it said anything, without our key: an answer is not a silence."""
    status, said = getattr(error, "status_code", None), clean(unechoed(str(error), key))[:_MOST_REFUSAL]
    return type(error).__name__ if status is None else f"it refused the request: {said}"


def _unavailable(why: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"The model endpoint gave no usable answer ({why}), so nothing was planned. "
        "Look at REMIT_MODEL_URL and its key, then `remit resume`.",
        code="model",
    )


def _fields(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
