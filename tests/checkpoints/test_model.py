"""The ledger against an independent model of it, step by step, with a world of receivers between them (I1, I4, I5).

Hypothesis chooses what agents, people, workers and receivers do. After every step Postgres and the model in memory say
the same about every operation: state, fact, doubt, obstacle, attempts, wire keys, cases and shares of the limit. The
world decides what each request came to, also that it arrives after everybody gave it up, and counts what happened.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from remit.checkpoints import Database, Ledger, People, open_pool
from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.tools.catalogue import Catalogue
from remit.tools.errors import LeaseLost, Refused
from remit.tools.mandates import Mandate
from remit.tools.ports import Due, Lease, Receipt, Settlement
from remit.tools.recovery import AFTER_ATTEMPT, Look, after_look
from remit.tools.runner import _terms
from remit.tools.states import Seen, Sight, State
from tests.checkpoints.memory_ledger import Entry, MemoryLedger, Order
from tests.fixtures import (
    ASK_FINANCE,
    HOUR,
    NO_OBLIGATIONS,
    Bench,
    Tokens,
    limited,
    mandate_over,
    quick_catalogue,
)

T = TypeVar("T")

SUBJECTS = ("customer:c-104", "customer:c-205", "customer:c-206", "customer:c-207")
STEPS = ("credit", "notify")
KEYED = {"credit": True, "notify": False}
WORKERS = 2
_TEN_YEARS = 10.0 * 365 * 24 * HOUR
EXAMPLES, STEPS_OF_AN_EXAMPLE = int(os.environ.get("MODEL_EXAMPLES", "40")), 40
SHRINK = [Phase.shrink] if os.environ.get("MODEL_SHRINK") else []
"""Always the same examples, so that a red run is red again; MODEL_EXAMPLES=1000 looks further. MODEL_SHRINK=1 looks for
a shorter way to the same failure, for some minutes."""

SEND_SECONDS = 600.0
"""Longer than an example: what ends an attempt is said by a rule, never by the machine's speed."""

TERMS = {
    name: {**_terms(quick_catalogue().write(name).contract), "attempts": 6, "retention_ms": None}
    for name in ("issue_credit", "send_email")
}

OBLIGATIONS: dict[str, dict[str, Any]] = {
    "plain": NO_OBLIGATIONS,
    "held": {**NO_OBLIGATIONS, "hold_seconds": 1_800},
    "limited": limited(count=3),
}

NOTHING_HAPPENS = {
    "not_written": Seen.NOT_WRITTEN,
    "rate_limited": Seen.RATE_LIMITED,
    "credential": Seen.CREDENTIAL,
    "refused": Seen.REFUSED,
    "changed": Seen.PRECONDITION,
    "lost": Seen.UNKNOWN,
    "down": Seen.RECEIVER_DOWN,
    "in_progress": Seen.IN_PROGRESS,
    "reused": Seen.KEY_REUSED,
    "failed_for_good": Seen.STORED_FAILURE,
}
HAPPENS = {"accepted": Seen.ACCEPTED, "reply_lost": Seen.UNKNOWN, "error_after": Seen.UNKNOWN}
"""What a request may come to: without an effect, with one, or still on its way (`queued`)."""

COMES_TO = st.sampled_from([*NOTHING_HAPPENS, *HAPPENS, *HAPPENS, "queued"])
TOLD = [*["all"] * 4, "early", "early", "unreadable", "queued", "queued", "different"]
CASES_OF_RECEIPTS = ("late_receipt", "seen_after_absent")


@dataclass
class Sent:
    """One request: what it came to, and whether it is still on its way."""

    operation: int
    key: str
    wire_key: str
    keyed: bool
    seen: Seen | None = None
    on_its_way: bool = False


@dataclass
class World:
    """The receivers. One that enforces keys gives the answer of the first request to every later one."""

    effects: Counter[str] = field(default_factory=Counter)
    ever: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    final: dict[str, Seen] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)

    def arrives(self, sent: Sent) -> None:
        """The effect, once per wire key where keys are enforced."""
        sent.on_its_way = False
        if sent.keyed and sent.wire_key in self.final:
            return
        if sent.keyed:
            self.final[sent.wire_key] = Seen.ACCEPTED
        self.effects[sent.key] += 1
        self.ever.add(sent.key)
        self.withdrawn.discard(sent.key)

    def answers(self, sent: Sent, comes_to: str) -> None:
        known = self.final.get(sent.wire_key) if sent.keyed else None
        if comes_to == "queued":
            sent.seen, sent.on_its_way = Seen.UNKNOWN, True
        elif comes_to in HAPPENS:
            self.arrives(sent)
            lost = HAPPENS[comes_to] is Seen.UNKNOWN
            sent.seen = Seen.UNKNOWN if lost else known or Seen.ACCEPTED
        else:
            told = NOTHING_HAPPENS[comes_to]
            if told is Seen.STORED_FAILURE and not sent.keyed:
                told = Seen.UNKNOWN
            final = told in (Seen.REFUSED, Seen.PRECONDITION, Seen.STORED_FAILURE)
            sent.seen = known if known is not None and final else told
            if final and sent.keyed:
                self.final.setdefault(sent.wire_key, told)

    def shows(self, key: str, told: str) -> Sight:
        """What the system of record says about one key."""
        if self.effects[key] > 1:
            return Sight.MULTIPLE
        if self.effects[key] == 0:
            return Sight.WITHDRAWN if key in self.withdrawn else Sight.ABSENT
        return {"different": Sight.DIFFERENT, "queued": Sight.PENDING}.get(told, Sight.EFFECTIVE)

    def on_its_way(self, key: str) -> bool:
        """Whether a request may still have an effect; what arrives under an answered wire key gets that answer."""
        return any(
            sent.on_its_way and not (sent.keyed and sent.wire_key in self.final)
            for sent in self.sent.values()
            if sent.key == key
        )

    def withdrawable(self) -> list[str]:
        """Keys whose effect the receiver may still take back for good: no request for them is anywhere."""
        moving = {sent.key for sent in self.sent.values() if sent.on_its_way or sent.seen is None}
        return sorted(key for key, count in self.effects.items() if count and key not in moving)


class Place:
    """What all examples of one test share: a database, a loop, tokens. Each example has a purpose of its own."""

    def __init__(self, urls: Urls) -> None:
        self.owner_url = urls.owner_url
        self.loop = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._names = 0
        self.run(self._open(urls.app_url))

    async def _open(self, url: str) -> None:
        self.database = Database(await self._stack.enter_async_context(open_pool(url)))
        self.ledger = await Ledger.open(self.database)
        self.people = People(self.database)
        self.tokens = await self._minted()
        self.owner = await self._stack.enter_async_context(
            await psycopg.AsyncConnection.connect(self.owner_url, autocommit=True)
        )
        self.catalogue: Catalogue = quick_catalogue()

    async def _minted(self) -> Tokens:
        """Company time goes by in hours here, so the tokens are good for longer than usual."""
        mint = self.people.mint
        _, administrator, _ = await mint(None, "administrator", "administrator", _TEN_YEARS)
        _, manager, _ = await mint(administrator, "support-manager", "support_manager", _TEN_YEARS)
        _, lead, _ = await mint(administrator, "finance-lead", "finance_lead", _TEN_YEARS)
        return Tokens(administrator, manager, lead)

    def name(self, kind: str) -> str:
        """A name that nothing else here has; the same order in each replay of an example."""
        self._names += 1
        return f"{kind}-{self._names:08d}"

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.loop.run(awaited())

    def close(self) -> None:
        self.run(self._stack.aclose())
        self.loop.close()


PLACE: list[Place] = []
"""The one place of the test that runs; Hypothesis makes its machines without arguments."""

DATA = st.data()
SELDOM = st.sampled_from(range(6)).map(lambda n: n == 4)
"""For what ends so much that little happens afterwards. Not 0, which Hypothesis likes best."""

F = TypeVar("F", bound=Callable[..., None])

WEIGHTED: list[str] = []


def action(weight: int, **strategies: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Something that `act` may do, as often as its weight says, with what the strategies give."""

    def mark(method: F) -> F:
        WEIGHTED.extend([method.__name__] * weight)
        vars(method)["strategies"] = strategies
        return method

    return mark


class LedgerMachine(RuleBasedStateMachine):
    """Postgres and the model in the same hands."""

    @initialize()
    def begin(self) -> None:
        self.place = PLACE[-1]
        self.purpose = self.place.name("model")
        self.world, self.model = World(), MemoryLedger(self.place.ledger.installation, self.purpose)
        self.model.offset = self.place.run(self._offset())
        self.orders: dict[Order, int] = {}
        self.claimed_while_barred: list[int] = []
        self.mandate = mandate_over(self.purpose)
        self.place.run(self._granted(self.mandate))
        self.workers = [self.place.run(self._registered()) for _ in range(WORKERS)]
        self.runs = [self.place.run(self._started()) for _ in range(2)]
        self.leases: dict[str, Lease] = {}
        for number, (run, worker) in enumerate(zip(self.runs, self.workers, strict=True)):
            self._take(run, worker)
            terms = "limited" if number == 0 else "plain"
            self._propose(number, STEPS[number], SUBJECTS, verdict="allow", terms=terms, requires=())

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One thing that somebody does. A single rule, since Hypothesis leaves whole rules out of most examples, and
        without claims, sends and looks nothing is tried."""
        name = data.draw(st.sampled_from(WEIGHTED), label="somebody")
        method = getattr(self, name)
        drawn = {k: data if s is DATA else data.draw(s, label=k) for k, s in method.strategies.items()}
        method(**drawn)

    # What agents do.

    @action(
        3,
        run=st.integers(0, 1),
        step=st.sampled_from(STEPS),
        subjects=st.sets(st.sampled_from(SUBJECTS), min_size=1),
        verdict=st.sampled_from(["allow", "allow", "allow", "needs_approval", "deny", None]),
        terms=st.sampled_from(sorted(OBLIGATIONS)),
        follows=st.booleans(),
    )
    def propose(
        self, *, run: int, step: str, subjects: set[str], verdict: str | None, terms: str, follows: bool
    ) -> None:
        """By either run, for one subject or both, under the keys that everybody shares."""
        requires = None if follows and step == "notify" else ()
        self._propose(run, step, sorted(subjects), verdict=verdict, terms=terms, requires=requires)

    @action(
        1,
        data=DATA,
        verdict=st.sampled_from(["allow", "needs_approval", "deny"]),
        terms=st.sampled_from(sorted(OBLIGATIONS)),
    )
    def judge(self, data: st.DataObject, verdict: str, terms: str) -> None:
        """A verdict given later, on whatever the operation became meanwhile."""
        entry = self._any(data)
        # What people were asked about keeps its verdict here: that they are asked again is for other tests.
        if entry is None or entry.decide_by is not None:
            return
        lease, obligations = self.leases[entry.run], _obligations(verdict, terms)
        row = {
            "id": entry.id,
            "verdict": verdict,
            "reasons": [{"code": "said_by_test", "detail": ""}],
            "obligations": obligations,
            "policy_engine": "test",
        }
        row |= {"policy_revision": "test", "decision_id": "d", "closed_detail": ""}
        self._db("judge", run=lease.run_id, token=lease.token, rows=json([row]))
        self.model.judge(lease, entry.id, verdict, obligations)

    @action(2, run=st.integers(0, 1), how=st.sampled_from(["holds", "gates"]))
    def carry_on(self, run: int, how: str) -> None:
        """Windows begin; or a person says: go on now."""
        lease = self.leases[self.runs[run]]
        if how == "holds":
            self._db("start_holds", run=lease.run_id)
            self.model.start_holds(lease.run_id)
        else:
            self._db("clear_gates", run=lease.run_id, token=lease.token)
            self.model.clear_gates(lease.run_id)

    @action(9, run=st.integers(0, 1), stale=SELDOM, data=DATA)
    def claim_and_send(self, run: int, stale: bool, data: st.DataObject) -> None:
        """Everything of a run at once; each request that was allowed comes to something, or waits in a hand."""
        lease = self._maybe_stale(self.leases[self.runs[run]], stale)
        ids = [entry.id for entry in self.model.entries.values()]
        barred = {entry.id for entry in self.model.entries.values() if self._is_barred(entry)}
        claims = self._both_claim(lease, ids)
        for claim in claims:
            if claim.attempt_id is None or claim.wire_key is None:
                continue
            entry = self.model.entries[claim.operation_id]
            self.claimed_while_barred += [entry.id] if entry.id in barred else []
            keyed = KEYED[entry.row["step"]]
            self.world.sent[claim.attempt_id] = Sent(entry.id, entry.key, claim.wire_key, keyed)
            if data.draw(st.integers(0, 2), label="slept with it in its hand") == 1:
                continue
            self._send(claim.attempt_id, data.draw(COMES_TO, label="comes to"))
            sent = self.world.sent[claim.attempt_id]
            if sent.seen is not None and data.draw(st.integers(0, 2), label="told later") > 0:
                self._record([claim.attempt_id])

    @action(4, data=DATA, comes_to=COMES_TO)
    def send_later(self, data: st.DataObject, comes_to: str) -> None:
        """A sender that slept with its request in its hand."""
        waiting = [id_ for id_, sent in self.world.sent.items() if sent.seen is None]
        if waiting:
            self._send(data.draw(st.sampled_from(waiting)), comes_to)

    @action(3, data=DATA)
    def record(self, data: st.DataObject) -> None:
        """One answer or several, in time or late."""
        answered = [
            id_ for id_, sent in self.world.sent.items() if sent.seen is not None and not self._ended(id_)
        ]
        alive = [id_ for id_ in answered if self._try(id_).worker not in self.model.dead]
        if not alive:
            return
        chosen = data.draw(st.lists(st.sampled_from(alive), min_size=1, max_size=3, unique=True))
        self._record(chosen)

    @action(1, data=DATA)
    def give_back(self, data: st.DataObject) -> None:
        """Claimed and certainly not begun."""
        waiting = [
            id_
            for id_, sent in self.world.sent.items()
            if sent.seen is None and not self._ended(id_) and self._try(id_).worker not in self.model.dead
        ]
        if waiting:
            id_ = data.draw(st.sampled_from(waiting))
            self._both(self.place.ledger.unsend([id_]), self.model.unsend([id_]))
            del self.world.sent[id_]

    # What becomes of requests, workers and time.

    @action(2, data=DATA, vanishes=st.booleans())
    def arrive(self, data: st.DataObject, vanishes: bool) -> None:
        """What was on its way lands, or is lost, whatever everybody believes by now."""
        waiting = [sent for sent in self.world.sent.values() if sent.on_its_way]
        if waiting:
            sent = data.draw(st.sampled_from(waiting))
            sent.on_its_way = False
            if not vanishes:
                self.world.arrives(sent)

    @action(1, data=DATA)
    def withdraw(self, data: st.DataObject) -> None:
        """At the receiver, while it is not settled."""
        settled = {key for key, entry in self._last().items() if entry.state is State.SETTLED}
        keys = [key for key in self.world.withdrawable() if key not in settled]
        if keys:
            key = data.draw(st.sampled_from(keys))
            self.world.effects[key] -= 1
            self.world.withdrawn.add(key)

    @action(6, data=DATA, told=st.sampled_from(TOLD))
    def look(self, data: st.DataObject, told: str) -> None:
        """Asks the world about everything that is due in one run; what it is told is true, complete or not."""
        run = data.draw(st.sampled_from(self.runs))
        real = {due.operation_id: due for due in self.place.run(self.place.ledger.due(run, 100))}
        modelled = {due.operation_id: due for due in self.place.run(self.model.due(run, 100))}
        assert {id_: _judged_by(due) for id_, due in real.items()} == {
            i: _judged_by(d) for i, d in modelled.items()
        }
        for id_, due in real.items():
            settlement = self._settlement(due, told)
            in_memory = SimpleNamespace(**{**vars_of(settlement), "version": modelled[id_].version})
            moved = self.place.run(self.place.ledger.settle([settlement]))
            assert moved == self.place.run(self.model.settle([in_memory]))  # type: ignore[list-item]

    @action(2, data=DATA)
    def oversleep(self, data: st.DataObject) -> None:
        """The window of a send passes, and nobody heard of its sender: it may be dead or asleep."""
        open_ = [one for e in self.model.entries.values() for one in e.tries if one.ended_at is None]
        if open_:
            one = data.draw(st.sampled_from(open_))
            self.place.run(self.place.owner.execute(_WINDOW_PASSED, [one.id]))
            one.send_by -= timedelta(seconds=SEND_SECONDS * 2)
            self.tidy()

    @action(1, worker=st.integers(0, WORKERS - 1))
    def die(self, worker: int) -> None:
        """A worker is proved dead; another one takes its runs, and the sweep finds its sends."""
        dead = self.workers[worker]
        self._db("worker_dead", id=dead)
        self.model.bury(dead)
        self.workers[worker] = self.place.run(self._registered())
        # What a dead process held in its hand is never sent any more.
        for id_ in [
            i for i, sent in self.world.sent.items() if sent.seen is None and self._try(i).worker == dead
        ]:
            del self.world.sent[id_]
        for run in [run for run, lease in self.leases.items() if lease.worker == dead]:
            self._take(run, self.workers[worker])
        self.tidy()

    @action(1, run=st.integers(0, 1), worker=st.integers(0, WORKERS - 1))
    def take_over(self, run: int, worker: int) -> None:
        """The lease ran out while its holder slept."""
        self._take(self.runs[run], self.workers[worker])

    @action(1)
    def tidy(self) -> None:
        self._db("tidy")
        self.model.tidy()

    @action(1, hours=st.sampled_from([0.6, 0.9, 2.0]))
    def time_passes(self, hours: float) -> None:
        """Company time: holds end, deadlines pass."""
        self._db("advance_clock", seconds=hours * 3_600)
        self.model.offset += timedelta(hours=hours)

    # What people do.

    @action(2, run=st.integers(0, 1))
    def ask(self, run: int) -> None:
        lease = self.leases[self.runs[run]]
        self._db("ask_approvals", run=lease.run_id, token=lease.token, new_id=self.place.name("ap"))
        self.model.ask(lease)

    @action(2, data=DATA, grant=st.booleans())
    def decide(self, data: st.DataObject, grant: bool) -> None:
        """About one operation of a set, in time or too late, once or again."""
        asked = [entry for entry in self.model.entries.values() if entry.decide_by is not None]
        if asked:
            entry = data.draw(st.sampled_from(asked))
            assert self.place.run(self._decided(entry.id, grant)) == self.model.decide(entry.id, grant=grant)

    @action(2, data=DATA, sure=SELDOM)
    def keep_back(self, data: st.DataObject, sure: bool) -> None:
        """What is with a sender, where anything is; seldom what waits, which is over at once."""
        moving = [e for e in self.model.entries.values() if e.state in (State.SENDING, State.UNKNOWN)]
        entry = data.draw(st.sampled_from(moving)) if moving else self._any(data) if sure else None
        if entry is not None:
            (told,) = self._db("cancel_holds", secret=self.place.tokens.support_manager, ids=[entry.id])
            assert (told["outcome"] == "kept_back") == self.model.cancel(entry.id)

    @action(
        2,
        kind=st.sampled_from(["stop", "freeze"]),
        scope=st.sampled_from(["run", "mandate", "subject"]),
        first=st.booleans(),
    )
    def order(self, kind: str, scope: str, first: bool) -> None:
        if len(self.orders) > 1:
            return
        value = {"run": self.runs[first], "mandate": self.purpose, "subject": SUBJECTS[first]}[scope]
        order = Order(kind, scope, value)
        (placed,) = self._db(
            kind, secret=self.place.tokens.finance_lead, scope=scope, value=value, reason="r"
        )
        self.orders[order] = placed["id"]
        self.model.order(order)

    @action(2, data=DATA)
    def lift(self, data: st.DataObject) -> None:
        if not self.orders:
            return
        order = data.draw(st.sampled_from(sorted(self.orders, key=str)))
        self._db("lift", secret=self.place.tokens.finance_lead, id=self.orders.pop(order))
        self.model.lift(order)

    @action(1, revoked=st.booleans(), sure=SELDOM)
    def end_mandate(self, revoked: bool, sure: bool) -> None:
        """Revoked, or superseded by a corrected one; seldom, since little happens afterwards."""
        if not sure or self.model.mandate_over is not None:
            return
        if revoked:
            self._db("revoke_mandate", secret=self.place.tokens.support_manager, hash=self.mandate.hash)
        else:
            self.place.run(self._granted(mandate_over(self.purpose, why="Corrected.")))
        self.model.end_mandate("cancelled" if revoked else "superseded")

    # What must hold after every step.

    @invariant()
    def they_agree(self) -> None:
        """State, fact and everything that the next step depends on, of every operation and attempt."""
        if not hasattr(self, "model"):
            return
        real, modelled = self.place.run(self._real()), self._modelled()
        assert real == modelled

    @invariant()
    def at_most_one_effect(self) -> None:
        """I1, by the receivers' own count."""
        if hasattr(self, "world"):
            assert {key: count for key, count in self.world.effects.items() if count > 1} == {}

    @invariant()
    def nothing_was_claimed_while_it_was_barred(self) -> None:
        """I4: neither under an order, nor after the end of a mandate, nor past an approval."""
        if hasattr(self, "world"):
            assert self.claimed_while_barred == []

    @invariant()
    def the_ledger_knows_what_happened(self) -> None:
        """I5: an effect is never shown as not sent, unless a person was told; what is COMPLETED has happened."""
        if not hasattr(self, "world"):
            return
        for key, last in self._last().items():
            there = self.world.effects[key] > 0
            if last.fact == "COMPLETED":
                assert key in self.world.ever, f"{key} is COMPLETED and nothing happened"
            elif last.fact == "NOT_SENT":
                told = any(
                    e.cases & set(CASES_OF_RECEIPTS) for e in self.model.entries.values() if e.key == key
                )
                assert not there or told, f"{key} has an effect and counts as not sent"

    def teardown(self) -> None:
        if hasattr(self, "orders"):
            for id_ in self.orders.values():
                self._db("lift", secret=self.place.tokens.finance_lead, id=id_)
            if self.model.mandate_over is None:
                self._db("revoke_mandate", secret=self.place.tokens.support_manager, hash=self.mandate.hash)

    # How it is done.

    def _db(self, name: str, **values: object) -> list[dict[str, Any]]:
        return self.place.run(self.place.database.rows(name, **values))

    def _both(self, real: Awaitable[T], modelled: Awaitable[T]) -> None:
        assert self.place.run(real) == self.place.run(modelled)

    def _propose(
        self,
        run: int,
        step: str,
        subjects: Sequence[str],
        *,
        verdict: str | None,
        terms: str,
        requires: Sequence[str] | None,
    ) -> None:
        lease = self.leases[self.runs[run]]
        rows = [self._row(step, subject, verdict, terms, requires) for subject in subjects]
        for row in rows:
            row["mandate_hash"] = self.mandate.hash
        added = self._db("propose", run=lease.run_id, token=lease.token, rows=json(rows))
        self.model.operation_ids = {row["key"]: row["operation_id"] for row in added}
        assert self.model.propose(lease, rows).keys() == self.model.operation_ids.keys()

    def _take(self, run: str, worker: str) -> None:
        lease = self.leases.get(run)
        if lease is not None:
            self._db("heartbeat", run=run, token=lease.token, seconds=-1)
        token = self.place.run(
            self.place.database.value("acquire_lease", run=run, worker=worker, seconds=SEND_SECONDS)
        )
        self.leases[run] = self.model.lease(run, worker)
        assert self.leases[run].token == token

    def _maybe_stale(self, lease: Lease, stale: bool) -> Lease:
        return Lease(lease.run_id, lease.token - 1, lease.worker) if stale and lease.token > 1 else lease

    def _both_claim(self, lease: Lease, ids: list[int]) -> list[Any]:
        read_at = self.place.run(self.place.ledger.now())
        asked = (lease, ids, read_at, SEND_SECONDS, TERMS)
        try:
            real = self.place.run(self.place.ledger.claim(*asked))
        except LeaseLost:
            with pytest.raises(LeaseLost):
                self.place.run(self.model.claim(*asked))
            return []
        self.model.attempt_ids = {c.operation_id: c.attempt_id for c in real if c.attempt_id is not None}
        modelled = self.place.run(self.model.claim(*asked))
        assert sorted(map(_told, real)) == sorted(map(_told, modelled))
        return real

    def _record(self, attempts: Sequence[int]) -> None:
        receipts = [_receipt(id_, self.world.sent[id_].seen or Seen.UNKNOWN) for id_ in attempts]
        self._both(self.place.ledger.record(receipts), self.model.record(receipts))

    def _send(self, attempt: int, comes_to: str) -> None:
        """The orders are read right before; a sender that was let through then sends, however long it sleeps."""
        one = self._try(attempt)
        entry = self.model.entries[self.world.sent[attempt].operation]
        lease = Lease(entry.run, one.token, one.worker)
        allowed = self.place.run(self.place.ledger.may_send(lease, [attempt]))
        assert allowed == self.place.run(self.model.may_send(lease, [attempt]))
        if allowed:
            self.world.answers(self.world.sent[attempt], comes_to)

    def _settlement(self, due: Due, told: str) -> Settlement:
        sight = Sight.UNREADABLE if told == "unreadable" else self.world.shows(due.key, told)
        keyed = KEYED[due.key.split("/")[1]]
        quiet = (due.last_send is None or due.last_send <= due.now) and not self.world.on_its_way(due.key)
        remembered = keyed and due.first_sent is not None
        then = after_look(
            Look(
                sight=sight,
                state=due.state,
                absence_counts=told != "early" and quiet,
                may_resend=remembered and not due.key_answered,
                senders_ended=due.senders_ended or (remembered and due.key_answered),
                receipt_accepted=due.receipt_accepted,
                bounded=True,
                tired=False,
            )
        )
        return Settlement(
            operation_id=due.operation_id,
            version=due.version,
            attempt=due.attempt,
            sight=sight.value,
            source="world",
            as_of="",
            complete=True,
            read_began_at=due.now,
            records=[],
            to=then.to,
            next_seconds=0.0,
            resend=then.resend,
            closed=then.closed,
            detail=then.detail,
            case=then.case,
        )

    def _row(self, step: str, subject: str, verdict: str | None, terms: str, requires: Any) -> dict[str, Any]:
        bench: Any = SimpleNamespace(catalogue=self.place.catalogue, ledger=self.place.ledger)
        obligations = _obligations(verdict, terms)
        return Bench.row(
            bench,
            step,
            subject,
            verdict=verdict,
            obligations=obligations,
            mandate=self.mandate,
            requires=requires,
        )

    def _any(self, data: st.DataObject) -> Entry | None:
        entries = sorted(self.model.entries.values(), key=lambda entry: entry.id)
        return data.draw(st.sampled_from(entries)) if entries else None

    def _try(self, id_: int) -> Any:
        return next(one for e in self.model.entries.values() for one in e.tries if one.id == id_)

    def _ended(self, id_: int) -> bool:
        return self._try(id_).ended_at is not None

    def _is_barred(self, entry: Entry) -> bool:
        wanted = {entry.run, self.purpose, entry.row["subject"]}
        ordered = any(order.value in wanted for order in self.orders)
        unapproved = entry.verdict == "needs_approval" and (
            entry.execute_by is None or entry.execute_by <= self.model.clock()
        )
        return ordered or self.model.mandate_over is not None or unapproved or entry.verdict in (None, "deny")

    def _last(self) -> dict[str, Entry]:
        return {entry.key: entry for entry in sorted(self.model.entries.values(), key=lambda e: e.revision)}

    def _modelled(self) -> dict[int, dict[str, Any]]:
        return {
            entry.id: {
                "revision": entry.revision,
                "state": entry.state.value,
                "closed": entry.closed,
                "fact": entry.fact,
                "doubt": entry.doubt,
                "resend": entry.resend,
                "keep_back": entry.keep_back,
                "generation": entry.generation,
                "obstacle": self.model.obstacle(entry),
                "attempts": [
                    (one.number, one.key, one.seen, one.ended_at is not None, one.late, one.no_effect)
                    for one in entry.tries
                ],
                "cases": sorted(entry.cases),
                "shares": len(self.model.shares.get(entry.id, [])),
            }
            for entry in self.model.entries.values()
        }

    async def _real(self) -> dict[int, dict[str, Any]]:
        async with self.place.database.pool.connection() as connection:
            cursor = await connection.execute(_REAL, [self.purpose])
            rows = await cursor.fetchall()
        return {row.pop("id"): {**row, "attempts": [tuple(a) for a in row["attempts"]]} for row in rows}

    async def _offset(self) -> timedelta:
        row = await self.place.database.row("installation")
        assert row is not None
        offset: timedelta = row["clock_offset"]
        return offset

    async def _granted(self, mandate: Mandate) -> None:
        secret = self.place.tokens.support_manager
        await self.place.people.grant(secret, mandate.hash, mandate.document(), SUBJECTS)

    async def _started(self) -> str:
        run = self.place.name("run")
        await self.place.database.rows(
            "start_run",
            secret=self.place.tokens.support_manager,
            run=run,
            mandate=self.mandate.hash,
            agent_version="test",
            fingerprint="",
        )
        return run

    async def _registered(self) -> str:
        worker = self.place.name("w")
        await self.place.database.rows("register_worker", id=worker, host="h", pid=1, lock_path="")
        return worker

    async def _decided(self, id_: int, grant: bool) -> bool:
        async with self.place.database.pool.connection() as connection:
            asked = await (await connection.execute(_ASKED, [id_])).fetchone()
        assert asked is not None
        try:
            told = await self.place.people.decide(
                self.place.tokens.finance_lead,
                asked["id"],
                asked["set_hash"],
                grant=grant,
                rationale="",
                only=[id_],
            )
        except Refused:
            return False
        return bool(told["decided"])


_WINDOW_PASSED = b"UPDATE remit.attempts SET send_by = send_by - interval '20 minutes' WHERE id = %s"

_ASKED = b"""
SELECT a.id, a.set_hash FROM remit.approvals a JOIN remit.approval_items i ON i.approval_id = a.id
WHERE i.operation_id = %s"""

_REAL = b"""
SELECT o.id, o.revision, o.state, o.closed, o.fact, o.doubt, o.resend, o.keep_back, o.generation, o.obstacle,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(a.number, a.wire_key, a.seen, a.ended_at IS NOT NULL, a.late,
                                                    a.no_effect) ORDER BY a.number), '[]')
        FROM remit.attempts a WHERE a.operation_id = o.id) AS attempts,
       ARRAY(SELECT c.code FROM remit.cases c WHERE c.operation_id = o.id AND c.closed_at IS NULL
             ORDER BY c.code COLLATE "C") AS cases,
       (SELECT count(*) FROM remit.reservations r WHERE r.operation_id = o.id) AS shares
FROM remit.standing o WHERE o.purpose = %s"""


def _obligations(verdict: str | None, terms: str) -> dict[str, Any]:
    asks = {name: ASK_FINANCE[name] for name in ("approvers", "quorum", "decide_within", "execute_within")}
    return {**OBLIGATIONS[terms], **(asks if verdict == "needs_approval" else {})}


def _receipt(attempt: int, seen: Seen) -> Receipt:
    """As the runner makes it; a closed door keeps the operation back until somebody clears the way."""
    then = AFTER_ATTEMPT[seen]
    return Receipt(
        attempt_id=attempt,
        seen=seen.value,
        response=None,
        to=then.to,
        no_effect=then.no_effect,
        closed=then.closed,
        detail=then.detail,
        gate=then.gate,
        gate_seconds=3_600.0,
        case=then.case,
    )


def _told(claim: Any) -> tuple[Any, ...]:
    return (
        claim.operation_id,
        claim.refused or "",
        claim.attempt_id or 0,
        claim.wire_key or "",
        claim.number or 0,
    )


def _judged_by(due: Due) -> dict[str, Any]:
    """What the recovery table asks of a due operation; times only as far as they are known."""
    over = due.last_send is None or due.last_send <= due.now
    named = (
        "key",
        "tool",
        "subject",
        "intent",
        "state",
        "attempt",
        "checks",
        "resend",
        "senders_ended",
        "receipt_accepted",
        "key_answered",
    )
    return {"over": over, "sent": due.first_sent is not None, **{name: getattr(due, name) for name in named}}


def vars_of(settlement: Settlement) -> dict[str, Any]:
    return {name: getattr(settlement, name) for name in Settlement.__dataclass_fields__}


@pytest.fixture
def place(ledger_database: Urls) -> Iterator[Place]:
    opened = Place(ledger_database)
    PLACE.append(opened)
    yield opened
    PLACE.remove(opened)
    opened.close()


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_postgres_and_the_model_agree_whatever_happens() -> None:
    """F41, F43: retries, deaths, takeovers and late answers in any order leave one operation per key, one wire key per
    generation and at most one effect, and both ledgers tell the same at every step."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    bounded = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS_OF_AN_EXAMPLE,
        derandomize=True,
        phases=[Phase.generate, *SHRINK],
        database=None,
        deadline=None,
        suppress_health_check=quiet,
    )
    run_state_machine_as_test(LedgerMachine, settings=bounded)
