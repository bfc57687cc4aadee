"""What truly happened: the systems of record first, the ledger second, the agent's word beside them. Keeps I6.

A cell says no more than its evidence proves. A receiver that gives no answer makes a cell UNKNOWN, with the reason.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from remit.graph import facts
from remit.graph.deps import Deps, step_facts
from remit.graph.endings import borne_out
from remit.tools.actions import Json, operation_key, reference
from remit.tools.contracts import Sighting, Sought
from remit.tools.errors import NotSent, OutcomeUnknown, Refused
from remit.tools.mail import money_text
from remit.tools.mandates import Mandate, Money
from remit.tools.ports import FaultPoint
from remit.tools.questions import BATCH
from remit.tools.states import Fact

_LEDGER = "ledger"
_MONEY = "credit.issue"


@dataclass(frozen=True, slots=True)
class Cell:
    """One step for one subject. `as_of` is the source's own time, the amount what its record shows where it shows one;
    `before_stop` is None where no order stood."""

    subject: str
    step: str
    fact: str
    detail: str
    source: str
    as_of: str
    before_stop: bool | None
    key: str
    operation_id: int | None
    amount_minor: int | None
    currency: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Effects that a system of record shows for the same business and the ledger does not know."""

    subject: str
    effect: str
    count: int
    source: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One statement of the agent beside the evidence."""

    run_id: str
    text: str
    step: str | None
    count: int | None
    proved: int | None
    borne_out: bool | None
    """Whether its count matches; None where it claims nothing checkable. The text is not checked."""


@dataclass(slots=True)
class Report:
    """The facts of one purpose, for all its subjects or one of them."""

    purpose: str
    mandate_hash: str
    as_of: datetime
    steps: list[str]
    runs: list[dict[str, Any]]
    orders: list[dict[str, Any]]
    cases: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    cells: list[Cell] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    """Sources that gave no answer when effects of others were looked for: that none are listed proves nothing then."""
    statements: list[Checked] = field(default_factory=list)
    money_out: dict[str, int] = field(default_factory=dict)
    money_uncertain: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """Subjects by step and fact."""
        counted: dict[str, dict[str, int]] = {step: {} for step in self.steps}
        for cell in self.cells:
            facts = counted.setdefault(cell.step, {})
            facts[cell.fact] = facts.get(cell.fact, 0) + 1
        return counted

    def of(self, subject: str) -> list[Cell]:
        """The cells of one subject, in the order of the mandate's steps."""
        return [cell for cell in self.cells if cell.subject == subject]

    def to_json(self) -> dict[str, Json]:
        """Stable keys; times as RFC 3339 text."""
        plain: dict[str, Json] = _plain(asdict(self))
        plain["counts"] = self.counts()
        return plain


async def status_of(deps: Deps, purpose: str, subject: str | None = None) -> Report:
    """Read the systems of record about every key of a purpose that was ever sent, in batches, and compare.

    Raises Refused when the purpose has no mandate here.
    """
    mandates = await deps.database.rows("mandates", which=purpose)
    if not mandates:
        raise Refused(
            f"Nothing is known here of the purpose {purpose}. See `remit runs`.", code="no_such_purpose"
        )
    live = next((m for m in mandates if m["superseded_at"] is None), mandates[0])
    mandate = Mandate.model_validate_json(json.dumps(live["document"]))
    runs = await deps.database.rows("runs_of_purpose", purpose=purpose)
    report = Report(
        purpose=purpose,
        mandate_hash=live["hash"],
        as_of=await deps.ledger.now(),
        steps=[step.name for step in mandate.steps],
        runs=runs,
        orders=await _orders(deps, runs, mandates),
        cases=[c for c in await deps.database.rows("cases", run=None) if _concerns(c, purpose, subject)],
        conflicts=await deps.database.rows("conflicts", purpose=purpose, subject=subject),
    )
    rows = await deps.database.rows("operations_of_purpose", purpose=purpose, subject=subject)
    cohort = [r["subject"] for r in await deps.database.rows("mandate_subjects", mandate=live["hash"])]
    subjects = [one for one in cohort if subject in (None, one)]
    _fill(report, rows, await _look(deps, rows), subjects)
    await _add_foreign(deps, report, mandate, {*subjects, *(row["subject"] for row in rows)})
    report.statements = await _statements(deps, report, None if subject is None else mandate)
    return report


def tell(report: Report, subject: str) -> list[str]:
    """What can honestly be told about one subject: a sentence per step, and what is not known said as such."""
    sentences = [_sentence(cell) for cell in report.of(subject)]
    sentences += [
        f"Besides, {found.source} shows {found.count} more effect(s) of {found.effect} for the same reason that did "
        "not come through this mandate. Do not promise anything about the total before a person has looked."
        for found in report.foreign
        if found.subject == subject
    ]
    sentences += [
        f"Whether somebody else did something for the same reason is not known: {silence}"
        for silence in report.silent
    ]
    return sentences


async def _look(deps: Deps, rows: Sequence[dict[str, Any]]) -> dict[str, Sighting]:
    """By key. All revisions of a key carry one reference, so one look tells of each that was ever sent."""
    sent = {row["key"] for row in rows if row["attempts"] > 0}
    by_effect: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in {row["key"]: row for row in rows if row["key"] in sent}.values():
        by_effect[row["effect"]].append(row)
    seen: dict[str, Sighting] = {}
    for effect, group in by_effect.items():
        for part in _batches(group):
            seen |= await _look_at(deps, effect, part)
    return seen


async def _look_at(deps: Deps, effect: str, rows: Sequence[dict[str, Any]]) -> dict[str, Sighting]:
    asked = [Sought(reference(deps.ledger.installation, r["key"]), r["subject"], r["intent"]) for r in rows]
    tools = deps.catalogue.tools_of(effect)
    if not tools:
        return {row["key"]: facts.unreadable(one, effect) for row, one in zip(rows, asked, strict=True)}
    await deps.database.reach(FaultPoint.BEFORE_CONFIRM)
    found = {one.reference: one for one in await tools[0].verify_many(deps.transport, asked)}
    await deps.database.reach(FaultPoint.AFTER_CONFIRM)
    return {row["key"]: found[one.reference] for row, one in zip(rows, asked, strict=True)}


def _fill(
    report: Report, rows: Sequence[dict[str, Any]], seen: dict[str, Sighting], subjects: Sequence[str]
) -> None:
    latest = {(row["subject"], row["step"]): row for row in rows}
    wanted = [(subject, step) for subject in subjects for step in report.steps]
    for place in [*wanted, *sorted(set(latest) - set(wanted))]:
        row = latest.get(place)
        if row is None:
            report.cells.append(_nothing(report, *place))
            continue
        cell = _cell(report, row, seen.get(row["key"]))
        report.cells.append(cell)
        _count_money(report, cell, facts.remaining(row, seen.get(row["key"])))


def _count_money(report: Report, cell: Cell, amount: int | None) -> None:
    if amount is None or cell.currency is None:
        return
    if cell.fact == Fact.COMPLETED:
        report.money_out[cell.currency] = report.money_out.get(cell.currency, 0) + amount
    elif cell.fact in (Fact.UNKNOWN, Fact.IN_PROGRESS):
        report.money_uncertain[cell.currency] = report.money_uncertain.get(cell.currency, 0) + amount


def _nothing(report: Report, subject: str, step: str) -> Cell:
    as_of = report.as_of.isoformat()
    return Cell(subject, step, Fact.NOT_SENT, "never proposed", _LEDGER, as_of, None, "", None, None, None)


def _cell(report: Report, row: dict[str, Any], seen: Sighting | None) -> Cell:
    fact, detail, note = facts.judged(row, seen)
    return Cell(
        subject=row["subject"],
        step=row["step"],
        fact=fact,
        detail=detail,
        source=seen.source if seen is not None else _LEDGER,
        as_of=facts.as_of(row, seen, report.as_of),
        before_stop=facts.before(seen, fact, [order["company_time"] for order in report.orders]),
        key=row["key"],
        operation_id=row["id"],
        amount_minor=facts.shown(row, seen),
        currency=row["currency"],
        note=note,
    )


async def _orders(
    deps: Deps, runs: Sequence[dict[str, Any]], mandates: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Stops over whole runs since the first of them began."""
    values = {
        "",
        *(value for run in runs for value in (run["id"], run["agent"], run["agent_version"])),
        *(value for mandate in mandates for value in (mandate["hash"], mandate["purpose"])),
    }
    first = min((run["created_at"] for run in runs), default=None)
    return [
        order
        for order in await deps.database.rows("orders", all=True)
        if order["kind"] == "stop"
        and order["value"] in values
        and first is not None
        and (order["lifted_at"] is None or order["lifted_at"] > first)
    ]


def _concerns(case: dict[str, Any], purpose: str, subject: str | None) -> bool:
    mine = (case["key"] or "").startswith(f"{purpose}/")
    return mine and subject in (None, case["subject"])


async def _add_foreign(deps: Deps, report: Report, mandate: Mandate, subjects: set[str]) -> None:
    """The same business at the same receiver, not ours by the ledger, for subjects that nothing was sent to as well."""
    tools = deps.catalogue.tools_of(_MONEY)
    for step in mandate.steps_for(_MONEY):
        if step.exactly is None or not tools:
            continue
        for part in _batches(sorted(subjects)):
            asked = {}
            for subject in part:
                said = tools[0].arguments.model_validate({"subject": subject, **step.exactly.model_dump()})
                key = operation_key(mandate.purpose, step.name, subject)
                intent = tools[0].intent(subject, said, step, mandate.purpose)
                asked[subject] = Sought(reference(deps.ledger.installation, key), subject, intent)
            try:
                snapshots = await tools[0].snapshot_many(deps.transport, list(asked.values()))
            except (NotSent, OutcomeUnknown) as error:
                report.silent.append(str(error))
                return
            for subject, one in asked.items():
                others = snapshots[one.reference].values.get("others")
                if isinstance(others, int) and others > 0:
                    report.foreign.append(Foreign(subject, _MONEY, others, "payments: credits by customer"))


async def _statements(deps: Deps, report: Report, mandate: Mandate | None) -> list[Checked]:
    """Beside the cells, or beside the ledger's facts of `mandate` where the cells are of one subject only."""
    counts = report.counts()
    if mandate is not None:
        counts = await step_facts(deps.database, mandate, report.mandate_hash)
    rows = await deps.database.rows("statements", runs=[run["id"] for run in report.runs])
    return [
        Checked(
            run_id=row["run_id"],
            text=row["text"],
            step=row["step"],
            count=row["count"],
            proved=counts.get(row["step"], {}).get("COMPLETED", 0) if row["step"] else None,
            borne_out=borne_out(row, counts),
        )
        for row in rows
    ]


def _sentence(cell: Cell) -> str:
    money = ""
    if cell.amount_minor is not None and cell.currency is not None:
        money = f" ({money_text(Money(amount_minor=cell.amount_minor, currency=cell.currency))})"
    said = {
        Fact.COMPLETED: "done",
        Fact.IN_PROGRESS: "under way, not finished",
        Fact.UNKNOWN: "not known yet",
        Fact.NOT_SENT: "nothing was sent" if cell.source == _LEDGER else "no effect",
    }[Fact(cell.fact)]
    sentence = f"{cell.step}{money}: {said}. {cell.detail} [{cell.source}, as of {cell.as_of}]."
    if cell.note:
        sentence += f" Attention: {cell.note}."
    return sentence + (" Say that it is being looked into." if cell.fact == Fact.UNKNOWN else "")


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _plain(value: Any) -> Json:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
