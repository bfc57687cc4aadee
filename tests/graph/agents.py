"""A whole agent for tests: the shared bench with a policy engine, a model that plays a script, and a driver.

Used by the fixtures of this folder, and by processes that a test starts and kills.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from remit.graph import Budget, Deps, Driver, Model, Report, RunEnd, status_of
from remit.graph.model import Call, Reply
from remit.policies import PolicyEngine, read_mandate
from remit.sandbox import Finding, check, dump
from remit.sandbox.worlds import World
from remit.tools.errors import NoAnswer
from remit.tools.mandates import Mandate
from remit.tools.questions import Answer, Question
from remit.tools.states import RunStatus
from tests.fixtures import Bench, Tokens, eventually

MANDATES = Path(__file__).parents[2] / "mandates"
INCIDENT = "outage-0611"
NOTE = "Outage 11 June: one-time credit of 10.00 USD issued."
BY_AN_EMPLOYEE = {"cust": "c-104", "cents": 1000, "cur": "USD", "memo": "outage-0611"}
"""A credit for the same reason by the older path, that no mandate knows of."""
HOLD_SECONDS = 6.0
"""A little more than policy holds messages back."""

_ids = count(1)


def call(name: str, **arguments: object) -> Call:
    """One call of a tool as a model writes it."""
    return raw_call(name, json.dumps(arguments))


def raw_call(name: str, arguments: str) -> Call:
    """One call whose arguments are any text at all."""
    return Call(f"call-{next(_ids)}", name, arguments)


def turn(*calls: Call, content: str = "", tokens: int = 100) -> Reply:
    return Reply(content, calls, tokens)


def credit(amount_minor: int = 1000, **target: str) -> Call:
    return call(
        "issue_credit", amount_minor=amount_minor, currency="USD", **(target or {"cohort": "cohort-1-1"})
    )


def annotate(**target: str) -> Call:
    return call("annotate_account", note=NOTE, **(target or {"cohort": "cohort-1-1"}))


def notify(**target: str) -> Call:
    return call("send_email", template="one_time_credit", **(target or {"cohort": "cohort-1-1"}))


def finish(*statements: tuple[str, int]) -> Reply:
    """The end of the work, with one statement for each step and count."""
    said = [
        {"text": f"{step} is done for {number}", "step": step, "count": number} for step, number in statements
    ]
    return turn(call("finish", statements=said))


def done(number: int) -> Reply:
    """The end of a campaign that reached so many subjects."""
    return finish(("credit", number), ("annotate", number), ("notify", number))


LIST = turn(call("list_affected_accounts", incident=INCIDENT))
CAMPAIGN = turn(credit(), annotate(), notify())
FEW, ALL = 3, 24
campaign = pytest.mark.parametrize("number", [ALL])
"""For tests whose agent has the mandate as it is, over all 24 customers of the incident."""
DONE = done(FEW)

Turn = Reply | Exception | Callable[[Sequence[dict[str, Any]]], Reply]


@dataclass
class Script:
    """A model in this process: one turn for each time that it is asked, the last one for ever."""

    turns: list[Turn] = field(default_factory=lambda: [LIST, CAMPAIGN, DONE])
    name: str = "script"
    asked: list[list[dict[str, Any]]] = field(default_factory=list)

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        self.asked.append(list(messages))
        played = self.turns[min(len(self.asked), len(self.turns)) - 1]
        if isinstance(played, Exception):
            raise played
        return played if isinstance(played, Reply) else played(messages)


class Switched:
    """A policy engine with a switch: while `silent`, it gives no answer, as one that cannot be reached."""

    def __init__(self, engine: PolicyEngine) -> None:
        self.engine = engine
        self.silent = False
        self.questions = 0
        self.other_revision: str | None = None

    @property
    def revision(self) -> str:
        return self.other_revision or self.engine.revision

    async def ask(self, question: Question) -> Answer:
        self.questions += 1
        if self.silent:
            raise NoAnswer("Policy gave no answer. Run `remit policy check`.", code="policy_unreachable")
        answer = await self.engine.ask(question)
        return answer.model_copy(update={"revision": self.revision})

    async def check(self) -> None:
        if self.silent:
            raise NoAnswer("Policy gave no answer. Run `remit policy check`.", code="policy_unreachable")
        await self.engine.check()


@dataclass
class Agent:
    """One agent process over a fresh ledger and a fresh company, and what tests arrange and ask of it.

    `cohort` are the subjects of its mandate, customer 104 first.
    """

    bench: Bench
    world: World
    tokens: Tokens
    policy: Switched
    model: Script
    driver: Driver
    mandate: Mandate
    deps: Deps
    cohort: list[str]

    @classmethod
    async def made(
        cls, bench: Bench, world: World, tokens: Tokens, engine: PolicyEngine, number: int, **changes: object
    ) -> Agent:
        """An agent whose mandate is granted over `number` customers; `changes` replace fields of the mandate."""
        policy, model = Switched(engine), Script([LIST, CAMPAIGN, done(number)])
        deps = _deps(bench, policy, model)
        mandate = read_mandate(MANDATES / f"{INCIDENT}.yaml").model_copy(update=changes)
        cohort = affected(world)[:number]
        agent = cls(bench, world, tokens, policy, model, Driver(deps, bench.worker), mandate, deps, cohort)
        await agent.grant(mandate)
        return agent

    async def grant(self, mandate: Mandate) -> None:
        """Grants a mandate over the cohort as the support manager, and works under it from now on."""
        secret = self.tokens.support_manager
        await self.bench.people.grant(secret, mandate.hash, mandate.document(), self.cohort)
        self.mandate = mandate

    @property
    def customers(self) -> set[str]:
        """The cohort by the company's own ids."""
        return {subject.partition(":")[2] for subject in self.cohort}

    def driver_with(self, **parts: Any) -> Driver:
        """Another driver of the same worker: `parts` replace those of `deps`."""
        return Driver(replace(self.deps, **parts), self.bench.worker)

    def budget(self, **limits: int) -> None:
        """From now on the driver works under this budget."""
        self.deps = replace(self.deps, budget=Budget(**limits))
        self.driver = Driver(self.deps, self.bench.worker)

    async def start(self) -> str:
        return await self.driver.start(self.tokens.support_manager, self.mandate.hash)

    async def drive(self, run: str, *, by_person: bool = False) -> RunEnd:
        return await self.driver.drive(run, by_person=by_person)

    async def started(self) -> tuple[str, RunEnd]:
        """A new run, driven to its first pause or end."""
        run = await self.start()
        return run, await self.drive(run)

    async def approved(self) -> tuple[str, RunEnd]:
        """A new run, paused for approval, and approved as a whole by the finance lead; nothing has been sent."""
        run, end = await self.started()
        await self.approve()
        return run, end

    async def approvals(self) -> list[dict[str, Any]]:
        """What people are asked now."""
        return await self.bench.database.rows("approvals", which=None)

    async def approve(self, only: Sequence[int] | None = None, *, grant: bool = True) -> None:
        """The finance lead decides everything that is asked, or only some operations of it."""
        for asked in await self.approvals():
            await self.bench.people.decide(
                self.tokens.finance_lead,
                asked["id"],
                asked["set_hash"],
                grant=grant,
                rationale="seen",
                only=only,
            )

    async def finished(self, run: str, *, driver: Driver | None = None, seconds: float = 30.0) -> RunEnd:
        """Carry the run on until it ends or only a person can go on; holds pass at once."""
        ends: list[RunEnd] = []

        async def done() -> bool:
            await self.bench.sweep()
            begun = (await self.row(run))["token"] > 0
            if not begun or await self.bench.database.value("run_ready", run=run):
                ends.append(await (driver or self.driver).drive(run))
            else:
                ends.append(await self.standing(run))
            if ends[-1].paused and "hold" in ends[-1].waits:
                await self.skip(HOLD_SECONDS)
            return not ends[-1].paused or ends[-1].only_people

        await eventually(done, seconds)
        return ends[-1]

    async def standing(self, run: str) -> RunEnd:
        """Where the run stands by the ledger, with what its operations wait for now."""
        row = await self.row(run)
        waits: dict[str, int] = {}
        for found in await self.bench.database.rows("obstacles", run=run):
            waits[found["obstacle"]] = waits.get(found["obstacle"], 0) + found["count"]
        return RunEnd(run, RunStatus(row["status"]), row["reason"], waits)

    async def swept_to(self, step: str, *states: str) -> None:
        """Sweeps, without driving any run, until the operations of a step are in these states and no other."""

        async def there() -> bool:
            await self.bench.sweep()
            return {operation["state"] for operation in await self.operations(step)} == set(states)

        await eventually(there)

    async def skip(self, seconds: float) -> None:
        """The company's time and the ledger's move on together."""
        await self.bench.database.rows("advance_clock", seconds=seconds)
        await self.world.control.advance(seconds)

    async def row(self, run: str) -> dict[str, Any]:
        found = await self.bench.database.row("run", run=run)
        assert found is not None
        return found

    async def plans(self, run: str) -> list[dict[str, Any]]:
        return await self.bench.database.rows("plans", run=run)

    async def outcomes(self, run: str, plan: int) -> list[dict[str, Any]]:
        return await self.bench.database.rows("proposal_outcomes", run=run, plan=plan)

    async def operations(self, step: str = "") -> list[dict[str, Any]]:
        """All revisions of all operations, or those of one step, in order of id."""
        query = "SELECT * FROM remit.standing WHERE %s IN ('', step) ORDER BY id"
        return await self.bench.sql(query, step)

    async def status(self, subject: str | None = None) -> Report:
        return await status_of(self.deps, self.mandate.purpose, subject)

    def records(self) -> dict[str, Any]:
        return dump(self.world.home)

    def effects(self) -> tuple[Any, ...]:
        """What the company's records show as changed by anybody."""
        records = self.records()
        return records["credits"], records["messages"], records["changes"]

    def breaches(self, *, final: bool = False) -> list[Finding]:
        """What the company's own checker finds wrong; `final`: also whom of the cohort the campaign did not reach."""
        found = check(self.world.home, INCIDENT, final)
        return [one for one in found if one.invariant != "complete" or one.subject in self.cohort]

    @contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """Asserts that the company's records are the same afterwards."""
        before = self.effects()
        yield
        assert self.effects() == before


def affected(world: World) -> list[str]:
    """The subjects of the incident by the company's own records, customer 104 first."""
    incidents = {one["id"]: one["affected"] for one in dump(world.home)["incidents"]}
    customers = sorted(incidents[INCIDENT], key=lambda customer: (customer != "c-104", customer))
    return [f"customer:{customer}" for customer in customers]


def _deps(bench: Bench, policy: PolicyEngine, model: Model) -> Deps:
    return Deps(
        database=bench.database,
        ledger=bench.ledger,
        catalogue=bench.catalogue,
        transport=bench.transport,
        runner=bench.runner,
        policy=policy,
        model=model,
    )
