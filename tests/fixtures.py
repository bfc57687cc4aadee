"""One agent process for tests: ledger, people, transport, runner and worker over a database and a company.

It proposes operations directly through `remit.propose`, with the verdict that a test wants, so that no policy and no
graph is needed. Used by fixtures in this process and by scripts that a test starts and kills.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.checkpoints import Database, Ledger, People, Sweep, Worker, open_pool
from remit.checkpoints.database import json
from remit.tools.actions import Action, Json, action_hash, intent_hash, operation_key, reference
from remit.tools.catalogue import Catalogue, credit_catalogue
from remit.tools.contracts import WriteTool
from remit.tools.mandates import AskAbove, Mandate, Money, Step, Who
from remit.tools.ports import Lease, Reach, inert
from remit.tools.runner import SEND_SECONDS, Runner, Sent
from remit.tools.transport import Response, Transport

PURPOSE = "outage-0611"
AGENT = "credit-agent"
HOUR = 3_600

STEPS = (
    Step(name="credit", effect="credit.issue", exactly=Money(amount_minor=1000, currency="USD")),
    Step(name="annotate", effect="account.annotate", fields=("notes",), after=("credit",)),
    Step(
        name="notify",
        effect="email.send",
        template="one_time_credit",
        promise="one_time_credit",
        after=("credit",),
        exactly=Money(amount_minor=1000, currency="USD"),
    ),
)

TOOLS = {"credit": "issue_credit", "annotate": "annotate_account", "notify": "send_email"}

_SAID: dict[str, dict[str, Json]] = {
    "credit.issue": {"amount_minor": 1000, "currency": "USD"},
    "account.annotate": {"note": "Credited 10.00 USD for the outage of 11 June."},
    "email.send": {"template": "one_time_credit"},
}

_PREMISES: dict[str, dict[str, Json]] = {
    "credit.issue": {"exists": True, "others": 0},
    "account.annotate": {"exists": True},
    "email.send": {"exists": True, "promise": "one_time_credit"},
}
"""What a fresh world says about an affected customer; the runner compares it with what it reads before a claim."""

Obligations = dict[str, Json]

NO_OBLIGATIONS: Obligations = {
    "hold_seconds": 0,
    "release_by": [],
    "approvers": [],
    "quorum": 0,
    "quorum_of": {},
    "decide_within": 0,
    "on_expiry": None,
    "execute_within": 0,
    "volume": [],
    "auto_budget": [],
    "verify": False,
}

ASK_FINANCE: Obligations = {
    **NO_OBLIGATIONS,
    "approvers": ["finance_lead"],
    "quorum": 1,
    "decide_within": HOUR,
    "execute_within": HOUR,
}


@dataclass(frozen=True)
class Tokens:
    """The secrets of three people; the administrator minted the other two."""

    administrator: str
    support_manager: str
    finance_lead: str


async def mint_tokens(people: People) -> Tokens:
    """Bootstraps the administrator, and mints the two others, of an empty database."""
    _, administrator, _ = await people.mint(None, "administrator", "administrator", 24 * HOUR)
    _, manager, _ = await people.mint(administrator, "support-manager", "support_manager", 24 * HOUR)
    _, lead, _ = await people.mint(administrator, "finance-lead", "finance_lead", 24 * HOUR)
    return Tokens(administrator, manager, lead)


def quick_catalogue(*, timeout: float = 1.0, visible_within: float = 0.4, **changes: object) -> Catalogue:
    """The credit agent's tools with shorter waits: everything else of their contracts as it is."""

    def quick(tool: WriteTool) -> WriteTool:
        fields = {"timeout": timeout, "visible_within": visible_within, **changes}
        contract = tool.contract.model_copy(update=fields)
        made: WriteTool = type(type(tool).__name__, (type(tool),), {"contract": contract})()
        return made

    usual = credit_catalogue()
    return Catalogue(writes=[quick(tool) for tool in usual.writes()], reads=usual.reads())


def batching(size: int) -> Catalogue:
    """The quick catalogue, whose credits go up to `size` in one call."""
    usual = quick_catalogue()
    writes = [
        _batched(tool, size) if tool.contract.name == "issue_credit" else tool for tool in usual.writes()
    ]
    return Catalogue(writes=writes, reads=usual.reads())


def _batched(tool: WriteTool, size: int) -> WriteTool:
    contract = tool.contract.model_copy(update={"batch": size})
    made: WriteTool = type("Batched", (type(tool),), {"contract": contract})()
    return made


def mandate_over(purpose: str = PURPOSE, **changes: object) -> Mandate:
    """A compiled mandate of three steps; `changes` replace fields of it."""
    plain = Mandate(
        purpose=purpose,
        why="The outage kept these customers out for more than a day.",
        agent=AGENT,
        who=Who(affected_by=purpose, at_most=1_000),
        valid_from=0,
        valid_until=4_000_000_000,
        steps=STEPS,
        never=("subscription.change",),
        ask_above=AskAbove(count=10),
        limits=(),
    )
    return plain.model_copy(update=changes)


def limit(
    count: int | None = None,
    amount_minor: int | None = None,
    name: str = "credits",
    scope: str = "purpose",
    window: str = "ever",
) -> dict[str, Json]:
    """One limit or budget as policy obliges to it; an amount is in USD."""
    currency = None if amount_minor is None else "USD"
    most = {"count": count, "amount_minor": amount_minor, "currency": currency}
    return {"name": name, "scope": scope, "window": window, **most}


def limited(
    count: int | None = None, amount_minor: int | None = None, name: str = "credits", **more: Any
) -> Obligations:
    """Obligations with one volume limit, of the purpose unless `more` names another scope or a window."""
    return {**NO_OBLIGATIONS, "volume": [limit(count, amount_minor, name, **more)]}


async def eventually(
    condition: Callable[[], Awaitable[bool]], seconds: float = 10.0, pause: float = 0.02
) -> None:
    """Waits until the condition holds, looking every `pause`; TimeoutError when it does not within `seconds`."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(pause)


class CountedTransport(Transport):
    """Remembers what was called, so that a test can say what was not."""

    def __init__(self, urls: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        super().__init__(urls, credentials.__getitem__)
        self.called: list[str] = []

    async def __aenter__(self) -> CountedTransport:
        await super().__aenter__()
        return self

    async def call(self, receiver: str, method: str, path: str, **rest: Any) -> Response:
        self.called.append(f"{method} {path}")
        return await super().call(receiver, method, path, **rest)


@dataclass
class Bench:
    """All parts of one agent process, and shorthands for what tests arrange and ask."""

    database: Database
    ledger: Ledger
    people: People
    catalogue: Catalogue
    transport: CountedTransport
    runner: Runner
    worker: Worker
    home: Path

    async def granted(
        self, tokens: Tokens, subjects: Sequence[str], mandate: Mandate | None = None
    ) -> Mandate:
        """Grants a mandate over `subjects` as the support manager."""
        mandate = mandate or mandate_over()
        await self.people.grant(tokens.support_manager, mandate.hash, mandate.document(), subjects)
        return mandate

    async def started(self, tokens: Tokens, mandate: Mandate) -> str:
        """Starts a run of a granted mandate as the support manager; nobody holds it yet."""
        run_id = "run-" + secrets.token_hex(4)
        await self.database.rows(
            "start_run",
            secret=tokens.support_manager,
            run=run_id,
            mandate=mandate.hash,
            agent_version="test",
            fingerprint="",
        )
        return run_id

    async def leased(self, run_id: str, seconds: float = 60.0) -> Lease:
        """Takes the run; AssertionError when somebody else has it."""
        token = await self.database.value("acquire_lease", run=run_id, worker=self.worker.id, seconds=seconds)
        assert token is not None, f"{run_id} is held by somebody else"
        return Lease(run_id, token, self.worker.id)

    async def run_over(
        self, tokens: Tokens, subjects: Sequence[str], mandate: Mandate | None = None
    ) -> Lease:
        """Grants, starts and takes a run over `subjects`, all in one."""
        return await self.leased(await self.started(tokens, await self.granted(tokens, subjects, mandate)))

    def row(
        self,
        step: str,
        subject: str,
        *,
        tool: str | None = None,
        verdict: str | None = "allow",
        obligations: Obligations | None = None,
        said: Mapping[str, Json] | None = None,
        mandate: Mandate | None = None,
        requires: Sequence[str] | None = None,
        premises: Mapping[str, Json] | None = None,
    ) -> dict[str, Json]:
        """One row for `remit.propose`, as authorize builds it."""
        mandate = mandate or mandate_over()
        writing = self.catalogue.write(tool or TOOLS[step])
        contract, wanted = writing.contract, mandate.step(step)
        arguments = writing.arguments.model_validate({"subject": subject, **(said or _SAID[contract.effect])})
        intent = writing.intent(subject, arguments, wanted, mandate.purpose)
        key = operation_key(mandate.purpose, step, subject)
        relied_on = dict(premises or _PREMISES[contract.effect])
        action = Action(
            purpose=mandate.purpose,
            step=step,
            subject=subject,
            effect=contract.effect,
            tool=contract.name,
            tool_version=contract.version,
            intent=intent,
            request=writing.request(subject, intent, reference(self.ledger.installation, key)),
            relied_on=relied_on,
            mandate_hash=mandate.hash,
        )
        needed = [operation_key(mandate.purpose, name, subject) for name in wanted.after]
        return {
            "key": key,
            "purpose": mandate.purpose,
            "step": step,
            "subject": subject,
            "effect": contract.effect,
            "tool": contract.name,
            "tool_version": contract.version,
            "receivers": list(contract.receivers),
            "plan": 1,
            "mandate_hash": mandate.hash,
            "agent": mandate.agent,
            "agent_version": "test",
            "intent": intent,
            "intent_hash": intent_hash(intent),
            "request": action.request.model_dump(),
            "relied_on": relied_on,
            "action_hash": action_hash(action),
            "snapshot": relied_on,
            "requires": needed if requires is None else list(requires),
            "amount_minor": intent.get("amount_minor"),
            "currency": intent.get("currency"),
            "reversibility": contract.reversibility.value,
            "consequence": contract.consequence.value,
            "verdict": verdict,
            "reasons": [{"code": "said_by_test", "detail": ""}],
            "obligations": obligations or (ASK_FINANCE if verdict == "needs_approval" else NO_OBLIGATIONS),
            "policy_engine": "test",
            "policy_revision": "test",
            "decision_id": secrets.token_hex(4),
            "closed_detail": "denied by the test" if verdict == "deny" else None,
        }

    async def propose(
        self,
        lease: Lease,
        step: str,
        subjects: Sequence[str],
        *,
        requires: Sequence[str] | None = (),
        **changes: Any,
    ) -> list[int]:
        """Proposes one operation per subject and returns their ids; `requires` None takes the step's own."""
        rows = [self.row(step, subject, requires=requires, **changes) for subject in subjects]
        added = await self.database.rows("propose", run=lease.run_id, token=lease.token, rows=json(rows))
        return sorted(row["operation_id"] for row in added)

    async def send(self, lease: Lease) -> Sent:
        """One batch of everything of the run that nothing stands in the way of."""
        return await self.runner.send(lease, await self.ledger.sendable(lease.run_id, 0, 100))

    async def sweep(self) -> int:
        """One settle sweep over the whole database."""
        return await Sweep(self.database, self.runner, self.worker).once()

    async def carry_on(
        self, lease: Lease, done: Callable[[], Awaitable[bool]], seconds: float = 15.0
    ) -> None:
        """Sends and sweeps in turn until `done`; TimeoutError when that does not come within `seconds`."""

        async def turn() -> bool:
            await self.database.rows("start_holds", run=lease.run_id)
            await self.send(lease)
            await self.sweep()
            return await done()

        await eventually(turn, seconds)

    async def settled(self, lease: Lease, ids: Sequence[int], seconds: float = 15.0) -> None:
        """Carries on until all of these operations are SETTLED."""

        async def done() -> bool:
            return set(await self.states(ids)) == {"SETTLED"}

        await self.carry_on(lease, done, seconds)

    async def sql(self, query: str, *values: object) -> list[dict[str, Any]]:
        """A plain statement on the application's role, with %s for values."""
        async with self.database.pool.connection() as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def operation(self, id_: int) -> dict[str, Any]:
        """The row of `remit.standing`: every column, its obstacle and the fact as shown."""
        (row,) = await self.sql("SELECT * FROM remit.standing WHERE id = %s", id_)
        return row

    async def states(self, ids: Sequence[int]) -> list[str]:
        rows = await self.sql("SELECT state FROM remit.operations WHERE id = ANY (%s) ORDER BY id", list(ids))
        return [row["state"] for row in rows]

    async def obstacles(self, ids: Sequence[int]) -> list[str]:
        rows = await self.sql(
            "SELECT obstacle FROM remit.standing WHERE id = ANY (%s) ORDER BY id", list(ids)
        )
        return [row["obstacle"] for row in rows]

    async def cases(self) -> list[str]:
        """Codes of the open cases."""
        return [
            row["code"]
            for row in await self.sql("SELECT code FROM remit.cases WHERE closed_at IS NULL ORDER BY id")
        ]


@asynccontextmanager
async def opened_bench(
    app_url: str,
    home: Path,
    urls: Mapping[str, str],
    credentials: Mapping[str, str],
    *,
    catalogue: Catalogue | None = None,
    reach: Reach = inert,
    send_seconds: float = SEND_SECONDS,
) -> AsyncIterator[Bench]:
    """A bench on a migrated database and a company; the worker's lock is held until the context ends."""
    catalogue = catalogue or quick_catalogue()
    async with open_pool(app_url) as pool, CountedTransport(urls, credentials) as transport:
        database = Database(pool, reach)
        ledger = await Ledger.open(database)
        runner = Runner(ledger, catalogue, transport, reach, send_seconds=send_seconds)
        worker = await Worker.begin(database, home)
        yield Bench(database, ledger, People(database), catalogue, transport, runner, worker, home)
        await worker.end(database)
