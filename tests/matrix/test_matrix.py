"""The crash matrix (I1, I4, I5): a real worker ends at each fault point, another carries on, the records are compared."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remit.checkpoints.embedded_access import Urls
from tests.matrix.bench import Matrix, opened_matrix
from tests.matrix.rows import pairwise


@pytest.fixture
async def matrix(ledger_database: Urls, tmp_path: Path) -> AsyncIterator[Matrix]:
    if not hasattr(os, "fork"):
        assert os.environ.get("CI") != "true", "The crash matrix needs fork, and CI may leave nothing out."
        pytest.skip("the crash matrix needs a system that forks")
    async with opened_matrix(ledger_database.app_url, tmp_path) as opened:
        yield opened


@pytest.mark.slow
async def test_try(matrix: Matrix) -> None:
    """Trial."""
    import time

    rows = pairwise()
    only = os.environ.get("ROWS", "")
    step = int(os.environ.get("STEP", "1"))
    rows = [r for r in rows if only in str(r[0])][::step]
    t = time.time()
    tally = await matrix.run(rows)
    print("\n".join([*tally.lines(), *tally.wrong, f"{time.time() - t:.1f} s"]))
    assert not tally.wrong
