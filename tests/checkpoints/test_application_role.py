"""The role of the agent's processes, by plain SQL: it reads, calls functions, and says nothing in anybody's name."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import psycopg
import pytest
from psycopg import sql

from remit.checkpoints.embedded_access import Urls
from tests.fixtures import ASK_FINANCE, HOUR, Bench, Tokens

OWN = "customer:c-104"
LANGGRAPHS = {"checkpoints", "checkpoint_blobs", "checkpoint_writes"}
"""The only tables that this role writes; a trigger keeps stale runners out of them."""

SAID = (
    "tokens",
    "mandates",
    "mandate_subjects",
    "orders",
    "votes",
    "edits",
    "hold_changes",
    "runs",
    "refused_looks",
)
"""Where what people say is kept: each row of these is in somebody's name."""


async def as_owner(urls: Urls, query: str) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        cursor = await owner.execute(query.encode())
        return await cursor.fetchall()


async def refused(urls: Urls, statement: sql.Composed) -> bool:
    """Whether the role may not even try this. What it may try is rolled back."""
    async with await psycopg.AsyncConnection.connect(urls.app_url) as application:
        try:
            await application.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return True
        except psycopg.Error:
            return False
        await application.rollback()
    return False


def writes(schema: str, table: str, column: str) -> dict[str, sql.Composed]:
    """Every way to change one table."""
    named = {"table": sql.Identifier(schema, table), "column": sql.Identifier(column)}
    return {
        "INSERT": sql.SQL("INSERT INTO {table} DEFAULT VALUES").format(**named),
        "UPDATE": sql.SQL("UPDATE {table} SET {column} = {column}").format(**named),
        "DELETE": sql.SQL("DELETE FROM {table}").format(**named),
        "TRUNCATE": sql.SQL("TRUNCATE {table}").format(**named),
    }


async def test_no_table_of_the_ledger_can_be_written_by_the_application(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """I9, I10: of every table that there is, each way to change it is tried as that role, with the SQL itself."""
    tables = await as_owner(
        ledger_database,
        "SELECT t.table_schema, t.table_name, min(c.column_name) FROM information_schema.tables t"
        " JOIN information_schema.columns c USING (table_schema, table_name)"
        " WHERE t.table_schema NOT IN ('pg_catalog', 'information_schema') AND t.table_type = 'BASE TABLE'"
        " GROUP BY 1, 2",
    )
    assert {"tokens", "mandates", "votes", "approval_items", "orders", "journal", *LANGGRAPHS} <= {
        name for _, name, _ in tables
    }
    for schema, table, column in tables:
        for kind, statement in writes(schema, table, column).items():
            allowed = table in LANGGRAPHS and kind in ("INSERT", "UPDATE")
            assert await refused(ledger_database, statement) is not allowed, (table, kind)


OUT_OF_REACH = (
    "CREATE TABLE remit.mine (id integer)",
    "CREATE FUNCTION remit.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE remit.journal DISABLE TRIGGER journal_append_only",
    "DROP TRIGGER journal_append_only ON remit.journal",
    "ALTER TABLE remit.tokens OWNER TO remit_app",
    "SET session_replication_role = 'replica'",
    "SELECT secret_hash FROM remit.tokens",
    "SELECT * FROM remit.tokens",
    "SELECT to_jsonb(t) FROM remit.tokens t",
    "COPY remit.tokens TO STDOUT",
    "SELECT remit.token_behind('rmt_x')",
    "SELECT remit.token_of('rmt_x')",
    "SELECT remit.place_order('finance-lead', 'freeze', 'all', '', 'x')",
)


@pytest.mark.parametrize("statement", OUT_OF_REACH)
async def test_neither_schema_nor_triggers_nor_hashes_are_within_its_reach(
    bench: Bench, tokens: Tokens, ledger_database: Urls, statement: str
) -> None:
    """It makes nothing, switches nothing off, gives itself nothing, and reads no hash of a secret in any form."""
    assert await refused(ledger_database, sql.SQL("{}").format(sql.SQL(statement)))


async def counted(bench: Bench) -> dict[str, int]:
    """How many rows there are in anybody's name."""
    found = {}
    for table in SAID:
        (row,) = await bench.sql(f"SELECT count(*) AS rows FROM remit.{table}")  # noqa: S608 - of this file
        found[table] = row["rows"]
    return found


async def reachable(bench: Bench) -> list[dict[str, Any]]:
    """Every function that the role may call, with its arguments."""
    return await bench.sql(
        "SELECT p.oid, p.proname AS name, p.proargnames AS names, p.pronargs AS count,"
        " pg_get_function_identity_arguments(p.oid) AS arguments, oidvectortypes(p.proargtypes) AS types"
        " FROM pg_proc p WHERE p.pronamespace = 'remit'::regnamespace AND p.prokind = 'f'"
        " AND p.prorettype <> 'trigger'::regtype AND has_function_privilege('remit_app', p.oid, 'EXECUTE') ORDER BY 2"
    )


def secret_of(function: dict[str, Any]) -> str | None:
    """The argument that carries a secret."""
    names = (function["names"] or [])[: function["count"]]
    return next((name for name in names if name in ("p_secret", "p_minter")), None)


async def test_what_can_be_called_without_a_secret_says_nothing_in_anybodys_name(
    bench: Bench, ledger_database: Urls
) -> None:
    """Through however many steps, no function without a secret adds a token, mandate, order, voice, edit or run."""
    rows = await as_owner(
        ledger_database, "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'remit'::regnamespace"
    )
    bodies: dict[str, str] = dict(rows)
    saying = re.compile(rf"INSERT INTO (?:remit\.)?({'|'.join(SAID)})\b", re.IGNORECASE)

    def added(name: str, seen: set[str]) -> set[str]:
        seen.add(name)
        found = set(saying.findall(bodies[name]))
        called = set(re.findall(r"\b(\w+)\s*\(", bodies[name])) & bodies.keys() - seen
        return found.union(*(added(one, seen) for one in called)) if called else found

    functions = await reachable(bench)
    without = {f["name"]: added(f["name"], set()) for f in functions if secret_of(f) is None}
    # A database that notices its own restoration stops everything, in its own name; nothing else is said by it.
    assert (
        re.findall(
            r"place_restore\([^,]+,\s*'(\w+)'", bodies["watch_restore"] + bodies["notice_other_server"]
        )
        == ["database"] * 2
    )
    by_itself = {"claim": {"orders"}, "watch_restore": {"orders"}}
    assert {name: tables for name, tables in without.items() if tables} == by_itself
    with_one = set().union(*(added(f["name"], set()) for f in functions if secret_of(f)))
    assert with_one == set(SAID), "the search itself finds each of them where a secret is asked for"


GIVEN: dict[str | None, object] = {
    "p_approval": "ap-abcdef",
    "p_decision": "granted",
    "p_scope": "all",
    "p_value": "",
    "p_reason": "x",
    "p_id": "1",
    "p_person": "x",
    "p_role": "administrator",
    "p_seconds": 60.0,
    "p_by": 60.0,
    "p_secret_hash": b"x" * 32,
    "p_run": "run-bbbbbb",
    "p_kind": "run",
    "p_names": ["run-bbbbbb"],
    "p_named": True,
}
"""What is said with it; what is not named here is NULL."""


async def test_every_function_that_takes_a_secret_refuses_one_that_nobody_has(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Each of them, with a made-up secret and with none: refused, and nothing is added in anybody's name."""
    lease = await bench.run_over(tokens, [OWN])
    await bench.propose(lease, "credit", [OWN], verdict="needs_approval", obligations=ASK_FINANCE)
    await bench.database.rows("ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef")
    before = await counted(bench)
    asked = [function for function in await reachable(bench) if secret_of(function)]
    assert len(asked) >= 15
    for function in asked:
        for secret in ("rmt_" + "A" * 43, None):
            if function["name"] == "may_see" and secret is None:
                continue  # It only looks, and in a sandbox anybody does.
            given = GIVEN | {secret_of(function): secret}
            names = function["names"][: function["count"]]
            said = [
                f"{name} => %s::{kind}"
                for name, kind in zip(names, function["types"].split(", "), strict=True)
            ]
            statement = f"SELECT * FROM remit.{function['name']}({', '.join(said)})"  # noqa: S608 - names of the catalogue
            try:
                rows = await bench.sql(statement, *(given.get(name) for name in names))
            except psycopg.Error as error:
                code = error.sqlstate
            else:
                code = next(iter({*map(str, rows[0].values())} & {"token_unknown"}), None) if rows else None
            assert code in ("RM010", "token_unknown"), (function["name"], secret, code)
    assert await counted(bench) == before


async def test_tokens_are_journaled_without_their_secrets(bench: Bench) -> None:
    """The one bootstrap token, those minted with it and a revocation are in the journal, by whom, and no secret."""
    id_, administrator, _ = await bench.people.mint(None, "administrator", "administrator", HOUR)
    other, secret, _ = await bench.people.mint(administrator, "finance-lead", "finance_lead", HOUR)
    await bench.people.revoke_token(administrator, other)
    rows = await bench.sql(
        "SELECT kind, data, data::text AS text FROM remit.journal WHERE kind LIKE 'tokens.%%' ORDER BY id"
    )
    assert [(row["kind"], row["data"]["id"], row["data"]["minted_by"]) for row in rows] == [
        ("tokens.added", id_, "bootstrap"),
        ("tokens.added", other, "administrator"),
        ("tokens.changed", other, "administrator"),
    ]
    assert rows[2]["data"]["revoked_at"] is not None
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (administrator, secret)]
    for row in rows:
        assert not any(text in row["text"] for text in (administrator, secret, *hashes))
