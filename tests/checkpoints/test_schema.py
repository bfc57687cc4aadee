"""The database's own guarantees: migrations, the transition table, the journal, what the application's role may do."""

from __future__ import annotations

import asyncio
import re
import sys
from itertools import product
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from remit.checkpoints import migrate
from remit.checkpoints.database import queries
from remit.checkpoints.embedded_access import Urls
from remit.tools.errors import Misconfigured
from remit.tools.states import Closed, State
from tests.fixtures import Bench, Tokens

OWN = "customer:c-104"


async def owner_of(urls: Urls) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True)


async def test_migrations_are_idempotent_and_keep_the_installation(empty_database: Urls) -> None:
    """Migrating again changes nothing, not even the installation's id."""
    first = await migrate(empty_database.owner_url, tenant="t", environment="sandbox")
    assert await migrate(empty_database.owner_url, tenant="t", environment="sandbox") == first


STARTING = """
import asyncio, sys
from pathlib import Path
from remit.checkpoints import Database, Worker, migrate, open_pool

async def start(owner_url, app_url, home):
    installation = await migrate(owner_url, tenant="t", environment="sandbox")
    async with open_pool(app_url) as pool:
        worker = await Worker.begin(Database(pool), Path(home))
        await Database(pool).rows("tidy")
        await worker.end(Database(pool))
    print(installation)

asyncio.run(start(*sys.argv[1:]))
"""
"""What a worker does first, in a process of its own: owner's address, application's address, home."""


async def test_six_workers_that_start_at_once_migrate_an_empty_database(
    empty_database: Urls, tmp_path: Path
) -> None:
    """F33: six workers that start at once on an empty database all come up and sweep, over one installation."""
    urls = (empty_database.owner_url, empty_database.app_url, str(tmp_path))

    async def one() -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STARTING, *urls, stdout=asyncio.subprocess.PIPE
        )
        # As long as a process waits for the one that migrates: six that start at once keep a small machine busy.
        said, _ = await asyncio.wait_for(process.communicate(), 180)
        return process.returncode or 0, said.decode()

    ended = await asyncio.gather(*(one() for _ in range(6)))
    assert [code for code, _ in ended] == [0] * 6
    assert len({said for _, said in ended}) == 1


async def test_a_database_of_another_tenant_or_environment_is_refused(empty_database: Urls) -> None:
    """One database is one tenant and one environment; the refusal says where to point instead."""
    await migrate(empty_database.owner_url, tenant="t", environment="sandbox")
    for tenant, environment in (("other", "sandbox"), ("t", "production")):
        with pytest.raises(Misconfigured, match="REMIT_DATABASE_URL"):
            await migrate(empty_database.owner_url, tenant=tenant, environment=environment)


async def test_the_zone_is_set_once_and_by_a_name_that_postgres_knows(empty_database: Urls) -> None:
    """Days are counted in the zone that the database was made with; another one, or a made-up one, is refused."""
    made = {"tenant": "t", "environment": "sandbox"}
    for zone in ("Mars/Olympus", "FOO+5"):
        with pytest.raises(Misconfigured, match="Set REMIT_ZONE to an IANA name"):
            await migrate(empty_database.owner_url, **made, zone=zone)
    first = await migrate(empty_database.owner_url, **made, zone="Europe/Berlin")
    assert await migrate(empty_database.owner_url, **made) == first
    with pytest.raises(Misconfigured, match="counts its days in Europe/Berlin, not in UTC"):
        await migrate(empty_database.owner_url, **made, zone="UTC")


OTHER_BUILDS = (
    "UPDATE remit.builds SET digest = 'of other files'",
    "UPDATE remit.builds SET revision = '9999'",
    "DELETE FROM remit.builds",
    "DROP TABLE remit.builds",
)


@pytest.mark.parametrize("change", OTHER_BUILDS)
async def test_a_database_that_another_build_made_is_refused_before_anything_is_changed(
    empty_database: Urls, change: str
) -> None:
    """Its tables are not what this build's functions expect; the error says what that is and what to do."""
    await migrate(empty_database.owner_url, tenant="t", environment="sandbox")
    async with await owner_of(empty_database) as owner:
        await owner.execute(change.encode())
    with pytest.raises(Misconfigured, match=r"another build.*remit sandbox reset --ledger"):
        await migrate(empty_database.owner_url, tenant="t", environment="sandbox")


async def one_operation(bench: Bench, tokens: Tokens) -> int:
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    return id_


def _set(state: State, closed: Closed | None) -> sql.Composed:
    """A change to a state with the columns that belong to it, and the version that it needs."""
    return sql.SQL(
        "UPDATE remit.operations SET state = {state}, closed = {closed}, doubt = {doubt}, version = version + 1"
        " WHERE id = %s"
    ).format(
        state=sql.Literal(state.value),
        closed=sql.Literal(None if closed is None else closed.value),
        doubt=sql.Literal(state is State.UNKNOWN),
    )


PATHS: dict[State, list[tuple[State, Closed | None]]] = {
    State.PENDING: [],
    State.SENDING: [(State.SENDING, None)],
    State.UNKNOWN: [(State.SENDING, None), (State.UNKNOWN, None)],
    State.ACCEPTED: [(State.SENDING, None), (State.ACCEPTED, None)],
    State.SETTLED: [(State.SENDING, None), (State.SETTLED, None)],
    State.CLOSED: [(State.CLOSED, Closed.CANCELLED)],
}
"""How to bring a pending operation into each state."""

ALLOWED = {
    (State.PENDING, State.SENDING, None),
    *((State.PENDING, State.CLOSED, c) for c in list(Closed)[:6]),
    *((State.SENDING, s, None) for s in (State.SETTLED, State.ACCEPTED, State.UNKNOWN, State.PENDING)),
    *((State.SENDING, State.CLOSED, c) for c in (Closed.REFUSED, Closed.STALE)),
    *((State.UNKNOWN, s, None) for s in (State.SENDING, State.ACCEPTED, State.SETTLED, State.PENDING)),
    *((State.UNKNOWN, State.CLOSED, c) for c in (Closed.REFUSED, Closed.WITHDRAWN, Closed.BY_PERSON)),
    *((State.ACCEPTED, s, None) for s in (State.SETTLED, State.UNKNOWN)),
    *((State.ACCEPTED, State.CLOSED, c) for c in (Closed.WITHDRAWN, Closed.REFUSED)),
}
"""The transition table of DESIGN section 6, written a second time."""


async def test_every_way_that_the_table_does_not_name_is_refused(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Of all pairs of states and all reasons for closing, the database allows those of DESIGN section 6 alone."""
    id_ = await one_operation(bench, tokens)
    ends = [(s, None) for s in State if s is not State.CLOSED] + [(State.CLOSED, c) for c in Closed]
    async with await owner_of(ledger_database) as owner:
        for start, (end, closed) in product(State, ends):
            if start is end:
                continue
            try:
                async with owner.transaction(force_rollback=True):
                    for step in PATHS[start]:
                        await owner.execute(_set(*step), [id_])
                    await owner.execute(_set(end, closed), [id_])
                refused = None
            except psycopg.DatabaseError as error:
                refused = error.sqlstate
            expected = None if (start, end, closed) in ALLOWED else "RM001"
            assert refused == expected, (start, end, closed)


CHANGES = (
    "state = 'SENDING'",
    "state = 'SENDING', version = version + 2",
    "verdict = 'deny'",
    "hold_until = now()",
    "amount_minor = 9999, version = version + 1",
    "tool = 'issue_credit_legacy', version = version + 1",
    "request = '{}', version = version + 1",
    "intent = '{}', version = version + 1",
    "action_hash = 'v1:0', version = version + 1",
    "subject = 'customer:c-205', version = version + 1",
    "receivers = '{mail}', version = version + 1",
    "requires = '{x}', version = version + 1",
    "run_id = 'run-000000', version = version + 1",
    "state = 'CLOSED', closed = 'cancelled', doubt = true, version = version + 1",
)
"""Each of them without the version that it needs, or of something that is fixed."""


async def test_a_change_without_version_or_of_what_would_be_sent_is_refused(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Each change raises the version by one, and what would be sent is fixed when it is proposed."""
    id_ = await one_operation(bench, tokens)
    async with await owner_of(ledger_database) as owner:
        for change in CHANGES:
            statement = f"UPDATE remit.operations SET {change} WHERE id = %s"  # noqa: S608 - of this file
            with pytest.raises(psycopg.DatabaseError) as refused:
                await owner.execute(statement.encode(), [id_])
            assert refused.value.sqlstate == "RM001", change


async def test_to_look_at_an_operation_is_no_change_of_it(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """When and how often to look leaves version and journal alone, so that progress is not mistaken for looking."""
    id_ = await one_operation(bench, tokens)
    before = await bench.sql("SELECT count(*) AS rows FROM remit.journal")
    async with await owner_of(ledger_database) as owner:
        await owner.execute(
            "UPDATE remit.operations SET due_at = now(), checks = checks + 1 WHERE id = %s", [id_]
        )
    assert (await bench.operation(id_))["version"] == 1
    assert await bench.sql("SELECT count(*) AS rows FROM remit.journal") == before


async def test_what_is_settled_or_closed_never_changes_again(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """SETTLED and CLOSED are final: not even their other columns change."""
    id_ = await one_operation(bench, tokens)
    async with await owner_of(ledger_database) as owner:
        for end in (State.SETTLED, State.CLOSED):
            async with owner.transaction(force_rollback=True):
                for step in PATHS[end]:
                    await owner.execute(_set(*step), [id_])
                with pytest.raises(psycopg.DatabaseError, match="is final"):
                    await owner.execute("UPDATE remit.operations SET attempts = 7, version = version + 1")


async def test_the_journal_is_append_only_and_names_every_change(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """I9: each version of an operation has its row in the journal, and nobody changes or removes one."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await bench.settled(lease, [id_])
    rows = await bench.sql("SELECT kind, data FROM remit.journal WHERE operation_id = %s ORDER BY id", id_)
    versions = [row["data"]["version"] for row in rows if row["kind"].startswith("operation.")]
    assert versions == list(range(1, (await bench.operation(id_))["version"] + 1))
    kinds = {row["kind"] for row in rows}
    assert {
        "operation.proposed",
        "operation.sending",
        "operation.settled",
        "attempts.added",
        "evidence.added",
    } <= kinds
    async with await owner_of(ledger_database) as owner:
        for statement in (
            b"UPDATE remit.journal SET kind = 'x'",
            b"DELETE FROM remit.journal",
            b"TRUNCATE remit.journal",
        ):
            with pytest.raises(psycopg.DatabaseError, match="append-only"):
                await owner.execute(statement)


async def test_no_secret_reaches_the_journal(bench: Bench, tokens: Tokens) -> None:
    """The rows of tokens are journaled without the hash of the secret."""
    rows = await bench.sql("SELECT data FROM remit.journal WHERE kind LIKE 'tokens.%%'")
    assert len(rows) == 3
    assert not any("secret_hash" in row["data"] for row in rows)


LANGGRAPHS = {"checkpoints", "checkpoint_blobs", "checkpoint_writes"}


async def test_the_application_writes_no_table_but_langgraphs(bench: Bench) -> None:
    """I9, I10: the role of the agent's processes may insert into and update LangGraph's three tables and no other."""
    rows = await bench.sql(
        "SELECT c.relname AS name, p.privilege"
        " FROM pg_class c, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p (privilege)"
        " WHERE c.relnamespace = 'remit'::regnamespace AND c.relkind IN ('r', 'v')"
        " AND has_table_privilege('remit_app', c.oid, p.privilege)"
    )
    assert {(row["name"], row["privilege"]) for row in rows} == set(product(LANGGRAPHS, ("INSERT", "UPDATE")))


async def test_the_application_cannot_read_the_hash_of_a_secret(bench: Bench, tokens: Tokens) -> None:
    """Who a token belongs to may be read, the hash of its secret may not."""
    assert len(await bench.sql("SELECT person FROM remit.tokens")) == 3
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await bench.sql("SELECT secret_hash FROM remit.tokens")


_CALL = re.compile(r"\bremit\.(\w+)\(|\b(obstacle)\(")
"""A call in a query or in a body that runs with the caller's rights; views drop the schema's name."""


def needed(functions: dict[str, tuple[bool, str]], views: str) -> set[str]:
    """What queries and views call, and what these functions call in turn where they run as their caller."""
    found: set[str] = set()
    texts = ["\n".join(queries().values()), views]
    while texts:
        names = {a or b for a, b in _CALL.findall(texts.pop())} & functions.keys() - found
        found |= names
        texts += [body for definer, body in (functions[name] for name in names) if not definer]
    return found


async def test_the_application_calls_what_its_queries_name_and_no_internal_function(bench: Bench) -> None:
    """Whatever is not named by a query, or by a view that queries read, is out of the application's reach."""
    rows = await bench.sql(
        "SELECT p.proname AS name, has_function_privilege('remit_app', p.oid, 'EXECUTE') AS may,"
        " p.prosecdef AS definer, p.proconfig AS settings, p.prosrc AS body"
        " FROM pg_proc p WHERE p.pronamespace = 'remit'::regnamespace"
    )
    views = await bench.sql(
        "SELECT string_agg(definition, ' ') AS text FROM pg_views WHERE schemaname = 'remit'"
    )
    functions = {row["name"]: (row["definer"], row["body"]) for row in rows}
    assert {row["name"] for row in rows if row["may"]} == needed(functions, views[0]["text"])
    assert {"apply", "open_case", "settle_votes", "reserve", "token_of", "token_behind"} <= {
        row["name"] for row in rows if not row["may"]
    }
    fixed = ["search_path=remit, pg_temp"]
    assert not [row["name"] for row in rows if row["definer"] and row["settings"] != fixed]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await bench.sql("SELECT remit.close_orphans()")


async def test_an_operation_begins_pending_or_denied_and_under_its_own_key(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """No operation is born sent, and its key is made of its own purpose, step and subject."""
    id_ = await one_operation(bench, tokens)
    copy = (
        "INSERT INTO remit.operations (key, revision, purpose, step, subject, effect, tool, tool_version, receivers,"
        " run_id, plan, mandate_hash, agent, agent_version, intent, intent_hash, request, relied_on, action_hash,"
        " snapshot, requires, reversibility, consequence, state)"
        " SELECT {key}, 2, purpose, step, subject, effect, tool, tool_version, receivers, run_id,"
        " plan, mandate_hash, agent, agent_version, intent, intent_hash, request, relied_on, action_hash, snapshot,"
        " requires, reversibility, consequence, {state} FROM remit.operations WHERE id = %s"
    )
    async with await owner_of(ledger_database) as owner:
        with pytest.raises(psycopg.DatabaseError, match="begins PENDING"):
            await owner.execute(copy.format(key="key", state="'SETTLED'").encode(), [id_])
        with pytest.raises(psycopg.errors.CheckViolation):
            await owner.execute(copy.format(key="'another/key'", state="'PENDING'").encode(), [id_])
