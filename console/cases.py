"""`remit cases`: dead letters as objects that people work on: list, inspect, resolve with evidence, replay, close.

Keeps I6 and I1 on the screen: what is said of a case is the ledger's and the system of record's, and a replay is what
the ledger says that it would be. Nothing here sends.
"""

from typing import Annotated, Any

import typer

from remit.checkpoints.cases import MOST, Cases, Way, case_of, no_such_case, rising
from remit.checkpoints.database import Database, Row
from remit.console import identity, traces, viewing
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Because, Token
from remit.console.render import many, moment, quoted
from remit.console.screen import heading, listing, say, table
from remit.console.services import Services, opened
from remit.tools.errors import Refused

app = typer.Typer(
    help="Dead letters: what the machine may not settle by itself, and what people do about each."
)

_FACTS = {"completed": True, "no-effect": False}

_LAST = 2**63 - 1
"""The database numbers cases in 64 bits."""

_Id = Annotated[
    int, typer.Argument(metavar="CASE", help="Its number, as `remit cases` lists it.", min=1, max=_LAST)
]
_All = Annotated[bool, typer.Option("--all", help="Those that are closed as well.")]


@app.callback(invoke_without_command=True)
def _default(
    context: typer.Context, every: _All = False, token: Token = None, as_json: AsJson = False
) -> None:
    """Without a command of its own: the list."""
    if context.invoked_subcommand is None:
        go(_list(every, token, as_json))


@app.command("list")
def list_(every: _All = False, token: Token = None, as_json: AsJson = False) -> None:
    """Every open case, and counts by code, tool, effect, purpose and agent version. Exit 5 where any is open."""
    go(_list(every, token, as_json))


async def _list(every: bool, token: str | None, as_json: bool) -> int:
    async with opened() as services:
        database, viewer = await services.database(), await viewing.viewer(services, token)
        found = await database.rows("case_list", all=every, case=None, limit=MOST)
        rows = [_plain(row) for row in await viewer.listed("run", found, "run_id")]
        counts = await _counts(viewer)
        if await listing(database, "cases", rows, as_json=as_json, counts=counts, rising=rising(counts)):
            say(*rising(counts), style="bold red")
            _tell_list(rows, counts)
    return Exit.CASES if any(row["closed_at"] is None for row in rows) else Exit.DONE


async def _counts(viewer: viewing.Viewer) -> list[Row]:
    """Sums over everything name nobody's business but the purposes, of which the viewer's own are left."""
    counts = await viewer.database.rows("case_counts")
    purposes = [row for row in counts if row["part"] == "purpose"]
    return [row for row in counts if row["part"] != "purpose"] + await viewer.listed(
        "purpose", purposes, "name"
    )


async def _seen(services: Services, id_: int, token: str | None) -> Row:
    """The case, for whoever may see its run; the answer for one that there is not, for everybody else."""
    row = await case_of(await services.database(), id_)
    if not await (await viewing.viewer(services, token)).named("run", [row], "run_id"):
        raise no_such_case(id_)
    return row


_KEYS = (
    *("id", "code", "detail", "operation_id", "key", "subject", "step", "effect", "tool", "state", "closed"),
    *("fact", "purpose", "run_id", "agent", "agent_version", "attempts", "opened_at", "released_at"),
    *("closed_at", "closed_by", "resolution"),
)


def _plain(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in _KEYS}


def _tell_list(rows: list[dict[str, Any]], counts: list[Row]) -> None:
    if not rows:
        say("No case is open.")
        return
    columns = ("case", "since", "code", "about", "fact", "tool", "purpose", "version", "what stands")
    table(columns, [_line(row) for row in rows])
    for part in dict.fromkeys(row["part"] for row in counts):
        said = ", ".join(
            f"{row['open']} {row['name']}" for row in counts if row["part"] == part and row["open"]
        )
        if said:
            say(f"  open by {part.replace('_', ' ')}: {said}")
    say("Next: `remit cases show CASE`.")


def _line(row: dict[str, Any]) -> tuple[object, ...]:
    about = row["key"] or row["run_id"]
    return (
        *(row["id"], moment(row["opened_at"]), row["code"], about, row["fact"] or "", row["tool"] or ""),
        *(row["purpose"], row["agent_version"], _stands(row)),
    )


def _stands(row: dict[str, Any]) -> str:
    if row["closed_at"] is not None:
        return f"closed by {row['closed_by']}: {row['resolution']}"
    return (
        f"replayed on {moment(row['released_at'])}: {row['detail']}" if row["released_at"] else row["detail"]
    )


@app.command()
def show(case: _Id, token: Token = None, as_json: AsJson = False) -> None:
    """Everything about one case, and whether a replay is safe and why. Asks the system of record now."""
    go(_show(case, token, as_json))


async def _show(id_: int, token: str | None, as_json: bool) -> int:
    async with opened() as services:
        row, database = await _seen(services, id_, token), await services.database()
        cases = await _cases(services)
        look = await cases.look(row)
        found = await _document(database, row, look, await cases.foresee(row, look))
        if await listing(database, "case", [found], as_json=as_json):
            _tell(found)
    return Exit.DONE if row["closed_at"] is not None else Exit.CASES


async def _cases(services: Services) -> Cases:
    return Cases(await services.ledger(), await services.runner())


async def _document(database: Database, row: Row, look: dict[str, Any] | None, way: Way) -> dict[str, Any]:
    run = await database.row("run", run=row["run_id"])
    assert run is not None, "a case names its run"
    operation: dict[str, Any] | None = None
    siblings: list[Row] = []
    undo: list[Row] = []
    if row["operation_id"] is not None:
        (found,) = await database.rows("operation", which=str(row["operation_id"]))
        operation = await traces.of_operation(database, found)
        siblings = await database.rows(
            "subject_steps", subject=row["subject"], purpose=row["purpose"], id=row["operation_id"]
        )
        undo = await database.rows("undone_by", id=row["operation_id"])
    return {
        "case": _plain(row),
        "chain": {key: run[key] for key in ("grantor", "requester", "owner", "agent")},
        "run": {key: run[key] for key in ("id", "purpose", "status", "reason", "mandate_hash", "ended_at")},
        "threads": await database.rows("case_threads", run=row["run_id"]),
        "trace": operation,
        "same_subject": siblings,
        "undo": undo,
        "compensation": _compensation(undo),
        "now": look,
        "replay": {"way": way.way, "why": way.why, "safe": way.safe, "words": way.words},
        "acts": await database.rows("case_acts", case=row["id"]),
    }


def _compensation(undo: list[Row]) -> str:
    """Derived from the operations that take it back; what was refused or is not known is not compensated."""
    states = {row["state"] for row in undo}
    if not states:
        return "none"
    if "SETTLED" in states:
        return "compensated"
    return "failed" if states == {"CLOSED"} else "under way"


def _tell(found: dict[str, Any]) -> None:
    case, run, replayed = found["case"], found["run"], found["replay"]["words"]
    heading(f"Case {case['id']}, {case['code']}, since {moment(case['opened_at'])}: {_stands(case)}")
    who = ", ".join(f"{part} {person}" for part, person in found["chain"].items())
    say(f"  {run['id']} for {run['purpose']}: {run['status']}. {run['reason']}")
    say(f"  chain: {who}; version {case['agent_version']}")
    for thread in found["threads"]:
        at = f"checkpoint {thread['checkpoint'] or 'none'}"
        say(f"  thread {thread['thread_id']}: {thread['state']}, {at} {thread['why']}".rstrip())
    if found["trace"] is not None:
        _tell_operation(found)
    say(*(f"  {_act(act)}" for act in found["acts"]))
    say(f"Replay: {replayed.rstrip('.')}.", *(f"  {line}" for line in _next(found)))


def _act(act: Row) -> str:
    detail = f" ({act['detail']})" if act["detail"] else ""
    evidence = f"; evidence {quoted(act['evidence'])}" if act["evidence"] else ""
    who = f"{act['verb']} by {act['person']} ({act['role']}) on {moment(act['at'])}"
    return f"{who}: {act['outcome']}{detail}{evidence}; {quoted(act['rationale'])}"


def _tell_operation(found: dict[str, Any]) -> None:
    say(f"  failed step: {found['case']['step']} for {found['case']['subject']}")
    for row in found["same_subject"]:
        waits = f", waiting for {row['obstacle']}" if row["obstacle"] else ""
        closed = f" ({row['closed']})" if row["closed"] else ""
        say(
            f"  same subject: {row['key']} revision {row['revision']}: {row['fact']}, {row['state']}{closed}{waits}"
        )
    say(f"  compensation: {found['compensation']}")
    for row in found["undo"]:
        say(f"    {row['key']} by {row['tool']}: {row['state']} {row['closed'] or ''}".rstrip())
    if (look := found["now"]) is not None:
        shown = f"{look['sight']} in {look['source']}, as of {look['as_of'] or 'no time given'}"
        say(f"  the system of record now: {shown}")
    traces.tell_operation(found["trace"])


def _next(found: dict[str, Any]) -> list[str]:
    case = found["case"]
    if case["closed_at"] is not None:
        return []
    lines = []
    if found["replay"]["safe"]:
        lines.append(f"Replay it: `remit cases replay {case['id']} --go --because TEXT`.")
    if case["state"] == "UNKNOWN":
        resolving = (
            f"remit cases resolve {case['id']} --fact completed|no-effect --evidence TEXT --because TEXT"
        )
        lines.append(f"Or establish what happened: `{resolving}`.")
    elif case["state"] in {None, "SETTLED", "CLOSED"}:
        lines.append(f"Close it: `remit cases close {case['id']} --because TEXT --eval NAME`.")
    return lines or ["It is followed by `remit work`; look again later."]


@app.command()
def resolve(
    case: _Id,
    fact: Annotated[
        str, typer.Option("--fact", metavar="completed|no-effect", help="What the evidence shows.")
    ],
    evidence: Annotated[
        str, typer.Option("--evidence", metavar="TEXT", help="What shows it: a letter, a call.")
    ],
    because: Because,
    token: Token = None,
) -> None:
    """Establish an unknown outcome, as somebody who approves such actions, outside the chain."""
    go(_resolve(case, fact, evidence, because, token))


async def _resolve(id_: int, fact: str, evidence: str, because: str, token: str | None) -> None:
    if fact not in _FACTS:
        raise Refused("A fact is completed or no-effect. Give one of them with --fact.", code="usage")
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        done = await (await _cases(services)).resolve(
            secret, id_, completed=_FACTS[fact], evidence=evidence, rationale=because
        )
        say(f"Case {id_}: {fact}, established by {done['person']}. Its operation is final.")
        say(
            f"Close the case when nothing is left to put right: `remit cases close {id_} --because TEXT --eval NAME`."
        )


@app.command()
def replay(
    case: _Id,
    do: Annotated[
        bool, typer.Option("--go", help="Open its gate; the sweep and its run carry it on.")
    ] = False,
    because: Because = "",
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Say what a replay would do; with --go, do it. Exit 3 where it is not safe."""
    go(_replay(case, do, because, token, as_json))


async def _replay(id_: int, do: bool, because: str, token: str | None, as_json: bool) -> int:
    async with opened() as services:
        row, cases = await _seen(services, id_, token), await _cases(services)
        if do:
            secret = identity.secret(services.settings, token)
            done = await cases.replay(secret, id_, rationale=because)
            say(
                f"Case {id_}: replayed by {done['person']} ({done['detail']}). Its gate is open; nothing was sent yet."
            )
            say(f"It is carried on by `remit work`, or now: `remit resume {row['run_id']}`.")
            return Exit.DONE
        way = await cases.foresee(row, await cases.look(row))
        found = {"case": id_, "way": way.way, "why": way.why, "safe": way.safe, "words": way.words}
        if await listing(await services.database(), "replay", [found], as_json=as_json):
            say(f"Case {id_}: {way.words}".rstrip(".") + ".")
            if way.safe:
                say(f"Nothing was changed. Do it: `remit cases replay {id_} --go --because TEXT`.")
    return Exit.DONE if way.safe else Exit.PAUSED


@app.command()
def close(
    case: _Id,
    because: Because,
    *,
    eval_: Annotated[
        str | None, typer.Option("--eval", metavar="NAME", help="The eval that captures it.")
    ] = None,
    no_eval: Annotated[
        str | None, typer.Option("--no-eval", metavar="WHY", help="Why no eval is needed.")
    ] = None,
    leave: Annotated[
        bool, typer.Option("--leave", help="What is wrong stays as it is, by my decision.")
    ] = False,
    token: Token = None,
) -> None:
    """Close a case whose operation is final and whose remedy is verified."""
    go(_close(case, because, token, eval_=eval_, no_eval=no_eval, leave=leave))


async def _close(
    id_: int, because: str, token: str | None, *, eval_: str | None, no_eval: str | None, leave: bool
) -> None:
    async with opened() as services:
        secret = identity.secret(services.settings, token)
        done = await (await _cases(services)).close(
            secret, id_, rationale=because, eval_=eval_, no_eval=no_eval, leave=leave
        )
        captured = f"eval {done['eval']}" if done["eval"] else f"no eval: {quoted(done['no_eval'])}"
        left = f" {many(1, 'wrong effect')} left as it is." if leave else ""
        say(f"Case {id_} is closed by {done['person']} ({captured}).{left}")
