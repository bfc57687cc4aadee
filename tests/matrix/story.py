"""One party's story, told by one process from wherever the last one left it: grant, run, approve, send, settle.

It plays the worker and the people, whose commands are processes too. Everything that it does next follows from the
ledger, so whoever carries on needs no word from whoever died.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from remit.checkpoints import Sweep
from remit.checkpoints.database import json as jsonb
from remit.checkpoints.notices import Notices
from remit.graph import Deps, Driver, RunEnd
from remit.graph.driver import LEASE_SECONDS
from remit.graph.model import Call, Reply
from remit.sandbox import dump
from remit.sandbox.client import Control
from remit.tools.actions import operation_key, reference
from remit.tools.doors import Doors, Met
from remit.tools.errors import LeaseLost, NoAnswer, NotSent, Refused
from remit.tools.mandates import Mandate
from remit.tools.ports import FaultPoint
from remit.tools.questions import Answer, Decision, Obligations, Question, Reason
from remit.tools.states import Verdict
from tests.fixtures import ASK_FINANCE, HOUR, Bench, Tokens, eventually, opened_bench
from tests.matrix.company import mandate_for, matrix_catalogue, step_of
from tests.matrix.rows import Kind, Trouble

SECONDS = 60.0
"""For one whole story; a few seconds are usual, and what hangs longer is a fault."""

_LIVE = """
SELECT DISTINCT ON (s.key) s.*, EXISTS (
    SELECT FROM remit.cases c WHERE c.operation_id = s.id AND c.closed_at IS NULL) AS disputed
FROM remit.standing s WHERE s.purpose = %s ORDER BY s.key, s.revision DESC"""
_RUNS = "SELECT id FROM remit.runs WHERE purpose = %s AND ended_at IS NULL ORDER BY created_at"
_ASKED = "SELECT id, set_hash FROM remit.approvals WHERE run_id = %s AND status = 'OPEN'"


@dataclass(frozen=True)
class Order:
    """What one process is to do, where everything is, and at which point it gives itself which signal."""

    app_url: str
    home: str
    urls: dict[str, str]
    credentials: dict[str, str]
    tokens: dict[str, str]
    purpose: str
    subject: str
    wanted: dict[str, dict[str, Any]]
    """Arguments of the call by kind."""
    trouble: str
    point: str = ""
    armed_by: str = ""
    signal: int = 0
    lease_seconds: float = LEASE_SECONDS
    send_seconds: float = 8.0

    @property
    def kinds(self) -> list[Kind]:
        return [Kind(name) for name in self.wanted]

    @property
    def customer(self) -> str:
        return self.subject.partition(":")[2]

    def key(self, kind: Kind) -> str:
        return operation_key(self.purpose, step_of(kind), self.subject)


class Hook:
    """The fault hook: one signal at one point, and the wish to end where the row's trouble is that."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._asked = False
        self._hit = False
        self.reached: set[FaultPoint] = set()
        self.driving: asyncio.Task[RunEnd] | None = None
        self.cancelled: Callable[[], Awaitable[None]] | None = None
        """What a person does when the worker has closed what a stop kept from being sent."""

    async def reach(self, point: FaultPoint) -> None:
        armed = not self._order.armed_by or self._order.armed_by in self.reached
        self.reached.add(point)
        if point.value == self._order.point and armed and not self._hit:
            self._hit = True
            os.kill(os.getpid(), self._order.signal)
        if point is FaultPoint.AFTER_CANCEL_STOPPED and self.cancelled is not None:
            await self.cancelled()
        ends = self._order.trouble == Trouble.ASKED_TO_END and point is FaultPoint.BEFORE_MAY_SEND
        if ends and self.driving is not None and not self._asked:
            self._asked = True
            self.driving.cancel()
            await asyncio.Event().wait()


class Truthful:
    """A model that proposes what the evidence does not show as completed, and finishes when nothing is left."""

    name = "truthful"

    def __init__(self, order: Order) -> None:
        self._order = order

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        number = sum(message["role"] == "assistant" for message in messages) + 1
        facts = json.loads(messages[-1]["content"].partition(": ")[2])["subjects_by_step_and_fact"]
        open_kinds = [k for k in self._order.kinds if facts[step_of(k)] != {"COMPLETED": 1}]
        if not open_kinds:
            said = [{"text": "Done.", "step": step_of(k), "count": 1} for k in self._order.kinds]
            return Reply("", (_call(f"c-{number}", "finish", statements=said),), 10)
        subject = self._order.subject
        writes = [
            _call(f"{kind.name}-{number}", kind.value, subject=subject, **self._order.wanted[kind])
            for kind in open_kinds
        ]
        return Reply("", (_call(f"r-{number}", "read_account", subject=subject), *writes), 10)


def _call(id_: str, name: str, **arguments: object) -> Call:
    return Call(id_, name, json.dumps(arguments))


class Asking:
    """A policy that has a person asked about everything, and gives no answer at first where that is the trouble."""

    revision = "matrix"

    def __init__(self, order: Order) -> None:
        self._silent = 2 if order.trouble == Trouble.SILENT_POLICY else 0
        held = {"hold_seconds": 600, "release_by": ["finance_lead"]} if order.trouble == Trouble.HELD else {}
        self._obligations = Obligations.model_validate_json(json.dumps({**ASK_FINANCE, **held}))

    async def ask(self, question: Question) -> Answer:
        if self._silent > 0:
            self._silent -= 1
            raise NoAnswer("Policy gave no answer. Ask again.", code="policy_unreachable")
        reasons = (Reason(code="matrix_asks"),)
        decisions = tuple(
            Decision(id=e.id, verdict=Verdict.NEEDS_APPROVAL, reasons=reasons, obligations=self._obligations)
            for e in question.evaluations
        )
        return Answer(decisions=decisions, engine="matrix", revision=self.revision, decision_id="matrix")

    async def check(self) -> None:
        """It could be asked."""


class Story:
    """The worker and the people of one row."""

    def __init__(self, order: Order, bench: Bench, control: Control, hook: Hook) -> None:
        self._order = order
        self._bench = bench
        self._control = control
        self._hook = hook
        self._tokens = Tokens(**order.tokens)
        self._done: set[str] = set()
        deps = Deps(
            database=bench.database,
            ledger=bench.ledger,
            catalogue=bench.catalogue,
            transport=bench.transport,
            runner=bench.runner,
            policy=Asking(order),
            model=Truthful(order),
        )
        self._driver = Driver(deps, bench.worker, order.lease_seconds)
        self._sweep = Sweep(bench.database, bench.runner, bench.worker)

    async def told(self) -> None:
        """Until the operation is settled and its run has ended, or a case leaves both to a person."""
        await self._tokens_come_and_go()

        async def turned() -> bool:
            over = await self._over()
            if not over:
                await self._turn()
            return over

        await eventually(turned, SECONDS)
        await self._events_come()

    async def _over(self) -> bool:
        lives = await self._lives()
        settled = all(live["state"] == "SETTLED" or live["disputed"] for live in lives)
        if len(lives) < len(self._order.wanted) or not settled:
            return False
        return any(live["disputed"] for live in lives) or not await self._bench.sql(
            _RUNS, self._order.purpose
        )

    async def _lives(self) -> list[dict[str, Any]]:
        """The latest revision of each key."""
        return await self._bench.sql(_LIVE, self._order.purpose)

    async def _turn(self) -> None:
        """One step of everybody: people say what remains to be said, then the worker does what it can."""
        try:
            run = await self._run()
            await self._lifted()
            await self._decided(run)
            await self._driven(run)
            await self._sweep.once(run)
            await self._events_come()
        except Refused:
            # Somebody else was first, which the next turn sees.
            return

    async def _run(self) -> str:
        found = await self._bench.sql(_RUNS, self._order.purpose)
        if found:
            return str(found[0]["id"])
        mandate = await self._granted()
        if self._once("deployed", Trouble.DEPLOYED):
            return await self._bench.started(self._tokens, mandate)
        return await self._driver.start(self._tokens.support_manager, mandate.hash)

    async def _granted(self) -> Mandate:
        revoked = await self._bench.sql(
            "SELECT hash FROM remit.mandates WHERE purpose = %s AND revoked_at IS NOT NULL",
            self._order.purpose,
        )
        why = "It is wanted again." if revoked else "It is wanted."
        mandate = mandate_for(self._order.kinds, self._order.purpose, self._order.subject, why)
        secret = self._tokens.support_manager
        await self._bench.people.grant(secret, mandate.hash, mandate.document(), [self._order.subject])
        return mandate

    async def _lifted(self) -> None:
        """Every order that this story placed: over one of its runs, or over its customer."""
        mine = "SELECT id FROM remit.runs WHERE purpose = %s UNION ALL SELECT %s"
        about = self._order.subject if self._order.trouble == Trouble.SUBJECT_STOPPED else ""
        orders = await self._bench.sql(
            f"SELECT id FROM remit.orders WHERE value IN ({mine}) AND lifted_at IS NULL",  # noqa: S608 - no input
            self._order.purpose,
            about,
        )
        for order in orders:
            await self._bench.people.lift(self._tokens.finance_lead, order["id"])

    async def _decided(self, run: str) -> None:
        """The finance lead grants what is asked; then comes the trouble that follows an approval."""
        for asked in await self._bench.sql(_ASKED, run):
            await self._edited()
            await self._bench.people.decide(
                self._tokens.finance_lead, asked["id"], asked["set_hash"], grant=True, rationale="seen"
            )
        waiting = [live for live in await self._lives() if live["obstacle"] in {"ready", "hold"}]
        if waiting and len(waiting) == len(self._order.wanted):
            await self._trouble(run, waiting)

    async def _trouble(self, run: str, waiting: Sequence[dict[str, Any]]) -> None:
        people, manager = self._bench.people, self._tokens.support_manager
        if all(live["hold_until"] is not None for live in waiting):
            await self._held(waiting)
        if any(live["revision"] > 1 for live in waiting):
            return
        if self._once("stop", Trouble.STOPPED):
            await people.stop(manager, "run", run, "a look first")
            await self._lifted()
        if self._once("freeze", Trouble.FROZEN):
            await people.freeze(self._tokens.finance_lead, "run", run, "a look first")
            await self._lifted()
        if self._once("subject", Trouble.SUBJECT_STOPPED):
            self._hook.cancelled = self._lifted
            await people.stop(manager, "subject", self._order.subject, "a complaint")
        if self._once("back", Trouble.TAKEN_BACK):
            await self._taken_back(run)
        if self._once("given up", Trouble.GIVEN_UP):
            await self._given_up(run, waiting)
        if self._once("door", Trouble.DOOR):
            await self._door_closes()
        if self._once("notices", Trouble.NOTICES):
            await self._notices_told()
        if self._once("revoke", Trouble.REVOKED):
            await people.revoke_mandate(manager, waiting[0]["mandate_hash"])
        if self._once("change", Trouble.CHANGED_PREMISES):
            accounts = dump(self._bench.home)["accounts"]
            (plan,) = {account["plan"] for account in accounts if account["id"] == self._order.customer}
            other = {"basic": "standard", "standard": "premium", "premium": "basic"}[plan]
            await self._control.edit(self._order.customer, {"plan": other})
        if self._once("down", Trouble.SILENT_RECEIVER):
            match: dict[str, object] = {"ids": self._order.customer}
            await self._control.add_fault("accounts", "error_before", "POST /accounts/batch", match=match)

    async def _edited(self) -> None:
        """Another lead, who stands in the chain from then on. What the mandate leaves no choice in is refused."""
        if not self._once("edit", Trouble.EDITED):
            return
        people, administrator = self._bench.people, self._tokens.administrator
        _, other, _ = await people.mint(administrator, f"other-lead-{os.getpid()}", "finance_lead", HOUR)
        for live in await self._lives():
            fields = live["intent"].get("fields")
            intent = live["intent"] | ({} if not fields else {"fields": {"notes": "In better words."}})
            with suppress(Refused):
                await people.edit(other, live["id"], live["version"], intent, rationale="better words")

    async def _taken_back(self, run: str) -> None:
        (given,) = await self._bench.sql(
            "SELECT id FROM remit.approvals WHERE run_id = %s ORDER BY asked_at DESC LIMIT 1", run
        )
        await self._bench.people.unapprove(self._tokens.finance_lead, given["id"], rationale="a second look")

    async def _given_up(self, run: str, waiting: Sequence[dict[str, Any]]) -> None:
        """Nothing is stuck, so nothing is closed: there is no other tool while this one may still be called."""
        lease = await self._bench.leased(run)
        place = {"run": run, "token": lease.token}
        ids = [live["id"] for live in waiting]
        await self._bench.database.rows("fall_back", **place, ids=ids, detail="given up")
        await self._bench.database.rows("heartbeat", **place, seconds=0.0)

    async def _door_closes(self) -> None:
        """A receiver of this story alone: what it is called for the others does not wait."""
        name = self._order.purpose.replace("-", "_")
        doors = Doors(self._bench.ledger)
        await doors.after(name, Met.GONE, "nobody listens")
        with suppress(NotSent):
            await Doors(self._bench.ledger).before(name)

    async def _notices_told(self) -> None:
        async def away(id_: str, body: bytes) -> None:
            raise NotSent("Nobody listens. Start the listener.", code="away")

        async def taken(id_: str, body: bytes) -> None:
            """Somebody listens."""

        database = self._bench.database
        await Notices(database, away).deliver()

        async def told() -> bool:
            return await Notices(database, taken).deliver() > 0

        await eventually(told, SECONDS)

    async def _held(self, waiting: Sequence[dict[str, Any]]) -> None:
        """The first revision is moved and then kept back, the second one is let go; time goes on in between."""
        people, ids = self._bench.people, [live["id"] for live in waiting]
        if all(live["revision"] == 1 for live in waiting):
            await people.reschedule_holds(self._tokens.support_manager, ids, by=60.0)
            await self._bench.database.rows("advance_clock", seconds=1.0)
            await people.cancel_holds(self._tokens.support_manager, ids)
        elif any(live["obstacle"] == "hold" for live in waiting):
            await people.release_holds(self._tokens.finance_lead, ids)

    def _once(self, what: str, trouble: Trouble) -> bool:
        """True the first time in this process, and only in rows of this trouble."""
        mine = self._order.trouble == trouble and what not in self._done
        self._done.add(what)
        return mine

    async def _driven(self, run: str) -> None:
        """Drives the run where that moves something; who else has it is waited for."""
        row = await self._bench.database.row("run", run=run)
        assert row is not None
        silent = {"policy", "receiver", "model"} & set(row["waits"])
        begun = row["token"] > 0
        if begun and not silent and not await self._bench.database.value("run_ready", run=run):
            return
        if self._once("slow", Trouble.SLOW_READ):
            match: dict[str, object] = {"id": self._order.customer}
            await self._control.add_fault("accounts", "delay", "GET /accounts/{id}", match=match, seconds=0.8)
        self._hook.driving = asyncio.ensure_future(self._driver.drive(run, by_person=bool(silent)))
        try:
            with suppress(LeaseLost):
                await asyncio.wait({self._hook.driving})
                self._hook.driving.result()
        except asyncio.CancelledError:
            if not self._hook.driving.cancelled():
                raise

    async def _tokens_come_and_go(self) -> None:
        if self._order.trouble == Trouble.TOKENS:
            administrator = self._tokens.administrator
            id_, _, _ = await self._bench.people.mint(
                administrator, self._order.purpose, "finance_lead", HOUR
            )
            await self._bench.people.revoke_token(administrator, id_)

    async def _events_come(self) -> None:
        """The receiver tells of the effects, and somebody else tries to: as soon as anything may have been sent."""
        sent = [live for live in await self._lives() if live["attempts"] > 0]
        if not sent or not self._once("event", Trouble.EVENTS):
            return
        database, now = self._bench.database, datetime.now(UTC)
        for live in sent:
            named = {"id": live["key"], "reference": reference(self._bench.ledger.installation, live["key"])}
            await database.rows("receive_event", receiver="company", type="effect.happened", at=now, **named)
        refused = [{"receiver": "company", "code": "signature", "count": 1}]
        await database.rows("count_refused_events", rows=jsonb(refused))


async def tell(order: Order) -> set[FaultPoint]:
    """One process's part of the story, to its end. Returns the points that it passed."""
    hook = Hook(order)
    async with (
        asyncio.timeout(SECONDS),
        opened_bench(
            order.app_url,
            Path(order.home),
            order.urls,
            order.credentials,
            catalogue=matrix_catalogue(),
            reach=hook.reach,
            send_seconds=order.send_seconds,
        ) as bench,
        Control(order.urls, order.credentials) as control,
    ):
        await Story(order, bench, control, hook).told()
    return hook.reached


def carried_on(order: Order) -> Order:
    """The order of the process that takes over: no signal, the usual lease."""
    return replace(order, point="", armed_by="", signal=0, lease_seconds=LEASE_SECONDS, send_seconds=8.0)
