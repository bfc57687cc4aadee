"""The company's process: five listeners on one database, until a signal ends it.

Each service has a listener and a port of its own, so that one can refuse connections while the others
answer. The ports of the last start are taken again where they are free: clients keep their URLs.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
from pathlib import Path

from aiohttp import web

from remit.sandbox import accounts, control, faults, mail, model, payments
from remit.sandbox.calls import Service
from remit.sandbox.gateway import Gateway
from remit.sandbox.lifecycle import credentials
from remit.sandbox.signatures import holder
from remit.sandbox.store import MICROS, Store, database, folder, real_now
from remit.sandbox.webhooks import Deliverer
from remit.sandbox.world import write_private

HOST = "127.0.0.1"
GRACE = 0.5
"""Seconds that calls in flight have left when the process is asked to end."""

LOCK_TRIES = 20
LOCK_PAUSE = 0.01


class AlreadyRunning(RuntimeError):
    """Another process serves this home. Use it, or stop it first."""


def _bound(port: int) -> socket.socket:
    """A socket that holds the port; until it listens, connections to it are refused."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
    except OSError:
        if port == 0:
            raise
        found.bind((HOST, 0))
    return found


class Listener:
    """One service's port: open and answering, or held and refusing."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self._runner = web.AppRunner(
            gateway.app(), access_log=None, handle_signals=False, shutdown_timeout=GRACE
        )
        self._socket = _bound(port)
        self._site: web.SockSite | None = None
        self.port: int = self._socket.getsockname()[1]

    async def setup(self) -> None:
        await self._runner.setup()

    async def open(self) -> None:
        if self._site is None:
            self._site = web.SockSite(self._runner, self._socket)
            await self._site.start()

    async def refuse(self) -> None:
        """Closes the port for new connections and cuts the ones that clients keep alive."""
        if self._site is None:
            return
        await self._site.stop()
        self._site = None
        server = self._runner.server
        for connection in server.connections if server is not None else []:
            if connection.transport is not None:
                connection.transport.abort()
        self._socket = _bound(self.port)

    async def close(self) -> None:
        await self._runner.cleanup()
        self._socket.close()


class Company:
    """One world, served. ``start`` and ``close`` belong to one event loop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(database(home))
        self._listeners: dict[str, Listener] = {}
        self._wake: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._arranging = asyncio.Lock()
        self._deliverer = Deliverer(self.store, lambda service: credentials(home)[holder(service)])

    async def start(self, ports: dict[str, int] | None = None) -> dict[str, str]:
        """Opens the listeners and returns their URLs by service."""
        nudge = self._deliverer.nudge
        after = {"control": self._follow, "payments": nudge, "mail": nudge}
        for service in self._services():
            gateway = Gateway(self.store, service, after.get(service.name))
            self._listeners[service.name] = Listener(gateway, (ports or {}).get(service.name, 0))
        for listener in self._listeners.values():
            await listener.setup()
        await self._follow()
        return {name: f"http://{HOST}:{listener.port}" for name, listener in self._listeners.items()}

    def _services(self) -> tuple[Service, ...]:
        scripts = model.service(folder(self.home) / "scripts")
        return accounts.SERVICE, payments.SERVICE, mail.SERVICE, scripts, control.SERVICE

    async def _follow(self) -> None:
        """After a pull at the strings: listeners and the posting of events are as they say."""
        await self.arrange()
        await self._deliverer.arrange()

    async def arrange(self) -> None:
        """Brings the listeners in line with the faults in force, now and when the next one ends."""
        async with self._arranging:
            closed = faults.refused(self.store.db, real_now())
            for name, listener in self._listeners.items():
                await (listener.refuse() if name in closed else listener.open())
        ends = [until for until in closed.values() if until is not None]
        if self._wake is not None:
            self._wake.cancel()
        self._wake = None
        if ends:
            wait = max(0.0, (min(ends) - real_now()) / MICROS)
            self._wake = asyncio.get_running_loop().call_later(wait, self._arrange_soon)

    def _arrange_soon(self) -> None:
        self._opening = asyncio.ensure_future(self.arrange())

    async def close(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        if self._opening is not None:
            await self._opening
        await self._deliverer.close()
        await asyncio.gather(*(listener.close() for listener in self._listeners.values()))
        self.store.close()


def last_ports(home: Path) -> dict[str, int]:
    try:
        urls = json.loads((folder(home) / "sandbox.json").read_text("utf-8"))["urls"]
    except (OSError, ValueError, KeyError):
        return {}
    return {name: int(url.rpartition(":")[2]) for name, url in urls.items()}


async def _lock(home: Path) -> int:
    """A lock for the life of the process: the operating system frees it, however the process ends.

    Tried more than once, since whoever asks whether it is held takes it for an instant.
    """
    held = os.open(folder(home) / "serving.lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOCK_PAUSE)
            continue
        os.ftruncate(held, 0)
        os.write(held, str(os.getpid()).encode())
        return held
    os.close(held)
    raise AlreadyRunning(str(AlreadyRunning.__doc__))


async def serve(home: Path) -> None:
    """Serves the world of a home until SIGTERM or SIGINT."""
    held = await _lock(home)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    company = Company(home)
    urls = await company.start(last_ports(home))
    write_private(folder(home) / "sandbox.json", json.dumps({"pid": os.getpid(), "urls": urls}, indent=2))
    await ended.wait()
    await company.close()
    os.close(held)
