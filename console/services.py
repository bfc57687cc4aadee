"""The parts that commands work with, each opened when it is first asked for and closed together.

Keeps simple commands quick (a stop needs a database and nothing else) and one of each part per process: one bounded
pool, one HTTP session, one worker lock.
"""

import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import aiohttp

from remit.checkpoints.database import Database, Pool, open_pool
from remit.checkpoints.ledger import Ledger
from remit.checkpoints.notices import Notices, posting, running
from remit.checkpoints.people import People
from remit.checkpoints.sweep import Sweep
from remit.checkpoints.workers import Worker
from remit.console import access, places
from remit.console.screen import complain, order_line, standing_orders
from remit.console.settings import Settings, load, require_installation
from remit.tools.catalogue import Catalogue, credit_catalogue
from remit.tools.errors import Misconfigured, NoAnswer
from remit.tools.ports import Reach, inert
from remit.tools.runner import Runner
from remit.tools.signatures import key_of
from remit.tools.transport import Transport

if TYPE_CHECKING:
    from remit.graph import Deps, Driver
    from remit.policies import PolicyEngine


class _Unasked:
    """Policy and model of whoever only looks: a status must not fail because either is away or not set up."""

    name = revision = "not asked"

    async def ask(self, question: object) -> NoReturn:
        raise NoAnswer("This command asks no policy. Report it.", code="not_asked")

    async def check(self) -> None:
        await self.ask(None)

    async def plan(self, messages: object, tools: object) -> NoReturn:
        raise NoAnswer("This command asks no model. Report it.", code="not_asked")


class Services:
    """All parts of one process. Use `opened()`; a method opens its part once and gives it again afterwards."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, reach: Reach = inert) -> None:
        self.settings = settings
        self._stack = stack
        self._reach = reach
        self._pool: Pool | None = None
        self._database: Database | None = None
        self._ledger: Ledger | None = None
        self._catalogue: Catalogue | None = None
        self._transport: Transport | None = None
        self._policy: PolicyEngine | None = None
        self._runner: Runner | None = None
        self._worker: Worker | None = None
        self._drivers: dict[str, Driver] = {}

    async def pool(self) -> Pool:
        """The pool on the application's role, after a look whether the database is of this version and installation."""
        if self._pool is None:
            urls = await access.urls(self.settings)
            await access.check(urls.app_url, self.settings)
            self._pool = await self._stack.enter_async_context(open_pool(urls.app_url))
        return self._pool

    async def database(self) -> Database:
        """The named queries."""
        if self._database is None:
            self._database = Database(await self.pool(), self._reach)
        return self._database

    async def people(self) -> People:
        """What people say: tokens, mandates, decisions, orders."""
        return People(await self.database())

    async def ledger(self) -> Ledger:
        """The ledger, as the runner sees it."""
        if self._ledger is None:
            self._ledger = await Ledger.open(await self.database())
        return self._ledger

    def catalogue(self) -> Catalogue:
        """The tools, checked as a whole."""
        if self._catalogue is None:
            self._catalogue = credit_catalogue()
        return self._catalogue

    async def transport(self) -> Transport:
        """The one way to the company's systems."""
        if self._transport is None:
            urls = places.receivers(self.settings)
            transport = Transport(urls, lambda reference: places.credential(self.settings, reference))
            self._transport = await self._stack.enter_async_context(transport)
        return self._transport

    async def policy(self) -> "PolicyEngine":
        """The engine that gives verdicts: compiled in the sandbox, a server elsewhere."""
        if self._policy is None:
            self._policy = await self._open_policy()
        return self._policy

    async def _open_policy(self) -> "PolicyEngine":
        from remit.policies import EmbeddedEngine, ServerEngine, load_policy

        if self.settings.engine == "embedded":
            embedded = EmbeddedEngine()
            self._stack.callback(embedded.close)
            return embedded
        asked = places.policy_server(self.settings, load_policy().revision)
        server = ServerEngine(asked.url, revision=asked.revision, token=asked.token, trusted=asked.trusted)
        return await self._stack.enter_async_context(server)

    async def runner(self) -> Runner:
        """Sends and verifies."""
        if self._runner is None:
            self._runner = Runner(await self.ledger(), self.catalogue(), await self.transport(), self._reach)
        return self._runner

    async def worker(self) -> Worker:
        """This process as a worker, from now to its end."""
        if self._worker is None:
            database = await self.database()
            try:
                worker = await Worker.begin(database, self.settings.home)
            except OSError as error:
                raise Misconfigured(
                    f"Nothing can be written to {self.settings.home}. Set REMIT_HOME to a folder of your own.",
                    code="home",
                ) from error
            self._stack.push_async_callback(worker.end, database)
            self._worker = worker
            for order in await standing_orders(database):
                if order["kind"] == "restore":
                    complain(order_line(order))
        return self._worker

    async def notices(self) -> Notices | None:
        """The outbox and how people are told; None where no way is set."""
        settings = self.settings
        if settings.notify_url is not None:
            # One without a secret did not load.
            assert settings.notify_secret is not None
            key = key_of(settings.notify_secret.get_secret_value())
            session = await self._stack.enter_async_context(aiohttp.ClientSession())
            return Notices(await self.database(), posting(session, settings.notify_url, key))
        if settings.notify_command is not None:
            return Notices(await self.database(), running(shlex.split(settings.notify_command)))
        return None

    async def sweep(self) -> Sweep:
        """The settle sweep of this worker."""
        return Sweep(await self.database(), await self.runner(), await self.worker())

    async def driver(self, purpose: str) -> "Driver":
        """Carries runs of one purpose on; the purpose decides nothing but which script the sandbox's model plays."""
        if purpose not in self._drivers:
            from remit.graph import Driver

            deps = await self.deps(purpose)
            self._drivers[purpose] = Driver(deps, await self.worker(), self.settings.lease_seconds)
        return self._drivers[purpose]

    async def looking(self) -> "Deps":
        """What a report is made from: the ledger and the systems of record, and nothing that could act."""
        from remit.graph import Deps

        return Deps(
            database=await self.database(),
            ledger=await self.ledger(),
            catalogue=self.catalogue(),
            transport=await self.transport(),
            runner=await self.runner(),
            policy=_Unasked(),
            model=_Unasked(),
        )

    async def deps(self, purpose: str) -> "Deps":
        """What a graph is built from."""
        from remit.graph import Deps
        from remit.graph.model import OpenAIModel

        model = OpenAIModel(*places.model(self.settings, purpose))
        self._stack.push_async_callback(model.close)
        return Deps(
            database=await self.database(),
            ledger=await self.ledger(),
            catalogue=self.catalogue(),
            transport=await self.transport(),
            runner=await self.runner(),
            policy=await self.policy(),
            model=model,
        )


@asynccontextmanager
async def opened(
    settings: Settings | None = None, reach: Reach = inert, *, make: bool = False, acts: bool = False
) -> AsyncIterator[Services]:
    """The parts of this process, by its settings. Closes what was opened, in reverse order.

    `reach` is called at the fault points. Raises Misconfigured where there is no installation, unless the
    command is to `make` one; and where it `acts` and tools and policy data do not fit together.
    """
    settings = settings or load()
    if not make:
        require_installation(settings)
    if acts:
        from remit.console.startup import checked

        checked()
    async with AsyncExitStack() as stack:
        services = Services(settings, stack, reach)
        if acts and settings.environment == "production":
            from remit.console.startup import require_proved

            await require_proved(await services.database(), services.catalogue())
        yield services
