"""The company's process: ``python -m remit.sandbox serve --home DIR``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from remit.sandbox.server import AlreadyRunning, serve
from remit.sandbox.store import database


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m remit.sandbox", description="The sandbox company.")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--home", type=Path, required=True, help="the folder that holds sandbox/")
    home = parser.parse_args().home
    if not database(home).exists():
        print("This home has no sandbox company yet. Reset it to make a fresh one.", file=sys.stderr)
        return 1
    try:
        asyncio.run(serve(home))
    except AlreadyRunning as other:
        print(other, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
