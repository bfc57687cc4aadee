"""How long a decision takes: one action and 100, in this process and through a local OPA server, side by side.

Both sides run in one process, in turn and over the same questions, so that their ratios hold on a busy machine; the
milliseconds are this machine's at this moment. `make bench`, or `python benchmarks/decisions.py`.
"""

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from remit.policies import EmbeddedEngine, PolicyEngine, ServerEngine, read_mandate
from remit.policies.revision import HERE, PLAIN, revision_of
from remit.tools.errors import NoAnswer
from remit.tools.questions import (
    BATCH,
    Agent,
    Context,
    EffectName,
    Evaluation,
    Link,
    Properties,
    Question,
    Resource,
    ResourceProperties,
    Total,
)

START_SECONDS = 20.0


@dataclass(frozen=True)
class Measured:
    """What one engine took for one size of question; milliseconds for each whole question."""

    engine: str
    actions: int
    times: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def slowest_of_20(self) -> float:
        return statistics.quantiles(self.times, n=20)[-1]


def asked(actions: int) -> Question:
    """A credit for each of so many customers of the shipped mandate: all allowed by the matrix or asked about alike."""
    mandate = read_mandate(HERE.parent / "mandates" / "outage-0611.yaml")
    credit = mandate.steps[0]
    assert credit.exactly is not None, "the first step of the shipped mandate moves money"
    properties = Properties(
        tool="issue_credit",
        tool_version="1",
        step=credit.name,
        reversibility="compensable",
        consequence="medium",
        amount_minor=credit.exactly.amount_minor,
        currency=credit.exactly.currency,
    )
    resource = ResourceProperties(
        in_cohort=True, rejected_before=False, snapshot={"exists": True, "others": 0}, requires=()
    )
    total = Total(count=actions, amounts={credit.exactly.currency: actions * credit.exactly.amount_minor})
    return Question(
        subject=Agent(
            id=mandate.agent,
            version="bench",
            chain=(Link(part="grantor", person="support-manager", role="support_manager"),),
        ),
        context=Context(
            now=mandate.valid_from,
            environment="sandbox",
            mandate_hash=mandate.hash,
            mandate=mandate.document(),
            revoked=False,
            totals={},
            proposal={credit.name: total},
        ),
        evaluations=tuple(
            Evaluation(
                id=f"credit-{number}",
                action=EffectName(name=credit.effect, properties=properties),
                resource=Resource(type="customer", id=f"c-{number}", properties=resource),
            )
            for number in range(actions)
        ),
    )


@asynccontextmanager
async def engines(opa: str | None) -> AsyncIterator[dict[str, PolicyEngine]]:
    """The compiled engine, and the server where there is an opa."""
    embedded = EmbeddedEngine()
    found: dict[str, PolicyEngine] = {"embedded": embedded}
    if opa is None:
        yield found
    else:
        async with served(opa) as server:
            yield {**found, "OPA server": server}
    embedded.close()


@asynccontextmanager
async def served(opa: str) -> AsyncIterator[ServerEngine]:
    """A local OPA server with the committed bundle, once it gives answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["run", "--server", "--addr", address, "--log-level", "error", "--skip-version-check"]
    process = await asyncio.create_subprocess_exec(opa, *command, "--bundle", str(HERE / "bundle" / PLAIN))
    try:
        async with ServerEngine(f"http://{address}", revision=revision_of(HERE)) as engine:
            await until_it_answers(engine)
            yield engine
    finally:
        process.terminate()
        await process.wait()


async def until_it_answers(engine: ServerEngine) -> None:
    """NoAnswer when it does not within START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return await engine.check()
        except NoAnswer:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.05)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of one call."""
    begun = time.perf_counter()
    await call()
    return (time.perf_counter() - begun) * 1_000


async def measured(sides: dict[str, PolicyEngine], actions: int, rounds: int) -> list[Measured]:
    """Each engine asked in turn, `rounds` times, after one question that is not counted."""
    question = asked(actions)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for name in [*sides, *[name for _ in range(rounds) for name in sides]]:
        times[name].append(await timed(lambda name=name: sides[name].ask(question)))  # type: ignore[misc]
    return [Measured(name, actions, found[1:]) for name, found in times.items()]


def shown(rows: Sequence[Measured]) -> Table:
    """Medians beside their ratios to the first engine at the same size."""
    table = Table(title=f"Decisions of policy {revision_of(HERE)}")
    for name in ("engine", "actions", "median ms", "95 % ms", "ms per action", "times embedded"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    base = {row.actions: row.median for row in rows if row.engine == "embedded"}
    for row in rows:
        table.add_row(
            row.engine,
            str(row.actions),
            f"{row.median:.2f}",
            f"{row.slowest_of_20:.2f}",
            f"{row.median / row.actions:.3f}",
            f"{row.median / base[row.actions]:.2f}",
        )
    return table


async def main(rounds: int) -> None:
    opa = shutil.which(os.environ.get("REMIT_OPA", "opa"))
    if opa is None:
        print("No opa on PATH and none in REMIT_OPA: only the embedded engine is measured.", file=sys.stderr)
    async with engines(opa) as sides:
        rows = [row for actions in (1, BATCH) for row in await measured(sides, actions, rounds)]
    Console().print(shown(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="questions of each size to each engine")
    asyncio.run(main(parser.parse_args().rounds))
