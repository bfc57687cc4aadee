"""`remit status`: what is true for whom, by the systems of record, beside what the agent says.

Keeps I6 on the screen: fact, source and time stand together, and a discrepancy is said where it is.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.checkpoints.database import Row
from remit.console import already, verdicts, viewing
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import many, moment, money, quoted, subject_of
from remit.console.screen import (
    closed_doors,
    door_line,
    heading,
    order_line,
    print_json,
    say,
    standing_orders,
    stuck,
    stuck_warning,
    sweep_warning,
    table,
)
from remit.console.services import Services, opened
from remit.tools.errors import Refused

if TYPE_CHECKING:
    from remit.graph import Report
    from remit.graph.report import Checked


def status(
    which: Annotated[
        str | None, typer.Argument(metavar="[RUN|PURPOSE|SUBJECT]", help="Everything of late by default.")
    ] = None,
    tell: Annotated[bool, typer.Option("--tell", help="For a subject: what can honestly be told.")] = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """The facts for each customer and step, with their evidence. Exit 5 where cases are open."""
    go(_status(which, tell, token, as_json))


async def _status(which: str | None, tell: bool, token: str | None, as_json: bool) -> int:
    async with opened() as services:
        database = await services.database()
        purposes, subject = await _asked_for(await viewing.viewer(services, token), which)
        if tell and subject is None:
            raise Refused("Telling is about one customer. Write `remit status 104 --tell`.", code="usage")
        reports = await _reports(services, purposes, subject)
        orders, warning = await standing_orders(database), await sweep_warning(database)
        doors = await closed_doors(database)
        told = {report.purpose: _told(report, subject) for report in reports} if subject is not None else {}
        found = {run["id"]: await already.met(database, run["id"]) for r in reports for run in r.runs}
        judged = {run["id"]: await verdicts.of_run(database, run["id"]) for r in reports for run in r.runs}
        if as_json:
            print_json(
                {
                    "met": found,
                    "orders": orders,
                    "closed": doors,
                    "warning": warning,
                    "stuck": await stuck(database),
                    "reports": [r.to_json() for r in reports],
                    "told": told,
                    "verdicts": judged,
                }
            )
        else:
            warnings = [warning, await stuck_warning(database)]
            _head([*map(order_line, orders), *map(door_line, doors)], warnings)
            for report in reports:
                _tell_honestly(report, told[report.purpose]) if tell else _show(
                    report, subject, found, judged
                )
        if not reports and not as_json:
            say("Nothing was ever proposed here. Next: `remit mandate grant FILE`, then `remit run PURPOSE`.")
    return Exit.CASES if any(report.cases for report in reports) else Exit.DONE


async def _asked_for(viewer: viewing.Viewer, which: str | None) -> tuple[list[str], str | None]:
    """Purposes, and the subject where one was meant; only what the viewer may see."""
    database = viewer.database
    if which is None:
        rows = await viewer.listed("run", await database.rows("runs", all=False, limit=1_000), "id")
        return list(dict.fromkeys(row["purpose"] for row in rows)), None
    if which.startswith("run-"):
        return [(await viewer.run(which))["purpose"]], None
    mandates = await viewer.named("purpose", await database.rows("mandates", which=which), "purpose")
    if mandates:
        return [mandates[0]["purpose"]], None
    subject = subject_of(which)
    found = await database.rows("purposes_of_subject", subject=subject)
    purposes = [row["purpose"] for row in await viewer.named("purpose", found, "purpose")]
    if not purposes:
        raise Refused(
            f"No run, purpose or subject {quoted(which)} is known here. See `remit runs`; a subject is written as "
            "customer:c-104, c-104 or 104.",
            code="nothing",
        )
    return purposes, subject


async def _reports(services: Services, purposes: list[str], subject: str | None) -> "list[Report]":
    from remit.graph import status_of

    deps = await services.looking()
    return [await status_of(deps, purpose, subject) for purpose in purposes]


def _told(report: "Report", subject: str) -> list[str]:
    from remit.graph import tell

    return tell(report, subject)


def _head(orders: list[str], warnings: list[str | None]) -> None:
    for line in orders:
        say(line, style="bold red")
    for warning in warnings:
        if warning is not None:
            say(warning, style="yellow")


def _tell_honestly(report: "Report", sentences: list[str]) -> None:
    heading(f"What can be told about {report.purpose}, as of {moment(report.as_of)}:")
    say(*(f"  {sentence}" for sentence in sentences))


def _show(
    report: "Report", subject: str | None, met: dict[str, list[Row]], judged: dict[str, verdicts.Verdicts]
) -> None:
    about = f" for {subject}" if subject else ""
    heading(f"{report.purpose}{about}, as of {moment(report.as_of)}, by the systems of record")
    for run in report.runs:
        say(f"  {run['id']}: {run['status']}. {run['reason']}")
        say(*(f"    {sentence}" for sentence in already.sentences(met[run["id"]])))
        say(*(f"    {sentence}" for sentence in verdicts.sentences(judged[run["id"]])))
    counted = report.counts().items()
    say(
        *(
            f"  {step}: " + ", ".join(f"{count} {fact}" for fact, count in facts.items())
            for step, facts in counted
            if facts
        )
    )
    say(*(f"  money out: {money(amount, currency)}" for currency, amount in report.money_out.items()))
    say(
        *(
            f"  money on its way or uncertain: {money(amount, currency)}"
            for currency, amount in report.money_uncertain.items()
        )
    )
    _show_cells(report)
    _show_doubts(report)


def _show_cells(report: "Report") -> None:
    stopped = any(cell.before_stop is not None for cell in report.cells)
    names = (
        "subject",
        "step",
        "fact",
        "what is known",
        "source",
        "as of",
        *(("stop",) if stopped else ()),
        "discrepancy",
    )
    rows: list[tuple[object, ...]] = []
    for cell in report.cells:
        when = {True: "before", False: "after", None: ""}[cell.before_stop]
        left = (cell.subject, cell.step, cell.fact, cell.detail, cell.source, _short(cell.as_of))
        rows.append((*left, *((when,) if stopped else ()), cell.note))
    table(names, rows)


def _short(as_of: str) -> str:
    """To the second: the report's JSON has the rest."""
    return as_of[:19].replace("T", " ")


def _show_doubts(report: "Report") -> None:
    for found in report.foreign:
        say(
            f"Not ours by the ledger: {found.source} shows {many(found.count, 'more effect')} of {found.effect} for "
            f"{found.subject}. A person has to look.",
            style="bold red",
        )
    for conflict in report.conflicts:
        say(f"Conflict: {_conflict(conflict)}", style="yellow")
    for case in report.cases:
        say(f"OPEN CASE {case['id']}: {case['key']}: {case['code']}: {case['detail']}", style="bold red")
        say(f"  Next: `remit cases show {case['id']}`.")
    for said in report.statements:
        say(f"{said.run_id}: the agent states {quoted(said.text)}: {_verdict(said)}.")


def _verdict(said: "Checked") -> str:
    match said.borne_out:
        case None:
            return "nothing checkable was claimed"
        case True:
            return f"count {said.count} of {said.step} matches the evidence; the text was not checked"
        case False:
            proved = "" if said.proved is None else f" (proved: {said.proved})"
            return f"the evidence does NOT bear it out{proved}"


def _conflict(conflict: dict[str, Any]) -> str:
    what = f"{conflict['run_id']} wanted {conflict['key']} otherwise than it is"
    return f"{what}; it was left as it is ({conflict['code']})."
