"""Each way of closing: whatever is not an exact, complete answer is NoAnswer with its own code, in both engines."""

import asyncio
import json
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from opapywasm import UNDEFINED, OpaWasmPolicy

from remit.policies import EmbeddedEngine, ServerEngine, engines
from remit.policies.opa_client import MAX_BODY_BYTES
from remit.policies.silence import SILENCES
from remit.tools.actions import Json
from remit.tools.errors import Misconfigured, NoAnswer
from remit.tools.mandates import Step
from remit.tools.questions import Question
from remit.tools.states import Verdict

from .cases import CREDIT, MANDATE, action, batch, changed, policy_data, question, with_data
from .misbehaving import (
    ALLOW,
    NOTHING,
    OTHER_REVISION,
    PROVENANCE,
    REVISION,
    SECOND_BUNDLE,
    VOLUME,
    Handler,
    body,
    document,
    drip,
    free_port,
    result,
    right,
    served,
    wired,
)

ASKED = question(action(CREDIT, 104), action(CREDIT, 205))
IDS = ("credit-104", "credit-205")
DEADLINE_SECONDS = 0.4


def one(**changes: Json) -> Json:
    """Two decisions, the first of them with these changes."""
    first, second = right(*IDS)
    return [first | changes, second]


def must(**changes: Json) -> Json:
    return one(obligations=ALLOW["obligations"] | changes)


WRONG_RESULTS: Mapping[str, tuple[str, Json]] = {
    "text": ("policy_shape", "allow"),
    "false as text": ("policy_shape", "false"),
    "a number": ("policy_shape", 1),
    "true": ("policy_shape", True),
    "null": ("policy_shape", None),
    "an object": ("policy_shape", {"allow": True}),
    "one level deeper": ("policy_shape", {"decisions": right(*IDS)}),
    "a list in a list": ("policy_shape", [right(*IDS)]),
    "a decision that is null": ("policy_shape", [None, *right(IDS[1])]),
    "another verdict": ("policy_shape", one(verdict="maybe")),
    "a verdict in capitals": ("policy_shape", one(verdict="ALLOW")),
    "a verdict that is true": ("policy_shape", one(verdict=True)),
    "an extra field": ("policy_extra_field", one(allow=True)),
    "an extra obligation": ("policy_extra_field", must(skip=True)),
    "a number as text": ("policy_shape", must(hold_seconds="0")),
    "a truth as a number": ("policy_shape", must(verify=0)),
    "a negative hold": ("policy_shape", must(hold_seconds=-1)),
    "a hold with a point": ("policy_shape", must(hold_seconds=0.5)),
    "an id that is a number": ("policy_shape", one(id=104)),
    "a deny without a reason": ("policy_shape", one(verdict="deny", reasons=[], obligations=NOTHING)),
    "an approval without a reason": (
        "policy_shape",
        one(verdict="needs_approval", reasons=[], obligations=NOTHING | {"volume": VOLUME}),
    ),
    "an approval without approvers": (
        "policy_shape",
        one(verdict="needs_approval", obligations=NOTHING | {"volume": VOLUME}),
    ),
    "a quorum of a role that is not asked": (
        "policy_shape",
        one(
            verdict="needs_approval",
            obligations=NOTHING
            | {"volume": VOLUME, "approvers": ["finance_lead"], "quorum": 1, "decide_within": 60}
            | {"quorum_of": {"support_manager": 1}},
        ),
    ),
    "an allow that escalates": (
        "policy_shape",
        must(on_expiry={"approvers": ["finance_lead"], "quorum": 1, "decide_within": 60}),
    ),
    "an allow without a reason": ("policy_shape", one(reasons=[])),
    "an allow without a limit to reserve": ("policy_shape", must(volume=[])),
    "an allow that needs an approver": ("policy_shape", must(approvers=["finance_lead"], quorum=1)),
    "no decision": ("policy_bundle", []),
    "a missing id": ("policy_ids", right(IDS[0])),
    "a foreign id": ("policy_ids", right(IDS[0], "credit-999")),
    "a repeated id": ("policy_ids", right(IDS[0], IDS[0])),
    "one decision too many": ("policy_ids", right(*IDS, IDS[0])),
    "another order": ("policy_ids", right(IDS[1], IDS[0])),
}


async def code_of(engine: EmbeddedEngine | ServerEngine, asked: Question = ASKED) -> str:
    with pytest.raises(NoAnswer) as refused:
        await engine.ask(asked)
    assert str(refused.value).endswith(f"Nothing was sent. {SILENCES[refused.value.code].remedy}")
    assert pickle.loads(pickle.dumps(refused.value)).code == refused.value.code  # noqa: S301  # our own bytes
    return refused.value.code


async def code_of_server(handler: Handler) -> str:
    async with served(handler) as (url, seen), engine_at(url) as engine:
        code = await code_of(engine)
    assert len(seen) == 1, "the question was asked again"
    return code


def engine_at(url: str) -> ServerEngine:
    return ServerEngine(url, revision=REVISION, deadline_seconds=DEADLINE_SECONDS)


async def test_a_right_answer_is_one() -> None:
    """The misbehaving server can also behave: what follows fails for what it does wrong and nothing else."""
    async with served(result(right(*IDS), decision_id="d-1")) as (url, seen), engine_at(url) as engine:
        answer = await engine.ask(ASKED)
    assert [one.verdict for one in answer.decisions] == [Verdict.ALLOW, Verdict.ALLOW]
    assert (answer.engine, answer.revision, answer.decision_id) == ("server", REVISION, "d-1")
    assert [request.path_qs for request in seen] == ["/v1/data/remit/boundary/decisions?provenance=true"]


@pytest.mark.parametrize("case", WRONG_RESULTS)
async def test_the_server_gives_no_answer_with(case: str) -> None:
    """A result that is not one complete decision per action is no answer (F23)."""
    code, value = WRONG_RESULTS[case]
    assert await code_of_server(result(value)) == code


@pytest.mark.parametrize("case", WRONG_RESULTS)
async def test_the_compiled_policy_gives_no_answer_with(replaceable: EmbeddedEngine, case: str) -> None:
    """The same results are refused from the engine in this process."""
    code, value = WRONG_RESULTS[case]
    assert await code_of(giving(replaceable, value)) == code


async def test_an_undefined_compiled_policy_gives_no_answer(replaceable: EmbeddedEngine) -> None:
    """Undefined is told apart from an empty list and from null (F22)."""
    assert await code_of(giving(replaceable, UNDEFINED)) == "policy_undefined"


@pytest.fixture(scope="module")
def replaceable() -> EmbeddedEngine:
    """An engine whose compiled policy a test replaces."""
    engine = EmbeddedEngine()
    engine.close()
    return engine


def giving(engine: EmbeddedEngine, value: object) -> EmbeddedEngine:
    """The engine with a compiled policy that always gives this value."""
    engine._policy = cast("OpaWasmPolicy", SimpleNamespace(evaluate=lambda _: value))
    return engine


LONG = "x" * (MAX_BODY_BYTES + 1)

WRONG_SERVERS: Mapping[str, tuple[str, Handler]] = {
    "an empty object": ("policy_undefined", document({})),
    "no result": ("policy_undefined", document({"provenance": PROVENANCE})),
    "no result and no bundle": ("policy_bundle", document({"provenance": {"version": "1.22.3"}})),
    "an older server": ("policy_too_old", result(right(*IDS), provenance=PROVENANCE | {"version": "0.70.0"})),
    "a server of no version": (
        "policy_too_old",
        result(right(*IDS), provenance={"bundles": PROVENANCE["bundles"]}),
    ),
    "an answer that was kept": (
        "policy_too_old",
        body(json.dumps({"result": right(*IDS), "provenance": PROVENANCE}), Age="61"),
    ),
    "another revision": ("policy_revision", result(right(*IDS), provenance=OTHER_REVISION)),
    "a second bundle": ("policy_bundle", result(right(*IDS), provenance=SECOND_BUNDLE)),
    "no bundle": ("policy_bundle", result(right(*IDS), provenance={"version": "1.22.3"})),
    "no provenance": ("policy_bundle", document({"result": right(*IDS)})),
    "a warning": ("policy_shape", result(right(*IDS), warning={"code": "api_usage_warning"})),
    "a list": ("policy_shape", document(right(*IDS))),
    "HTML": ("policy_not_json", body("<html>Sign in</html>", kind="text/html")),
    "no content": ("policy_not_json", body("")),
    "a repeated member": ("policy_not_json", body('{"result": [], "result": []}')),
    "NaN": ("policy_not_json", body('{"result": NaN}')),
    "a body without end": ("policy_too_large", body(LONG)),
    "201": ("policy_status", body("{}", 201)),
    "204": ("policy_status", body("", 204)),
    "400": ("policy_refused", body("{}", 400)),
    "401": ("policy_refused", body("{}", 401)),
    "404": ("policy_refused", body("{}", 404)),
    "429": ("policy_refused", body("{}", 429)),
    "500": ("policy_failed", body("{}", 500)),
    "503 as HTML": ("policy_failed", body("<html>Busy</html>", 503, "text/html")),
    "301": ("policy_redirect", body("", 301, Location="/elsewhere")),
    "302": ("policy_redirect", body("", 302, Location="/elsewhere")),
    "307": ("policy_redirect", body("", 307, Location="/elsewhere")),
    "a slow drip": ("policy_timeout", drip({"result": right(*IDS), "provenance": PROVENANCE}, 0.02)),
}


@pytest.mark.parametrize("case", WRONG_SERVERS)
async def test_a_server_gives_no_answer_by(case: str) -> None:
    """Whatever else a server sends, `{}` for an unknown rule too, is no answer; no redirect is followed (F22, F25)."""
    code, handler = WRONG_SERVERS[case]
    begun = time.monotonic()
    assert await code_of_server(handler) == code
    assert time.monotonic() - begun < DEADLINE_SECONDS + 2


async def never(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def test_a_server_that_never_answers_gives_no_answer() -> None:
    """The deadline is for the whole question."""
    assert await code_of_server(never) == "policy_timeout"


async def test_a_refused_connection_gives_no_answer() -> None:
    """Nobody listens: unreachable, told apart from a deny (F24)."""
    async with engine_at(f"http://127.0.0.1:{free_port()}") as engine:
        assert await code_of(engine) == "policy_unreachable"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "policy_cut_off"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"result"', "policy_cut_off"),
        (b"SSH-2.0-server\r\n\r\n", "policy_not_http"),
    ],
)
async def test_a_broken_connection_gives_no_answer(raw: bytes, code: str) -> None:
    """Hung up before or within the answer, or another protocol."""
    async with wired(raw) as url, engine_at(url) as engine:
        assert await code_of(engine) == code


async def test_an_answer_after_a_failure_counts_again() -> None:
    """A server that failed once is believed as soon as it answers."""
    handlers = [body("{}", 503), result(right(*IDS))]

    async def in_turn(request: web.Request) -> web.StreamResponse:
        return await handlers.pop(0)(request)

    async with served(in_turn) as (url, _), engine_at(url) as engine:
        assert await code_of(engine) == "policy_failed"
        assert len((await engine.ask(ASKED)).decisions) == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://policy.example:8181",
        "ftp://127.0.0.1",
        "127.0.0.1:8181",
        "https://",
        "https://user:word@policy.example",
        "https://policy.example/v1/data",
    ],
)
def test_an_address_that_others_could_read_or_bend_is_refused(url: str) -> None:
    """Plain HTTP beyond this machine, credentials in the address and paths do not start."""
    with pytest.raises(Misconfigured) as refused:
        ServerEngine(url, revision=REVISION)
    assert refused.value.code == "policy_url"


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(question(action(CREDIT), action(CREDIT)), id="an action twice"),
        pytest.param(ASKED.model_copy(update={"evaluations": ()}), id="no action"),
        pytest.param(ASKED.model_copy(update={"v": 2}), id="another version"),
        pytest.param(question(action(CREDIT, snapshot={"exists": True, "others": 0.5})), id="a float"),
        pytest.param(
            question(action(CREDIT, snapshot={"exists": True, "others": 2**53})), id="a large number"
        ),
        pytest.param(question(action(CREDIT, snapshot={"exists": True, "others": {1}})), id="no JSON"),
        pytest.param(question(action(CREDIT, snapshot={"name": "\ud800"})), id="no text"),
        pytest.param(
            ASKED.model_copy(
                update={"context": ASKED.context.model_copy(update={"mandate_hash": "v1:" + "0" * 64})}
            ),
            id="another mandate than its hash names",
        ),
        pytest.param(
            ASKED.model_copy(update={"context": ASKED.context.model_copy(update={"mandate": {"steps": []}})}),
            id="no mandate",
        ),
    ],
)
async def test_a_question_that_is_not_valid_is_never_asked(embedded: EmbeddedEngine, asked: Question) -> None:
    """Engines evaluate anything to something; so nothing but a valid question reaches one."""
    assert await code_of(embedded, asked) == "policy_question"
    async with served(result(right(*IDS))) as (url, seen), engine_at(url) as engine:
        assert await code_of(engine, asked) == "policy_question"
    assert seen == []


async def test_an_evaluation_past_its_deadline_gives_no_answer() -> None:
    """A question that takes long is cut off, and the engine answers the next one."""
    many = [
        Step(name=f"step_{number}", effect="account.annotate", fields=("notes",)) for number in range(5_000)
    ]
    slow = changed(MANDATE, steps=(*MANDATE.steps, *many))
    engine = EmbeddedEngine(deadline_seconds=0.05)
    assert (
        await code_of(engine, question(*batch(MANDATE, 100), mandate=slow, proposal={})) == "policy_timeout"
    )
    assert await answered_within(engine, attempts=20)


async def answered_within(engine: EmbeddedEngine, attempts: int) -> bool:
    """Whether a small question is answered; on a busy machine the short deadline may pass once more."""
    for _ in range(attempts):
        try:
            return len((await engine.ask(question(action(CREDIT)))).decisions) == 1
        except NoAnswer as error:
            if error.code != "policy_timeout":
                raise
    return False


async def test_an_evaluation_beyond_its_memory_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap holds, and a smaller question is answered within it."""
    monkeypatch.setattr(engines, "_MEMORY_PAGES", 12)
    engine = EmbeddedEngine()
    assert await code_of(engine, question(*batch(MANDATE, 100))) == "policy_too_large"
    assert len((await engine.ask(question(action(CREDIT)))).decisions) == 1


async def test_a_closed_engine_gives_no_answer() -> None:
    """Closed is an error, never an allow."""
    engine = EmbeddedEngine()
    engine.close()
    assert await code_of(engine) == "policy_error"


async def test_a_policy_without_its_data_fails_the_canary(policy_folder: Path) -> None:
    """An engine that denies the known allow is found before any work is done."""
    data = policy_data()
    del data["remit"]["settings"]["roles"]["canary"]
    data["remit"]["settings"]["effects"]["canary.touch"]["approvers"] = ["finance_lead"]
    engine = EmbeddedEngine(with_data(policy_folder, data))
    with pytest.raises(NoAnswer) as refused:
        await engine.check()
    assert refused.value.code == "policy_canary"


async def test_a_server_that_allows_everything_fails_the_canary() -> None:
    """A policy that was emptied answers completely, and is found all the same (F22)."""
    async with served(result(right("allowed", "denied"))) as (url, _), engine_at(url) as engine:
        with pytest.raises(NoAnswer) as refused:
            await engine.check()
    assert refused.value.code == "policy_canary"
