"""What people and the company do in a row so that a worker comes to acts that an ordinary day does not bring about.

Each trouble comes about once in a process, and can come about again in the next one: nobody remembers who died.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from remit.checkpoints.cases import Cases
from remit.checkpoints.database import json as jsonb
from remit.checkpoints.notices import Notices
from remit.checkpoints.restores import Restores
from remit.sandbox import dump
from remit.sandbox.client import Control
from remit.tools.actions import reference
from remit.tools.doors import Doors, Met
from remit.tools.errors import LeaseLost, NotSent, Refused
from tests.fixtures import HOUR, Bench, Tokens, eventually
from tests.matrix.order import SECONDS, Hook, Order
from tests.matrix.rows import Trouble

Operations = Sequence[dict[str, Any]]
"""Rows of `remit.standing`."""

_STANDING = """
SELECT id FROM remit.orders
WHERE lifted_at IS NULL AND kind <> 'restore'
  AND (value = %s OR value IN (SELECT id FROM remit.runs WHERE purpose = %s))"""
_CASES = "SELECT id FROM remit.cases WHERE operation_id = %s AND closed_at IS NULL ORDER BY id"


class Troubles:
    """The people and the company of one process's story."""

    def __init__(self, order: Order, bench: Bench, control: Control, hook: Hook) -> None:
        self._order = order
        self._bench = bench
        self._control = control
        self._hook = hook
        self.tokens = Tokens(**order.tokens)
        self._cases = Cases(bench.ledger, bench.runner)
        self._restores = Restores(bench.database, bench.ledger.installation)
        self._done: set[Trouble] = set()

    def once(self, trouble: Trouble) -> bool:
        """True the first time in this process, and only in rows of this trouble."""
        mine = self._order.trouble == trouble and trouble not in self._done
        self._done.add(trouble)
        return mine

    async def at_first(self) -> None:
        """What happens to people and to old rows, before anything else."""
        people, administrator = self._bench.people, self.tokens.administrator
        if self.once(Trouble.TOKENS):
            id_, _, _ = await people.mint(administrator, self._order.purpose, "finance_lead", HOUR)
            await people.revoke_token(administrator, id_)
        if self.once(Trouble.PROBED):
            # Who keeps what a probe showed has granted its mandate, so somebody else decides.
            self.tokens = replace(
                self.tokens, support_manager=self.tokens.finance_lead, finance_lead=await self._other_lead()
            )
        if self.once(Trouble.LOOKED_AT):
            asked: dict[str, object] = {"kind": "run", "names": ["run-of-nobody"], "named": True}
            await self._bench.database.rows("may_see", secret=self.tokens.support_manager, **asked)
        if self.once(Trouble.FORGOTTEN):
            await self._bench.database.rows("forget", secret=administrator, days=1)

    async def _other_lead(self) -> str:
        name = f"other-lead-{os.getpid()}"
        _, secret, _ = await self._bench.people.mint(self.tokens.administrator, name, "finance_lead", HOUR)
        return secret

    async def lifted(self) -> None:
        """Lifts every order that this story placed: over one of its runs, or over its customer."""
        about = self._order.subject if self._order.trouble == Trouble.SUBJECT_STOPPED else ""
        for order in await self._bench.sql(_STANDING, about, self._order.purpose):
            await self._bench.people.lift(self.tokens.finance_lead, order["id"])
        if self._order.trouble == Trouble.RESTORED:
            await self._accepted()

    async def _accepted(self) -> None:
        """The restore that stands is verified for every purpose, as soon as that proves anything, and then lifted."""
        order = await self._restores.standing()
        if order is None:
            return

        async def verified() -> bool:
            if await self._restores.standing() is None:
                return True
            catalogue, transport = self._bench.catalogue, self._bench.transport
            secret, purposes = self.tokens.finance_lead, order["purposes"]
            with suppress(Refused):
                return bool(await self._restores.verify(catalogue, transport, secret, purposes))
            return False

        await eventually(verified, SECONDS, pause=0.5)
        await self._bench.people.lift(self.tokens.finance_lead, order["id"])

    async def worked_on(self, lives: Operations) -> None:
        """People work on the open cases of these operations: a replay first, then their word and the evidence."""
        if self._order.trouble != Trouble.CONTESTED:
            return
        secret, why = self.tokens.finance_lead, "their records were looked at"
        for live in lives:
            for case in await self._bench.sql(_CASES, live["id"]):
                with suppress(Refused):
                    await self._cases.replay(secret, case["id"], rationale=why)
                with suppress(Refused):
                    await self._cases.resolve(
                        secret, case["id"], completed=False, evidence="their operator says so", rationale=why
                    )
                with suppress(Refused):
                    await self._cases.close(secret, case["id"], no_eval="the matrix shows it", rationale=why)

    async def before_a_decision(self, lives: Operations) -> None:
        """Another lead edits, who stands in the chain from then on. What the mandate leaves no choice in is refused."""
        if not self.once(Trouble.EDITED):
            return
        people, other = self._bench.people, await self._other_lead()
        for live in lives:
            fields = live["intent"].get("fields")
            intent = live["intent"] | ({} if not fields else {"fields": {"notes": "In better words."}})
            with suppress(Refused):
                await people.edit(other, live["id"], live["version"], intent, rationale="better words")

    async def before_a_drive(self) -> None:
        """One read takes longer than a heartbeat."""
        if self.once(Trouble.SLOW_READ):
            match: dict[str, object] = {"ids": self._order.customer}
            await self._control.add_fault(
                "accounts", "delay", "POST /accounts/batch", match=match, seconds=0.8
            )

    async def after_an_approval(self, run: str, waiting: Operations) -> None:
        """What may come between the approval of these operations and their claim."""
        if all(live["hold_until"] is not None for live in waiting):
            await self._held(waiting)
        comes: dict[Trouble, Callable[[str, Operations], Awaitable[None]]] = {
            Trouble.STOPPED: self._stopped,
            Trouble.FROZEN: self._frozen,
            Trouble.SUBJECT_STOPPED: self._subject_stopped,
            Trouble.TAKEN_BACK: self._taken_back,
            Trouble.GIVEN_UP: self._given_up,
            Trouble.DOOR: self._door_closes,
            Trouble.NOTICES: self._notices_are_told,
            Trouble.RESTORED: self._restored,
            Trouble.REVOKED: self._revoked,
            Trouble.CHANGED_PREMISES: self._account_changes,
            Trouble.SILENT_RECEIVER: self._receiver_fails,
        }
        trouble = Trouble(self._order.trouble)
        if trouble in comes and all(live["revision"] == 1 for live in waiting) and self.once(trouble):
            await comes[trouble](run, waiting)

    async def after_a_send(self, sent: Operations) -> None:
        """The receiver tells of the effects, and somebody else tries to."""
        if not sent or not self.once(Trouble.EVENTS):
            return
        database, now = self._bench.database, datetime.now(UTC)
        for live in sent:
            named = {"id": live["key"], "reference": reference(self._bench.ledger.installation, live["key"])}
            await database.rows("receive_event", receiver="company", type="effect.happened", at=now, **named)
        refused = [{"receiver": "company", "code": "signature", "count": 1}]
        await database.rows("count_refused_events", rows=jsonb(refused))

    async def after_all(self, settled: Operations) -> None:
        """What a probe showed is kept, once it is settled."""
        if self._order.trouble == Trouble.PROBED:
            for live in settled:
                shown: dict[str, object] = {"shown": True, "evidence": jsonb({"by": "the matrix"})}
                secret = self.tokens.support_manager
                await self._bench.database.rows("store_probe", secret=secret, operation=live["id"], **shown)

    async def _held(self, waiting: Operations) -> None:
        """The first revision is moved and then kept back, the second one is let go; time goes on in between."""
        people, ids = self._bench.people, [live["id"] for live in waiting]
        if all(live["revision"] == 1 for live in waiting):
            await people.reschedule_holds(self.tokens.support_manager, ids, by=60.0)
            await self._bench.database.rows("advance_clock", seconds=1.0)
            await people.cancel_holds(self.tokens.support_manager, ids)
        elif any(live["obstacle"] == "hold" for live in waiting):
            await people.release_holds(self.tokens.finance_lead, ids)

    async def _stopped(self, run: str, waiting: Operations) -> None:
        await self._bench.people.stop(self.tokens.support_manager, "run", run, "a look first")
        await self.lifted()

    async def _frozen(self, run: str, waiting: Operations) -> None:
        await self._bench.people.freeze(self.tokens.finance_lead, "run", run, "a look first")
        await self.lifted()

    async def _subject_stopped(self, run: str, waiting: Operations) -> None:
        self._hook.cancelled = self.lifted
        secret = self.tokens.support_manager
        await self._bench.people.stop(secret, "subject", self._order.subject, "a complaint")

    async def _taken_back(self, run: str, waiting: Operations) -> None:
        (given,) = await self._bench.sql(
            "SELECT id FROM remit.approvals WHERE run_id = %s ORDER BY asked_at DESC LIMIT 1", run
        )
        await self._bench.people.unapprove(self.tokens.finance_lead, given["id"], rationale="a second look")

    async def _given_up(self, run: str, waiting: Operations) -> None:
        """Nothing is stuck, so nothing is closed: there is no other tool while this one may still be called."""
        worker, seconds = self._bench.worker.id, self._order.lease_seconds
        token = await self._bench.database.value("acquire_lease", run=run, worker=worker, seconds=seconds)
        if token is None:
            self._done.discard(Trouble.GIVEN_UP)
            return
        place, ids = {"run": run, "token": token}, [live["id"] for live in waiting]
        with suppress(LeaseLost):
            await self._bench.database.rows("fall_back", **place, ids=ids, detail="given up")
        await self._bench.database.rows("heartbeat", **place, seconds=0.0)

    async def _door_closes(self, run: str, waiting: Operations) -> None:
        """The door of a receiver that this story alone knows, so that nobody else waits for it."""
        name = self._order.purpose.replace("-", "_")
        await Doors(self._bench.ledger).after(name, Met.GONE, "nobody listens")
        with suppress(NotSent):
            await Doors(self._bench.ledger).before(name)

    async def _notices_are_told(self, run: str, waiting: Operations) -> None:
        async def away(id_: str, body: bytes) -> None:
            raise NotSent("Nobody listens. Start the listener.", code="away")

        async def listens(id_: str, body: bytes) -> None:
            """Takes it."""

        async def told() -> bool:
            # What whoever was here before has told already, nobody is told again.
            await Notices(self._bench.database, listens).deliver()
            return not await self._bench.database.rows("notices", all=False, limit=1)

        await Notices(self._bench.database, away).deliver()
        await eventually(told, SECONDS)

    async def _restored(self, run: str, waiting: Operations) -> None:
        await self._restores.restored(self.tokens.administrator, "somebody remembers a backup")
        await self._accepted()

    async def _revoked(self, run: str, waiting: Operations) -> None:
        await self._bench.people.revoke_mandate(self.tokens.support_manager, waiting[0]["mandate_hash"])

    async def _account_changes(self, run: str, waiting: Operations) -> None:
        accounts = dump(self._bench.home)["accounts"]
        (plan,) = {account["plan"] for account in accounts if account["id"] == self._order.customer}
        other = {"basic": "standard", "standard": "premium", "premium": "basic"}[plan]
        await self._control.edit(self._order.customer, {"plan": other})

    async def _receiver_fails(self, run: str, waiting: Operations) -> None:
        match: dict[str, object] = {"ids": self._order.customer}
        await self._control.add_fault("accounts", "error_before", "POST /accounts/batch", match=match)
