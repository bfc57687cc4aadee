"""Passwords, roles and databases of the embedded Postgres.

Invariant: every role has a random password that only HOME/postgres.json (mode 0600) knows, the superuser's
never leaves this module, and the role of the agent's processes may connect and nothing else until migrations
grant more.
"""

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remit.tools.errors import Misconfigured

DATABASE = "remit"
OWNER = "remit_owner"
APP = "remit_app"
SUPERUSER = "postgres"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Urls:
    """How to reach one database: as the role that owns it, and as the role of the agent's processes.

    Both are libpq URLs and hold a password, so they are left out of the representation.
    """

    owner_url: str = field(repr=False)
    app_url: str = field(repr=False)


class Record(BaseModel):
    """HOME/postgres.json: where the data of one home is, and its passwords."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    data: Path
    superuser_password: str = Field(repr=False)
    owner_password: str = Field(repr=False)
    app_password: str = Field(repr=False)
    prepared: bool = False
    """True once data, roles and the database exist: from then on missing data is an error, no fresh start."""


def record_file(home: Path) -> Path:
    """Where the record of `home` is kept."""
    return home / "postgres.json"


def read_record(home: Path) -> Record | None:
    """None when `home` never had an embedded Postgres; Misconfigured when its record cannot be used."""
    file = record_file(home)
    try:
        return Record.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise Misconfigured(
            f"{file} belongs to another user. Run the command as that user, or set REMIT_HOME to a folder of "
            f"your own.",
            code="embedded_foreign",
        ) from error
    except ValidationError as error:
        raise Misconfigured(
            f"{file} cannot be understood. Restore it, or move it and the data beside it away to start "
            f"afresh.",
            code="embedded_record",
        ) from error


def write_record(home: Path, record: Record) -> None:
    """Replaced in one step and flushed: losing it after initdb would lock everybody out of the data."""
    descriptor, draft = tempfile.mkstemp(dir=home, prefix="postgres.json.")
    with os.fdopen(descriptor, "w") as handle:
        handle.write(record.model_dump_json(indent=2))
        handle.flush()
        os.fsync(handle.fileno())
    Path(draft).replace(record_file(home))


def urls(record: Record, sockets: Path, database: str = DATABASE) -> Urls:
    """The two URLs of one database, through the socket in the folder `sockets`."""
    return Urls(
        owner_url=_url(OWNER, record.owner_password, sockets, database),
        app_url=_url(APP, record.app_password, sockets, database),
    )


def _url(role: str, password: str, sockets: Path, database: str) -> str:
    # The port is named because a PGPORT in the caller's environment would otherwise lead elsewhere.
    return f"postgresql://{role}:{password}@/{database}?host={quote(str(sockets), safe='')}&port=5432"


async def prepare(record: Record, sockets: Path) -> None:
    """The two roles and the database. Repeatable: an earlier try may have been killed at any point."""
    async with await _superuser(record, sockets) as connection:
        for role, password in ((OWNER, record.owner_password), (APP, record.app_password)):
            await _ensure_role(connection, role, password)
        cursor = await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
        if await cursor.fetchone() is None:
            await _create(connection, DATABASE, "template1")
        await _narrow(connection, DATABASE)
        for name in ("postgres", "template1"):
            await connection.execute(
                sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name))
            )


async def create_database(record: Record, sockets: Path, name: str, template: str) -> Urls:
    """A copy of `template` with the same roles and rights as `remit`."""
    async with await _superuser(record, sockets) as connection:
        await _create(connection, name, template)
        await _narrow(connection, name)
    return urls(record, sockets, name)


async def drop_database(record: Record, sockets: Path, name: str) -> None:
    """Drops it with its connections; nothing happens when it does not exist."""
    async with await _superuser(record, sockets) as connection:
        await connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(_identifier(name)))


async def _superuser(record: Record, sockets: Path) -> psycopg.AsyncConnection:
    url = _url(SUPERUSER, record.superuser_password, sockets, "postgres")
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


async def _ensure_role(connection: psycopg.AsyncConnection, role: str, password: str) -> None:
    """The password travels as its SCRAM verifier, so that no statement and no log holds it."""
    cursor = await connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
    if await cursor.fetchone() is None:
        await connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    await connection.execute(
        sql.SQL("ALTER ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD {}").format(
            sql.Identifier(role), sql.Literal(verifier.decode())
        )
    )


async def _create(connection: psycopg.AsyncConnection, name: str, template: str) -> None:
    await connection.execute(
        sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(
            _identifier(name), sql.Identifier(OWNER), _identifier(template)
        )
    )


async def _narrow(connection: psycopg.AsyncConnection, database: str) -> None:
    """Takes from everybody what a new database gives to everybody, temporary tables included."""
    names = {"database": sql.Identifier(database), "app": sql.Identifier(APP)}
    await connection.execute(sql.SQL("REVOKE ALL ON DATABASE {database} FROM PUBLIC").format(**names))
    await connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {database} TO {app}").format(**names))


def _identifier(name: str) -> sql.Identifier:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no database name. Use lower-case letters, digits and underscores.")
    return sql.Identifier(name)
