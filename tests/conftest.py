"""What every test may lean on: one embedded Postgres per test run, and an empty database per test."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remit.checkpoints import embedded
from remit.checkpoints.embedded_access import Urls


@pytest.fixture(scope="session")
def postgres_home() -> Iterator[Path]:
    """The home of a running server. Not under pytest's own folder, which only its user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        asyncio.run(embedded.up(home))
        yield home
        asyncio.run(embedded.remove(home))


@pytest.fixture
async def empty_database(postgres_home: Path) -> AsyncIterator[Urls]:
    """A new database without tables, for one test."""
    name = f"test_{secrets.token_hex(6)}"
    yield await embedded.create_database(postgres_home, name)
    await embedded.drop_database(postgres_home, name)
