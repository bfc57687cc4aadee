"""`make chaos`: rounds of chaos until so many workers were killed. `--seed` is the first round's; each has the next.

Exit 0 when nothing was wrong, 1 with the seed, the story and the command that plays it again otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.arena import Ground, ground
from tests.chaos.rounds import Outcome, play


async def until(kills: int, seed: int, ground: Ground, folder: Path) -> list[Outcome]:
    """Rounds from `seed` on, until there were so many kills or something is wrong."""
    outcomes: list[Outcome] = []
    while sum(outcome.kills for outcome in outcomes) < kills and not any(o.wrong for o in outcomes):
        home = folder / f"round-{seed + len(outcomes)}"
        home.mkdir()
        outcomes.append(await play(seed + len(outcomes), ground, home))
        print(outcomes[-1].line(), flush=True)
    return outcomes


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--story", action="store_true", help="tell also what happened in rounds that went well"
    )
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with ground(folder) as opened:
            outcomes = await until(asked.kills, asked.seed, opened, folder)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(*(outcomes if asked.story else wrong), sep="\n")
    kills = sum(outcome.kills for outcome in outcomes)
    print(
        f"{kills} kills in {len(outcomes)} rounds, {len(wrong)} of them wrong, {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
