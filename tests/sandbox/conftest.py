"""A world per test, served from the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remit.sandbox.worlds import World, served_world


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The processes of all tests share compiled modules: compiling is half of what a start takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with served_world(tmp_path) as opened:
        yield opened
