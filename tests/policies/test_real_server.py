"""Real OPA servers that hold the wrong thing, and the client library against what it promises (F22, F26)."""

import asyncio
import json
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from aiohttp import web
from opa_client import create_opa_client  # type: ignore[import-untyped]  # it ships no types

from remit.policies import EmbeddedEngine, ServerEngine
from remit.policies.build import build
from remit.policies.opa_client import PolicyClient
from remit.policies.revision import HERE, PLAIN, plain_bundle, revision_of
from remit.tools.actions import Json
from remit.tools.errors import NoAnswer

from .cases import CREDIT, MANDATE, NOTIFY, action, copied, policy_data, question, with_data
from .conftest import until_healthy
from .misbehaving import document, free_port, served

ASKED = question(action(CREDIT), action(NOTIFY))


@contextmanager
def running(opa: str, *arguments: str, healthy: str = "/health") -> Iterator[str]:
    """The address of an OPA server with these arguments."""
    port = free_port()
    command = [opa, "run", "--server", "--addr", f"127.0.0.1:{port}", "--log-level", "error"]
    with subprocess.Popen([*command, "--skip-version-check", *arguments]) as server:
        try:
            until_healthy(f"http://127.0.0.1:{port}", path=healthy)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


async def code_of(url: str, revision: str) -> str:
    async with ServerEngine(url, revision=revision) as engine:
        with pytest.raises(NoAnswer) as refused:
            await engine.ask(ASKED)
        assert await told(engine) == refused.value.code
    return refused.value.code


async def told(engine: ServerEngine) -> str:
    """The code under which the canary fails."""
    with pytest.raises(NoAnswer) as refused:
        await engine.check()
    return refused.value.code


def changed(folder: Path, hold_seconds: int) -> Path:
    """A policy folder of another revision, with a fresh bundle."""
    data = policy_data()
    data["remit"]["settings"]["effects"]["email.send"]["hold_seconds"] = hold_seconds
    build(with_data(copied(folder), data), None)
    return folder


async def test_a_server_with_the_bundle_of_another_revision_gives_no_answer(opa: str, tmp_path: Path) -> None:
    """A policy that was changed here and not there: complete answers, and none of them counts."""
    folder = changed(tmp_path, 6)
    with running(opa, "--bundle", str(folder / "bundle" / PLAIN)) as url:
        assert await code_of(url, revision_of(HERE)) == "policy_revision"


async def test_a_server_without_a_bundle_gives_no_answer(opa: str) -> None:
    """200 and an empty document, which some clients read as no objection (F22)."""
    with running(opa) as url:
        assert await code_of(url, revision_of(HERE)) == "policy_bundle"


async def test_a_server_whose_download_broke_off_gives_no_answer(opa: str, tmp_path: Path) -> None:
    """Half of the bundle's bytes: the server lives, holds nothing, and says so in no other way."""
    (tmp_path / "half.tar.gz").write_bytes(plain_bundle(HERE)[: len(plain_bundle(HERE)) // 2])
    config = {"bundles": {"remit": {"resource": (tmp_path / "half.tar.gz").as_uri()}}}
    (tmp_path / "opa.json").write_text(json.dumps(config))
    with running(opa, "--config-file", str(tmp_path / "opa.json")) as url:
        assert await code_of(url, revision_of(HERE)) == "policy_bundle"


@pytest.mark.parametrize("missing", ["data.json", "*.rego"])
async def test_a_server_with_half_of_a_bundle_of_the_right_revision_gives_no_answer(
    opa: str, tmp_path: Path, missing: str
) -> None:
    """Rules without their data must not look like a deny, and data without rules are no answer at all."""
    half = tmp_path / "half"
    (half / "boundary").mkdir(parents=True)
    sources = [HERE / "boundary" / "data.json", *(HERE / "boundary").glob("*.rego")]
    for file in sources:
        if not file.match(missing) and not file.stem.endswith("_test"):
            place = half if file.suffix == ".json" else half / "boundary"
            (place / file.name).write_bytes(file.read_bytes())
    (half / ".manifest").write_text(json.dumps({"revision": revision_of(HERE), "roots": ["remit"]}))
    with running(opa, "--bundle", str(half)) as url:
        code = await code_of(url, revision_of(HERE))
    assert code == {"data.json": "policy_bundle", "*.rego": "policy_undefined"}[missing]


async def test_the_compiled_policy_without_data_gives_no_answer() -> None:
    """The same half in this process: no deny, but no answer."""
    engine = EmbeddedEngine()
    engine._policy.set_data({})
    with pytest.raises(NoAnswer) as refused:
        await engine.ask(ASKED)
    assert refused.value.code == "policy_bundle"


async def test_the_sync_and_the_async_client_of_the_library_say_the_same_as_ours(opa_url: str) -> None:
    """One table of questions through all three clients: the library's own twins and the narrowed one (F26)."""
    where = {"host": "127.0.0.1", "port": int(opa_url.rpartition(":")[2]), "retries": 0}
    plain, theirs, ours = (
        create_opa_client(**where),
        create_opa_client(True, **where),
        PolicyClient(host="127.0.0.1", port=int(opa_url.rpartition(":")[2]), timeout=5.0),
    )
    async with theirs:
        for step in MANDATE.steps:
            asked: Json = question(action(step), action(step, 205, in_cohort=False)).model_dump(mode="json")
            said = await ours.decisions(asked)
            rule = (asked, "remit/boundary", "decisions")
            in_thread = await asyncio.to_thread(plain.query_rule, *rule)
            assert said["result"] == in_thread["result"] == (await theirs.query_rule(*rule))["result"]
            assert len(said["result"]) == 2
    plain.close_connection()
    await ours.close_connection()


async def test_the_timeout_and_the_retries_that_were_set_are_those_in_force() -> None:
    """0.2 seconds at a server that takes a second, asked once; and nothing of it is overwritten later (F26)."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.wait_for(asyncio.Event().wait(), 5)
        return await document({})(request)

    async with (
        served(late) as (url, seen),
        ServerEngine(url, revision=revision_of(HERE), deadline_seconds=0.2) as engine,
    ):
        begun = time.monotonic()
        with pytest.raises(NoAnswer) as refused:
            await engine.ask(ASKED)
        took = time.monotonic() - begun
        session = engine._client._session
        assert session is not None
        assert (session.timeout.total, engine._client.retries) == (0.2, 0)
    assert (refused.value.code, len(seen)) == ("policy_timeout", 1)
    assert 0.2 <= took < 1.0


def test_the_client_library_is_pinned_to_the_version_that_was_examined() -> None:
    """Its private methods are narrowed here, so another version would have to be examined first (F26)."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    (pin,) = [one for one in project["dependencies"] if one.startswith("opa-python-client")]
    locked = re.findall(
        r"^opa-python-client==(\S+)", (HERE.parent / "requirements.lock").read_text(), re.MULTILINE
    )
    assert [pin, *locked] == ["opa-python-client==3.0.0", "3.0.0"]
    assert version("opa-python-client") == "3.0.0"


async def test_the_path_of_the_question_is_a_constant() -> None:
    """Tool names that climb a path go into the input only (F25)."""
    async with served(document({})) as (url, seen), ServerEngine(url, revision=revision_of(HERE)) as engine:
        with pytest.raises(NoAnswer):
            await engine.ask(question(action(CREDIT, tool="../../policies", tool_version="?x#y")))
    assert [request.path_qs for request in seen] == ["/v1/data/remit/boundary/decisions?provenance=true"]
