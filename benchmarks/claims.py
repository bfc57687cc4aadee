"""How many operations a second a worker claims, one at a time and 100 at a time, on the embedded Postgres.

A claim is one call of one database function in a transaction of its own: the boundary lock, every gate, the limits,
the attempt and the journal. Nothing is sent. Both sizes run in turn on one database. `make bench`.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from remit.checkpoints import embedded, migrate
from remit.tools.ports import Lease
from tests.fixtures import Bench, mint_tokens, opened_bench

SIZES = (1, 100)


async def main(rounds: int) -> None:
    # Not below a folder that only this user may enter: as root, Postgres runs as somebody else.
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        urls = await embedded.up(home)
        try:
            await migrate(urls.owner_url, tenant="bench", environment="sandbox")
            async with opened_bench(urls.app_url, home, {}, {}) as bench:
                shown(await measured(bench, rounds))
        finally:
            await embedded.remove(home)


async def measured(bench: Bench, rounds: int) -> dict[int, float]:
    """Claims a second by batch size; `rounds` hundreds of operations of each size, in turn."""
    subjects = [f"customer:c-{number}" for number in range(100 * len(SIZES) * rounds)]
    lease = await bench.run_over(await mint_tokens(bench.people), subjects)
    seconds = dict.fromkeys(SIZES, 0.0)
    for start in range(0, len(subjects), 100):
        ids = await bench.propose(lease, "credit", subjects[start : start + 100])
        size = SIZES[start // 100 % len(SIZES)]
        seconds[size] += await claimed(bench, lease, ids, size)
    return {size: 100 * rounds / seconds[size] for size in SIZES}


async def claimed(bench: Bench, lease: Lease, ids: list[int], size: int) -> float:
    """Seconds that it took to claim these, so many at a time. AssertionError when one was not claimed."""
    read_at, terms = await bench.ledger.now(), bench.runner._terms
    begun = time.perf_counter()
    claims = [
        claim
        for start in range(0, len(ids), size)
        for claim in await bench.ledger.claim(lease, ids[start : start + size], read_at, 30.0, terms)
    ]
    took = time.perf_counter() - begun
    assert [claim.refused for claim in claims] == [None] * len(ids), "everything that is measured was claimed"
    return took


def shown(rates: dict[int, float]) -> None:
    table = Table(title="Claims")
    for name in ("at a time", "claims a second", "times one at a time"):
        table.add_column(name, justify="right")
    for size, rate in rates.items():
        table.add_row(str(size), f"{rate:.0f}", f"{rate / rates[1]:.1f}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="hundreds of operations of each size")
    asyncio.run(main(parser.parse_args().rounds))
