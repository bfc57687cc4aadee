"""One compiled engine and one real OPA server per test run, and a copy of the policy that a test may change."""

import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remit.policies import EmbeddedEngine, ServerEngine
from remit.policies.revision import HERE, PLAIN, revision_of

from .cases import copied
from .misbehaving import free_port

START_SECONDS = 20


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def opa() -> str:
    """The opa binary. Without one its tests are skipped, but never in CI."""
    found = shutil.which(os.environ.get("REMIT_OPA", "opa"))
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("There is no opa. Set REMIT_OPA to one: in CI the real server is not optional.")
    if found is None:
        pytest.skip("no opa on PATH and none in REMIT_OPA: the real OPA server was not asked")
    return found


@pytest.fixture(scope="session")
def opa_url(opa: str) -> Iterator[str]:
    """The address of a real OPA server that holds the committed plain bundle."""
    port = free_port()
    command = [opa, "run", "--server", "--addr", f"127.0.0.1:{port}", "--log-level", "error"]
    command += ["--skip-version-check", "--bundle", str(HERE / "bundle" / PLAIN)]
    with subprocess.Popen(command) as server:
        try:
            until_healthy(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture
async def server(opa_url: str) -> AsyncIterator[ServerEngine]:
    async with ServerEngine(opa_url, revision=revision_of(HERE)) as engine:
        yield engine


@pytest.fixture
def policy_folder(tmp_path: Path) -> Path:
    """A copy of the policy's source and artefacts."""
    return copied(tmp_path)


def until_healthy(url: str, trusted: ssl.SSLContext | None = None, path: str = "/health?bundles") -> None:
    """Waits until the server lives and holds its bundle."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=1, context=trusted):  # noqa: S310  # our own address
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
