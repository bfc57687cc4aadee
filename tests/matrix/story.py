"""One party's story, told by one process from wherever the last one left it: grant, run, approve, send, settle.

It plays the worker and the people, whose commands are processes too. Everything that it does next follows from the
ledger, so whoever carries on needs no word from whoever died.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from remit.checkpoints import Sweep
from remit.graph import Deps, Driver
from remit.graph.model import Call, Reply
from remit.sandbox.client import Control
from remit.tools.errors import LeaseLost, NoAnswer, Refused
from remit.tools.mandates import Mandate
from remit.tools.ports import FaultPoint
from remit.tools.questions import Answer, Decision, Obligations, Question, Reason
from remit.tools.states import Verdict
from tests.fixtures import ASK_FINANCE, Bench, eventually, opened_bench
from tests.matrix.company import mandate_for, matrix_catalogue, step_of
from tests.matrix.order import SECONDS, Hook, Order
from tests.matrix.rows import Trouble
from tests.matrix.troubles import Troubles

_PAUSE = 0.1
"""Seconds between two turns. What waits for a lease or a look waits for seconds, and others need the machine."""

_LIVE = """
SELECT DISTINCT ON (s.key) s.*, EXISTS (
    SELECT FROM remit.cases c WHERE c.operation_id = s.id AND c.closed_at IS NULL) AS disputed
FROM remit.standing s WHERE s.purpose = %s ORDER BY s.key, s.revision DESC"""
_RUNS = "SELECT id FROM remit.runs WHERE purpose = %s AND ended_at IS NULL ORDER BY created_at"
_ASKED = "SELECT id, set_hash FROM remit.approvals WHERE run_id = %s AND status = 'OPEN'"


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
        self._troubles = Troubles(order, bench, control, hook)
        self._hook = hook
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
        await self._troubles.at_first()

        async def turned() -> bool:
            over = await self._over()
            if not over:
                await self._turn()
            return over

        await eventually(turned, SECONDS, _PAUSE)
        await self._troubles.after_a_send(await self._sent())
        await self._troubles.after_all(await self._lives())

    async def _over(self) -> bool:
        lives = await self._lives()
        left = [live for live in lives if live["disputed"] and self._order.trouble != Trouble.CONTESTED]
        settled = [live for live in lives if live["state"] == "SETTLED"]
        if len({live["key"] for live in [*left, *settled]}) < len(self._order.wanted):
            return False
        return bool(left) or not await self._bench.sql(_RUNS, self._order.purpose)

    async def _lives(self) -> list[dict[str, Any]]:
        """The latest revision of each key."""
        return await self._bench.sql(_LIVE, self._order.purpose)

    async def _turn(self) -> None:
        """One step of everybody: people say what remains to be said, then the worker does what it can."""
        try:
            run = await self._run()
            await self._troubles.lifted()
            await self._decided(run)
            await self._driven(run)
            await self._sweep.once(run)
            await self._troubles.worked_on(await self._lives())
            await self._troubles.after_a_send(await self._sent())
        except Refused:
            # Somebody else was first, which the next turn sees.
            return

    async def _run(self) -> str:
        found = await self._bench.sql(_RUNS, self._order.purpose)
        if found:
            return str(found[0]["id"])
        mandate = await self._granted()
        if self._troubles.once(Trouble.DEPLOYED):
            return await self._bench.started(self._troubles.tokens, mandate)
        return await self._driver.start(self._troubles.tokens.support_manager, mandate.hash)

    async def _granted(self) -> Mandate:
        revoked = await self._bench.sql(
            "SELECT hash FROM remit.mandates WHERE purpose = %s AND revoked_at IS NOT NULL",
            self._order.purpose,
        )
        why = "It is wanted again." if revoked else "It is wanted."
        mandate = mandate_for(self._order.kinds, self._order.purpose, self._order.subject, why)
        secret = self._troubles.tokens.support_manager
        await self._bench.people.grant(secret, mandate.hash, mandate.document(), [self._order.subject])
        return mandate

    async def _decided(self, run: str) -> None:
        """The finance lead grants what is asked; then comes the trouble that follows an approval."""
        for asked in await self._bench.sql(_ASKED, run):
            await self._troubles.before_a_decision(await self._lives())
            await self._bench.people.decide(
                self._troubles.tokens.finance_lead,
                asked["id"],
                asked["set_hash"],
                grant=True,
                rationale="seen",
            )
        waiting = [live for live in await self._lives() if live["obstacle"] in {"ready", "hold"}]
        if waiting and len(waiting) == len(self._order.wanted):
            await self._troubles.after_an_approval(run, waiting)

    async def _driven(self, run: str) -> None:
        """Drives the run where that moves something; who else has it is waited for."""
        row = await self._bench.database.row("run", run=run)
        assert row is not None
        silent = {"policy", "receiver", "model"} & set(row["waits"])
        begun = row["token"] > 0
        if begun and not silent and not await self._bench.database.value("run_ready", run=run):
            return
        await self._troubles.before_a_drive()
        self._hook.driving = asyncio.ensure_future(self._driver.drive(run, by_person=bool(silent)))
        try:
            with suppress(LeaseLost):
                await asyncio.wait({self._hook.driving})
                self._hook.driving.result()
        except asyncio.CancelledError:
            if not self._hook.driving.cancelled():
                raise

    async def _sent(self) -> list[dict[str, Any]]:
        return [live for live in await self._lives() if live["attempts"] > 0]


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
