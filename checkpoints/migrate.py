"""Migrations under one lock: however many workers start at once, one migrates and the others wait (F33).

LangGraph's own tables are made in the same step, with the trigger that refuses a stale runner. A database whose tables
another build made is refused by the digest of their files, before odd errors show it.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from remit.tools.errors import Misconfigured

_LOCK = 7236847123345002
_LOCK_SECONDS = 180.0
"""Longer than any migration here takes; whoever waits longer waits for a process that hangs."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_APP_MAY = """
ALTER TABLE checkpoint_writes ADD COLUMN IF NOT EXISTS run_token text;
GRANT SELECT, INSERT, UPDATE ON checkpoints, checkpoint_blobs, checkpoint_writes TO remit_app;
GRANT SELECT ON checkpoint_migrations TO remit_app;
CREATE OR REPLACE TRIGGER checkpoints_refuse_stale BEFORE INSERT OR UPDATE ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION remit.refuse_stale_runner();
CREATE OR REPLACE TRIGGER checkpoint_writes_refuse_stale BEFORE INSERT OR UPDATE ON checkpoint_writes
    FOR EACH ROW EXECUTE FUNCTION remit.refuse_stale_writes();
"""


async def migrate(owner_url: str, *, tenant: str, environment: str, zone: str | None = None) -> str:
    """Bring the database at `owner_url` to this version and return the installation's id.

    `zone` is an IANA name, set once: days and months of limits are this zone's. None is UTC for a new database, and
    whatever an existing one has. Idempotent; safe from several processes at once. Raises Misconfigured when the
    database belongs to another tenant, environment or zone, or Postgres knows no such zone (one database is one
    tenant and one environment), or when another build made its tables.
    """
    return await asyncio.to_thread(_migrate, owner_url, tenant, environment, zone)


OTHER_BUILD = (
    "The tables of this database were made by another build of Remit, and this one cannot change them into its own. "
    "Make a new database: `remit sandbox reset --ledger` for the embedded one, or point REMIT_DATABASE_URL at an "
    "empty one."
)


def digests() -> dict[str, str]:
    """SHA-256 over the files of each revision, by its number: what made the tables of a database."""
    found = {}
    for folder in sorted(_MIGRATIONS.glob("[0-9]*")):
        whole = hashlib.sha256()
        for file in sorted(folder.glob("*.sql")):
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
        found[folder.name] = whole.hexdigest()
    return found


def is_of_this_build(builds: Mapping[str, str]) -> bool:
    """Whether every revision that the rows of `remit.builds` name was made by the files that are here."""
    known = digests()
    return bool(builds) and all(known.get(revision) == digest for revision, digest in builds.items())


def _migrate(owner_url: str, tenant: str, environment: str, zone: str | None) -> str:
    from langgraph.checkpoint.postgres import PostgresSaver

    with psycopg.connect(owner_url, autocommit=True, row_factory=dict_row) as guard:
        _check_zone(guard, zone)
        _wait_for_lock(guard)
        guard.execute("CREATE SCHEMA IF NOT EXISTS remit")
        _ensure_app_role(guard)
        _refuse_other_build(guard)
        _run_alembic(owner_url)
        # LangGraph's saver names its tables without a schema, also behind a pooler that drops start-up options.
        guard.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = remit, public").format(
                sql.Identifier(guard.info.dbname)
            )
        )
        with psycopg.connect(
            owner_url,
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            options="-c search_path=remit",
        ) as own:
            PostgresSaver(own).setup()
            own.execute(_APP_MAY)
        return _installation(guard, tenant, environment, zone)


def _wait_for_lock(guard: psycopg.Connection[dict[str, object]]) -> None:
    """Asks again and again: a statement that waits holds a snapshot, and LangGraph's CREATE INDEX CONCURRENTLY in the
    process that migrates would wait for it for ever."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while guard.execute("SELECT pg_try_advisory_lock(%s) AS mine", [_LOCK]).fetchone() != {"mine": True}:
        if time.monotonic() > deadline:
            raise Misconfigured(
                f"Another process has been migrating this database for {_LOCK_SECONDS:.0f} seconds. "
                "End it and start again.",
                code="migration_locked",
            )
        time.sleep(0.05)


def _ensure_app_role(guard: psycopg.Connection[dict[str, object]]) -> None:
    if guard.execute("SELECT FROM pg_roles WHERE rolname = 'remit_app'").fetchone() is None:
        guard.execute("CREATE ROLE remit_app NOLOGIN")


def _refuse_other_build(guard: psycopg.Connection[dict[str, object]]) -> None:
    if guard.execute("SELECT to_regclass('remit.installation') AS made").fetchone() == {"made": None}:
        return
    try:
        rows = guard.execute("SELECT revision, digest FROM remit.builds").fetchall()
    except psycopg.errors.UndefinedTable:
        rows = []
    if not is_of_this_build({str(row["revision"]): str(row["digest"]) for row in rows}):
        raise Misconfigured(OTHER_BUILD, code="other_build")


def _run_alembic(owner_url: str) -> None:
    # Slow to import, and only needed by whoever migrates.
    import sqlalchemy
    from alembic import command
    from alembic.config import Config

    def connect() -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(owner_url, options="-c search_path=remit")

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.NullPool)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


def _check_zone(guard: psycopg.Connection[dict[str, object]], zone: str | None) -> None:
    """Before anything is made: Postgres takes other words for a zone too, and counts something else by them."""
    if (
        zone is not None
        and not guard.execute("SELECT name FROM pg_timezone_names WHERE name = %s", [zone]).fetchone()
    ):
        raise Misconfigured(
            f"Postgres knows no time zone {zone!r}. Set REMIT_ZONE to an IANA name such as Europe/Berlin.",
            code="zone",
        )


def _installation(
    guard: psycopg.Connection[dict[str, object]], tenant: str, environment: str, zone: str | None
) -> str:
    guard.execute(
        "INSERT INTO remit.installation (id, tenant, environment, zone, system_identifier, timeline)"
        " SELECT %s, %s, %s, %s, system_identifier, timeline FROM remit.server_identity() ON CONFLICT DO NOTHING",
        ["remit-" + secrets.token_hex(3), tenant, environment, zone or "UTC"],
    )
    row = guard.execute("SELECT id, tenant, environment, zone FROM remit.installation").fetchone()
    if row is None or (row["tenant"], row["environment"]) != (tenant, environment):
        raise Misconfigured(
            f"This database belongs to {row and (row['tenant'], row['environment'])}, not to {(tenant, environment)}. "
            "Point REMIT_DATABASE_URL at the database of this tenant and environment.",
            code="wrong_database",
        )
    if zone is not None and row["zone"] != zone:
        raise Misconfigured(
            f"This database counts its days in {row['zone']}, not in {zone}, since it was made. "
            f"Set REMIT_ZONE to {row['zone']}.",
            code="zone",
        )
    return str(row["id"])
