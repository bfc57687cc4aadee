"""`remit show`: the trace of a run or of one operation, from intent to business outcome, in the journal's order."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from remit.checkpoints.database import Database, Row
from remit.console import carrying, holds, inbox, verdicts, viewing
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import many, moment, money, quoted
from remit.console.screen import closed_doors, door_line, heading, listing, say, table
from remit.console.services import opened
from remit.tools.errors import Refused

_MOST = 10_000


def show(
    which: Annotated[str, typer.Argument(metavar="RUN|OPERATION|KEY")],
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """The trace: plans, verdicts, approvals, attempts, evidence, and the journal in order."""
    go(_show(which, token, as_json))


async def _show(which: str, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        viewer = await viewing.viewer(services, token)
        if which.startswith("run-"):
            found = [await _run(database, await viewer.run(which))]
            tell = _tell_run
        else:
            rows = await viewer.named("run", await database.rows("operation", which=which), "run_id")
            found = [await of_operation(database, row) for row in rows]
            tell = tell_operation
        if not found:
            raise Refused(
                f"There is no run, operation or key {quoted(which)}. See `remit runs`, or `remit status PURPOSE`.",
                code="nothing",
            )
        if await listing(database, "traces", found, as_json=as_json):
            for trace in found:
                tell(trace)


async def _run(database: Database, row: Row) -> dict[str, Any]:
    run_id = row["id"]
    plans = await database.rows("plans", run=run_id)
    outcomes = {
        plan["number"]: await database.rows("proposal_outcomes", run=run_id, plan=plan["number"])
        for plan in plans
    }
    keys = (
        "id",
        "purpose",
        "mandate_hash",
        "owner",
        "requester",
        "agent",
        "agent_version",
        "status",
        "reason",
        "waits",
    )
    return {
        "run": {
            key: row[key] for key in (*keys, "grantor", "created_at", "ended_at", "tokens_used", "order_id")
        },
        "counts": await carrying.counts(database, row),
        "verdicts": await verdicts.of_run(database, run_id),
        "gates": await database.rows("gate_details", run=run_id),
        "threads": await database.rows("threads", run=run_id),
        "plans": [_plan(plan, outcomes[plan["number"]]) for plan in plans],
        "statements": await database.rows("statements", runs=[run_id]),
        "cases": await database.rows("cases", run=run_id),
        "journal": await database.rows("journal", run=run_id, operation=None, limit=_MOST),
    }


def _plan(plan: Row, outcomes: Sequence[Row]) -> dict[str, Any]:
    return {
        "number": plan["number"],
        "content": plan["content"],
        "calls": plan["calls"],
        "tokens": plan["tokens"],
        "created_at": plan["created_at"],
        "outcomes": outcomes,
    }


async def of_operation(database: Database, row: Row) -> dict[str, Any]:
    """The trace of one operation, `row` being its row of `remit.standing`."""
    keys = (
        *(
            "id",
            "key",
            "revision",
            "purpose",
            "step",
            "subject",
            "effect",
            "tool",
            "run_id",
            "plan",
            "mandate_hash",
        ),
        *(
            "agent_version",
            "intent",
            "request",
            "relied_on",
            "action_hash",
            "amount_minor",
            "currency",
            "verdict",
        ),
        *("reasons", "obligations", "policy_engine", "policy_revision", "decision_id", "state", "closed"),
        *("closed_detail", "obstacle", "hold_until", "created_at", "changed_at"),
    )
    return {
        "operation": {**{key: row[key] for key in keys}, "fact": row["shown_fact"]},
        "gates": await database.rows("gates", id=row["id"]),
        "closed": [door for door in await closed_doors(database) if door["name"] in row["receivers"]],
        "approvals": await database.rows("operation_approvals", id=row["id"]),
        "attempts": await database.rows("attempts", id=row["id"]),
        "evidence": await database.rows("evidence", id=row["id"]),
        "hold_changes": await database.rows("hold_changes", id=row["id"]),
        "conflicts": await database.rows("operation_conflicts", id=row["id"]),
        "journal": await database.rows("journal", run=None, operation=row["id"], limit=_MOST),
    }


def _tell_run(trace: dict[str, Any]) -> None:
    run = trace["run"]
    heading(f"{run['id']} for {run['purpose']}: {run['status']}. {run['reason']}")
    say(f"  owner {run['owner']}, mandate {run['mandate_hash'][:15]} granted by {run['grantor']}")
    say(f"  agent {run['agent']}, version {run['agent_version']}")
    say(f"  {trace['counts']}")
    say(*(f"  {line}" for line in verdicts.sentences(trace["verdicts"])))
    for gate in trace["gates"]:
        waiting = f"{many(gate['count'], 'action')} behind {gate['kind']}"
        say(f"  {waiting}: {gate['detail']}{carrying.until(gate)}")
    for thread in trace["threads"]:
        say(f"  thread {thread['thread_id']}: {thread['state']} {thread['why']}".rstrip())
    for plan in trace["plans"]:
        say(
            f"Plan {plan['number']} ({moment(plan['created_at'])}, {plan['tokens']} tokens): {quoted(plan['content'])}"
        )
        for call in plan["calls"]:
            say(f"  {call['name']} {quoted(call['arguments'])}")
        for row in plan["outcomes"]:
            say(f"    {_outcome(row)}")
    for row in trace["statements"]:
        say(f"The agent states: {quoted(row['text'])}")
    _tell_cases(trace["cases"])
    _tell_journal(trace["journal"])


def _outcome(row: Row) -> str:
    how = " ".join(str(row[name]) for name in ("outcome", "verdict", "state", "closed", "code") if row[name])
    why = f": {inbox.reasons(row['reasons'])}" if row["reasons"] else ""
    return f"call {row['call']} {row['tool']}: {row['count']} x {how}{why} (such as {row['example']})"


def _tell_cases(cases: Sequence[Row]) -> None:
    for case in cases:
        about = case["key"] or case["run_id"]
        say(
            f"OPEN CASE {case['id']} since {moment(case['opened_at'])}: {case['code']}: {case['detail']} ({about})",
            style="bold red",
        )
        say(f"  Next: `remit cases show {case['id']}`.")


def tell_operation(trace: dict[str, Any]) -> None:
    """Says the trace of one operation, as `of_operation` gives it."""
    op = trace["operation"]
    amount = f" {money(op['amount_minor'], op['currency'])}" if op["amount_minor"] is not None else ""
    why = (
        f" ({op['closed']}: {op['closed_detail']})"
        if op["closed"]
        else f", waiting for {op['obstacle']}"
        if op["obstacle"]
        else ""
    )
    heading(f"{op['key']} revision {op['revision']} (operation {op['id']}): {op['fact']}, {op['state']}{why}")
    say(f"  {op['effect']} by {op['tool']} for {op['subject']}{amount}, {op['run_id']} plan {op['plan']}")
    say(f"  would send: {quoted(json.dumps(op['request']), 600)}", f"  action {op['action_hash']}")
    if op["verdict"] is not None:
        say(f"  policy {op['policy_revision']}: {op['verdict']}; {inbox.reasons(op['reasons'])}")
        say(f"    in words: `remit policy explain {op['id']}`")
    else:
        say("  policy: no answer yet, which is neither an allow nor a deny")
    for row in trace["approvals"]:
        by = (
            f" by {row['person']} ({row['role']}) on {moment(row['at'])}, {quoted(row['rationale'])}"
            if row["person"]
            else ""
        )
        void = f"; void: {quoted(row['voided_why'])}" if row["voided_why"] else ""
        say(f"  approval {row['id']}: {row['decision'] or row['status']}{by}{void}")
    for door in trace["closed"]:
        say(f"  {door_line(door)}")
    for gate in trace["gates"]:
        say(f"  gate {gate['kind']}: {gate['detail']}{carrying.until(gate)}")
    for row in trace["attempts"]:
        ended = f"{row['seen']} on {moment(row['ended_at'])}" if row["ended_at"] else "no end was reported"
        say(f"  attempt {row['number']} on {moment(row['claimed_at'])} by {row['worker']}: {ended}")
        say(f"    under the key {quoted(row['wire_key'])}")
    for row in trace["evidence"]:
        as_of = row["as_of"] or "no time given"
        say(f"  evidence for attempt {row['attempt']}: {row['sight']} in {row['source']}, as of {as_of}")
    for row in trace["hold_changes"]:
        say(f"  {row['verb']} by {row['person']} on {moment(row['at'])}: {holds.sentence(row)}")
    for row in trace["conflicts"]:
        said = quoted(json.dumps(row["intent"]), 300)
        say(
            f"  CONFLICT: {row['run_id']} plan {row['plan']} wanted {said} under this key; nothing was changed."
        )
    _tell_journal(trace["journal"])


_SHOWN = (
    "from",
    "to",
    "state",
    "status",
    "closed",
    "verdict",
    "seen",
    "sight",
    "decision",
    "code",
    "reason",
    "detail",
)


def _tell_journal(rows: Sequence[Row]) -> None:
    shown = [
        (row["id"], moment(row["at"]), row["kind"], row["operation_id"], _data(row["data"])) for row in rows
    ]
    table(("journal", "at", "kind", "operation", "what"), shown)


def _data(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={quoted(str(data[name]), 80)}" for name in _SHOWN if data.get(name) not in (None, "")
    )
