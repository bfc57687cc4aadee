"""The crash matrix (F29, F41; I1, I4, I5): a worker meets its end at every fault point, and another carries on.

Each row is judged by the company's own records beside the ledger. The pairwise part runs always, the full product with
`make crash-full`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remit.checkpoints.database import queries
from remit.checkpoints.embedded_access import Urls
from remit.tools.ports import POINTS, FaultPoint
from tests.fixtures import Bench
from tests.matrix.bench import AT_ONCE, Matrix, Tally, opened_matrix
from tests.matrix.company import matrix_catalogue
from tests.matrix.rows import DIMENSIONS, TROUBLES, Kind, Party, Row, Signal, Trouble, Weather, full, pairwise

if TYPE_CHECKING:
    from tests.conftest import Clones

CALLS = {"model", "policy", "read", "premises", "snapshot", "may_send", "send", "verify", "confirm"}
"""What a process asks of others, and the last look at the orders before it sends."""

KEPT = {"checkpoint", "writes"}
"""What LangGraph's saver commits."""

WRITES = re.compile(r"\b(INSERT INTO|DELETE FROM|(?<!FOR )UPDATE \w+)")


@pytest.fixture
async def matrix(ledger_database: Urls, clones: Clones, tmp_path: Path) -> AsyncIterator[Matrix]:
    if not hasattr(os, "fork"):
        assert os.environ.get("CI") != "true", "The crash matrix needs fork, and CI may leave nothing out."
        pytest.skip("the crash matrix needs a system that forks")
    async with opened_matrix(ledger_database.app_url, tmp_path, clones) as opened:
        yield opened


async def judged(matrix: Matrix, parties: list[Party]) -> Tally:
    """All of them, with a table for people on the terminal."""
    began = time.monotonic()
    tally = await matrix.run(parties)
    print("\n".join(["", *tally.lines(), f"{'seconds':<40}{time.monotonic() - began:>8.0f}"]))
    return tally


def rows_of(parties: list[Party]) -> list[Row]:
    return [row for party in parties for row in party]


@pytest.mark.slow
async def test_whatever_a_worker_dies_of_every_effect_happens_once(matrix: Matrix) -> None:
    """Killed before and after, or suspended past its lease, at every commit and every call, for every kind of effect.

    A second effect, a lost one, an effect that the ledger does not know and a point that no worker reaches are wrong.
    One plan proposes up to three actions and pauses for a person's approval, so the effects stay one each over pause,
    death and resume (F01, F03).
    """
    parties = pairwise()
    tally = await judged(matrix, parties)
    assert tally.wrong == []
    assert tally.rows == len(rows_of(parties))
    assert tally.kills + tally.suspensions == len(parties)


@pytest.mark.crash_full
async def test_every_combination_has_one_effect(matrix: Matrix) -> None:
    """The full product: act by kind by signal by weather. CRASH_PART is `2/8` for the second of eight machines."""
    part, parts = (int(number) for number in os.environ.get("CRASH_PART", "1/1").split("/"))
    mine = full()[part - 1 :: parts]
    tally = await judged(matrix, mine)
    assert tally.wrong == []
    assert tally.rows == len(rows_of(mine)) > 0


@pytest.mark.slow
async def test_no_point_is_dead(matrix: Matrix) -> None:
    """Workers that nothing happens to, on an ordinary day and in each trouble, pass all points between them."""

    places = asyncio.Semaphore(AT_ONCE)

    async def passed(number: int, trouble: Trouble) -> set[str]:
        act = next(act for act in POINTS if TROUBLES.get(act, Trouble.NONE) is trouble)
        party = [Row(act, kind, Signal.KILLED_BEFORE, Weather.CALM) for kind in (Kind.CREDIT, Kind.NOTE)]
        async with places:
            return await matrix.undisturbed(number, party)

    days = await asyncio.gather(*(passed(number, trouble) for number, trouble in enumerate(Trouble)))
    assert {point.value for point in FaultPoint} - set().union(*days) == set()


async def test_every_statement_that_may_change_something_has_its_points(bench: Bench) -> None:
    """Told by the database: what calls a function that writes, or one that calls one, is a commit."""
    functions = await bench.sql(
        "SELECT proname AS name, prosrc AS text FROM pg_proc WHERE pronamespace = 'remit'::regnamespace"
    )
    writing = {one["name"] for one in functions if WRITES.search(one["text"])}
    while True:
        calling = {one["name"] for one in functions if called(one["text"]) & writing} - writing
        if not calling:
            break
        writing |= calling
    commits = {name for name, text in queries().items() if called(text) & writing}
    assert set(POINTS) - CALLS - KEPT == commits


def called(text: str) -> set[str]:
    return set(re.findall(r"(\w+)\(", text))


def test_every_point_of_the_enum_has_rows() -> None:
    """A point is before or after an act, and every act is in the matrix with every kind and every signal."""
    assert {point for pair in POINTS.values() for point in pair} == set(FaultPoint)
    for parties in (pairwise(), full()):
        assert {row.point for row in rows_of(parties)} == set(FaultPoint)


def test_any_two_values_stand_together_in_the_pairwise_part() -> None:
    """A covering array of strength two, with no row twice."""
    rows = [(row.act, row.kind, row.signal, row.weather) for row in rows_of(pairwise())]
    assert len(set(rows)) == len(rows) < len(rows_of(full())) / 10
    for one, other in combinations(range(len(DIMENSIONS)), 2):
        together = {(row[one], row[other]) for row in rows}
        assert set(product(DIMENSIONS[one], DIMENSIONS[other])) - together == set()


def test_the_full_product_is_every_combination_once() -> None:
    """No exception list."""
    rows = [(row.act, row.kind, row.signal, row.weather) for row in rows_of(full())]
    assert sorted(rows) == sorted(product(*DIMENSIONS))


def test_the_kinds_are_all_that_the_catalogue_can_do() -> None:
    """A new writing tool has to come into the matrix; what a row's trouble is named for exists."""
    assert {tool.contract.name for tool in matrix_catalogue().writes()} == {kind.value for kind in Kind}
    assert set(TROUBLES) <= set(POINTS)
    assert set(TROUBLES.values()) | {Trouble.NONE} == set(Trouble)
