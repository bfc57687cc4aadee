"""Where a round takes place: its own database and company, the people, and the hands that break things.

The people only do what people may: grant, start, decide, stop and lift through tokens, and edit as the employee.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from psycopg import sql

from remit.checkpoints import Database, People, embedded, migrate, open_pool
from remit.checkpoints import embedded_access as access
from remit.checkpoints import embedded_system as system
from remit.policies import read_mandate
from remit.sandbox import dump, start, stop, world
from remit.sandbox.client import Control
from remit.sandbox.lifecycle import SandboxError, info
from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove, Mandate
from tests.chaos.fork_server import TENANT
from tests.chaos.schedule import Event
from tests.fixtures import HOUR, mint_tokens

MANDATES = Path(__file__).parents[2] / "mandates"
PURPOSES = ("outage-0611", "outage-0619")

HOLD_SECONDS = 6.0
"""A little more than policy holds messages back."""

_SHORT_PAUSES = b"""
CREATE OR REPLACE FUNCTION remit.longest_pause() RETURNS interval LANGUAGE sql IMMUTABLE
AS $$ SELECT interval '3 seconds' $$
"""
"""So many faults would keep a receiver's door closed for minutes, in which nothing at all is tried."""


@dataclass(frozen=True)
class Ground:
    """A cluster of its own, which may be broken, with a migrated template."""

    home: Path
    template: str

    async def restart(self) -> None:
        """Immediate: every backend is ended where it stands, and the server recovers from its log."""
        record, _ = embedded._live(self.home)
        account = await system.account(record.data)
        programs = await system.programs(account)
        site = embedded._Site(self.home, record, account, programs)
        await site.pg_ctl("stop", "--mode=immediate")
        await embedded.up(self.home)

    async def cut_connections(self, database: str) -> None:
        """Ends every connection of the application to one database, as an operator or a pooler might."""
        async with await access._superuser(*embedded._live(self.home)) as superuser:
            await superuser.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
            )


@asynccontextmanager
async def ground(folder: Path) -> AsyncIterator[Ground]:
    """Set up once for any number of rounds; `folder` must be one that every user may enter."""
    home = folder / "postgres"
    await embedded.up(home)
    try:
        template = "template_chaos"
        urls = await embedded.create_database(home, template)
        await migrate(urls.owner_url, tenant=TENANT, environment="sandbox")
        async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
            await owner.execute(_SHORT_PAUSES)
        yield Ground(home, template)
    finally:
        await embedded.remove(home)


@dataclass
class Arena:
    """One round's world and people. `log` is what happened, in order; `now` in seconds since the beginning."""

    ground: Ground
    name: str
    url: str
    home: Path
    database: Database
    people: People
    secrets: dict[str, str]
    mandates: dict[str, Mandate]
    log: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    standing: int | None = None

    def note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.1f}s  {text}")

    async def sql(self, query: str, *values: object) -> list[dict[str, Any]]:
        """A plain statement of the application's role."""
        async with self.database.pool.connection() as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def apply(self, event: Event) -> None:
        """One event of the schedule, with what came of it in the log."""
        dice = random.Random(event.chance)  # noqa: S311 - a plan, not a secret
        came = await getattr(self, f"_{event.kind}")(dice, *event.details)
        self.note(f"{event.kind} {' '.join(map(str, event.details))}{f': {came}' if came else ''}")

    async def start_runs(self) -> None:
        """The support manager starts a run for every purpose that has none and is not done, unless it is stopped."""
        if self.standing is not None:
            return
        for purpose, mandate in self.mandates.items():
            if await self._open_run(purpose) or await self.done(purpose):
                continue
            run = "run-" + secrets.token_hex(4)
            await self.database.rows(
                "start_run",
                secret=self.secrets["manager"],
                run=run,
                mandate=mandate.hash,
                agent_version="chaos",
                fingerprint="",
            )
            self.note(f"{run} for {purpose}")

    async def done(self, purpose: str) -> bool:
        """Whether every step is completed for every subject."""
        wanted = len(self.mandates[purpose].steps) * len(self.affected(purpose))
        (row,) = await self.sql(
            "SELECT count(*) AS count FROM remit.operations WHERE purpose = %s AND state = 'SETTLED'", purpose
        )
        return bool(row["count"] == wanted)

    def affected(self, purpose: str) -> list[str]:
        """The subjects of a purpose, by the company's own records."""
        incidents = {one["id"]: one["affected"] for one in dump(self.home)["incidents"]}
        return [f"customer:{customer}" for customer in incidents[purpose]]

    async def approve_all(self) -> None:
        """One lead grants everything that is asked."""
        for asked in await self.database.rows("approvals", which=None):
            await self._vote("lead", asked, None, grant=True)

    async def pass_time(self, seconds: float = HOLD_SECONDS) -> None:
        """The company's time and the ledger's move on together."""
        await self.database.rows("advance_clock", seconds=seconds)
        async with Control.at(self.home) as control:
            await control.advance(seconds)

    async def calm(self) -> None:
        """No fault is left, no order stands, and the company is up."""
        await start(self.home)
        async with Control.at(self.home) as control:
            await control.clear_faults()
        await self._lift()
        self.note("calm: faults cleared, orders lifted")

    async def _open_run(self, purpose: str) -> bool:
        return bool(
            await self.sql("SELECT 1 FROM remit.runs WHERE purpose = %s AND ended_at IS NULL", purpose)
        )

    async def _decide(self, dice: random.Random) -> str:
        """Two leads at the same moment, about overlapping parts of one set; one of them may reject."""
        asked = await self.database.rows("approvals", which=None)
        if not asked:
            return "nothing is asked"
        chosen = dice.choice(asked)
        items = await self.database.rows("approval_items", approval=chosen["id"])
        open_ = [
            row["operation_id"] for row in items if row["decision"] is None and row["state"] == "PENDING"
        ]
        if not open_:
            return "nothing is open"
        parts = [dice.sample(open_, min(len(open_), dice.randint(1, 4))) for _ in range(2)]
        votes = (
            self._vote("lead", chosen, parts[0], grant=True),
            self._vote("other_lead", chosen, parts[1], grant=dice.random() < 0.7),
        )
        return " / ".join(await asyncio.gather(*votes))

    async def _vote(
        self, person: str, asked: dict[str, Any], only: Sequence[int] | None, *, grant: bool
    ) -> str:
        try:
            row = await self.people.decide(
                self.secrets[person],
                asked["id"],
                asked["set_hash"],
                grant=grant,
                rationale="seen",
                only=only,
            )
        except Refused as refused:
            return refused.code
        return f"{row['outcome']} {row['decided']}"

    async def _clock(self, _: random.Random) -> None:
        await self.pass_time()

    async def _edit(self, dice: random.Random, what: str) -> str:
        """An employee changes an account of somebody affected, at the same time as the agent."""
        subject = dice.choice(self.affected(dice.choice(PURPOSES)))
        value = {
            "email": f"person-{dice.getrandbits(16)}@example.invalid",
            "plan": dice.choice(("basic", "premium")),
        }
        text = value.get(what, f"seen {dice.getrandbits(16)}")
        try:
            async with Control.at(self.home) as control:
                await control.edit(subject.partition(":")[2], {what: text})
        except (SandboxError, aiohttp.ClientError, ValueError) as error:
            # The faults are the company's: they hit its own people as well.
            return f"{subject}: {type(error).__name__}"
        return subject

    async def _fault(
        self, _: random.Random, service: str, kind: str, route: str, times: int | None, seconds: float | None
    ) -> None:
        async with Control.at(self.home) as control:
            await control.add_fault(service, kind, route, times=times, seconds=seconds)

    async def _stop(self, dice: random.Random, kind: str, scope: str) -> str:
        """A stop or a freeze; one at a time, so that there is always something to go on with."""
        if self.standing is not None:
            return "one stands"
        value = await self._whom(dice, scope)
        if value is None:
            return "no run"
        place = self.people.stop if kind == "stop" else self.people.freeze
        order = await place(self.secrets["lead"], scope, value, "to see what happens")
        self.standing = order["id"]
        return f"order {self.standing} {value}"

    async def _whom(self, dice: random.Random, scope: str) -> str | None:
        purpose = dice.choice(PURPOSES)
        if scope != "run":
            return {"all": "", "mandate": purpose, "subject": dice.choice(self.affected(purpose))}[scope]
        open_ = "SELECT id FROM remit.runs WHERE ended_at IS NULL ORDER BY created_at LIMIT 1"
        return next((row["id"] for row in await self.sql(open_)), None)

    async def _lift(self, _: random.Random | None = None) -> str:
        if self.standing is None:
            return "none stands"
        lifted = await self.people.lift(self.secrets["lead"], self.standing)
        self.standing = None
        return f"{lifted['cancelled']} cancelled"

    async def _restart_postgres(self, _: random.Random) -> None:
        await self.ground.restart()

    async def _cut_connections(self, _: random.Random) -> None:
        await self.ground.cut_connections(self.name)

    async def _kill_company(self, _: random.Random) -> None:
        found = info(self.home)
        if found is not None:
            os.kill(found.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, found.pid, 0)
        await start(self.home)


@asynccontextmanager
async def arena(ground: Ground, folder: Path) -> AsyncIterator[Arena]:
    """A fresh ledger, a fresh company in a process of its own, tokens and granted mandates."""
    name = "chaos_" + secrets.token_hex(5)
    urls = await embedded.create_database(ground.home, name, template=ground.template)
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        # A setting of the database, which a clone does not inherit.
        search = sql.SQL("ALTER DATABASE {} SET search_path = remit, public").format(sql.Identifier(name))
        await owner.execute(search)
    async with await access._superuser(*embedded._live(ground.home)) as superuser:
        # A clone's sequences begin in the middle of what the template had logged ahead. A crash before the next
        # checkpoint would set them back to where they were cloned, and ids would be given twice.
        await superuser.execute("CHECKPOINT")
    world.create(folder)
    await start(folder)
    try:
        async with Control.at(folder) as control:
            await control.settings(settle_seconds=0.05, deliver_seconds=0.05)
        async with open_pool(urls.app_url) as pool:
            yield await _opened(ground, name, urls.app_url, folder, Database(pool))
    finally:
        await stop(folder)
        await embedded.drop_database(ground.home, name)


async def _opened(ground: Ground, name: str, url: str, home: Path, database: Database) -> Arena:
    people = People(database)
    tokens = await mint_tokens(people)
    _, other, _ = await people.mint(tokens.administrator, "finance-lead-2", "finance_lead", 24 * HOUR)
    secrets_ = {"manager": tokens.support_manager, "lead": tokens.finance_lead, "other_lead": other}
    # Whoever decides one by one has more to decide: both campaigns ask.
    asks = {"ask_above": AskAbove(count=5)}
    mandates = {p: read_mandate(MANDATES / f"{p}.yaml").model_copy(update=asks) for p in PURPOSES}
    opened = Arena(ground, name, url, home, database, people, secrets_, mandates)
    for purpose, mandate in mandates.items():
        await people.grant(tokens.support_manager, mandate.hash, mandate.document(), opened.affected(purpose))
    return opened
