"""Which database this installation uses, and whether it may be used as it is.

In the sandbox the embedded Postgres is started on demand. Keeps F33: migrations run in `remit db up` under their
lock, and every other command only looks whether they have run.
"""

from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from pydantic import SecretStr

from remit.checkpoints import embedded
from remit.checkpoints.embedded_access import Urls
from remit.checkpoints.migrate import OTHER_BUILD, is_of_this_build
from remit.checkpoints.migrate import migrate as bring_up
from remit.console.settings import Settings
from remit.tools.errors import Misconfigured

_CONNECT_SECONDS = 10


async def urls(settings: Settings) -> Urls:
    """The database as its owner's and as the application's role; starts the embedded one where it is used."""
    if settings.database_url is not None:
        return Urls(
            owner_url=_address("REMIT_OWNER_URL", settings.owner_url),
            app_url=_address("REMIT_DATABASE_URL", settings.database_url),
        )
    state = await embedded.status(settings.home)
    return state.urls or await embedded.up(settings.home, environment=settings.environment)


def _address(name: str, given: SecretStr | None) -> str:
    url = given.get_secret_value() if given is not None else ""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Not chained: libpq repeats the value, which may hold a password.
        raise Misconfigured(
            f"{name} has a value that cannot be used. Give an address such as postgresql://USER@HOST:PORT/NAME.",
            code="setting",
        ) from None
    return url


async def migrate(settings: Settings) -> str:
    """Bring the database to this version; returns the installation's id."""
    known = await urls(settings)
    if not known.owner_url:
        raise Misconfigured(
            "REMIT_OWNER_URL is not set, and only the database's owner changes its tables. Set it for this command.",
            code="setting",
        )
    return await bring_up(
        known.owner_url, tenant=settings.tenant, environment=settings.environment, zone=settings.zone
    )


async def check(app_url: str, settings: Settings) -> None:
    """One query on a connection of its own, before anything else is opened.

    Raises Misconfigured when the database does not answer, or has no tables, those of another version or build, or
    those of another installation.
    """
    try:
        async with await psycopg.AsyncConnection.connect(
            app_url, autocommit=True, row_factory=dict_row, connect_timeout=_CONNECT_SECONDS
        ) as connection:
            row = await _installation(connection)
    except psycopg.OperationalError as error:
        raise Misconfigured(
            "The database does not answer. Start it with `remit db up`, or correct REMIT_DATABASE_URL.",
            code="no_database",
        ) from error
    if row is None or row["version"] != newest_version():
        raise Misconfigured(
            "The database has no tables of this version of Remit yet. Run `remit db up`.", code="not_migrated"
        )
    if not is_of_this_build(row["builds"] or {}):
        raise Misconfigured(OTHER_BUILD, code="other_build")
    if (row["tenant"], row["environment"]) != (settings.tenant, settings.environment):
        raise Misconfigured(
            f"This database belongs to tenant {row['tenant']} in {row['environment']}, and the settings say "
            f"{settings.tenant} in {settings.environment}. "
            "Correct REMIT_TENANT, REMIT_ENVIRONMENT or REMIT_DATABASE_URL.",
            code="other_installation",
        )
    if settings.zone not in (None, row["zone"]):
        raise Misconfigured(
            f"This database counts its days in {row['zone']}, and REMIT_ZONE is {settings.zone}. "
            f"Set REMIT_ZONE to {row['zone']}, or leave it out.",
            code="other_installation",
        )


async def _installation(connection: psycopg.AsyncConnection[DictRow]) -> DictRow | None:
    try:
        cursor = await connection.execute(
            "SELECT tenant, environment, zone, (SELECT max(version_num) FROM remit.migrations) AS version,"
            " to_regclass('remit.builds') AS builds FROM remit.installation"
        )
        row = await cursor.fetchone()
        if row is not None and row["builds"] is not None:
            cursor = await connection.execute("SELECT revision, digest FROM remit.builds")
            row["builds"] = {build["revision"]: build["digest"] for build in await cursor.fetchall()}
        return row
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.InvalidSchemaName,
        psycopg.errors.InsufficientPrivilege,
    ):
        return None


def newest_version() -> str:
    """The newest migration's number: its file's name begins with it."""
    folder = Path(embedded.__file__).parent / "migrations" / "versions"
    return max(file.name.partition("_")[0] for file in folder.glob("[0-9]*_*.py"))
