"""Whether the tools and the policy data speak of the same effects and roles, asked before anything runs.

Keeps F12: a misspelled effect, an unclassified tool or an unknown role stops the start, and never opens a gate by not
being found. The same look answers for each writing tool what an auditor asks.
"""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remit.policies.data import Cell, Effect, Settings
from remit.tools.actions import Json
from remit.tools.catalogue import Catalogue, at_most_once
from remit.tools.contracts import Contract
from remit.tools.errors import Misconfigured


def check_fit(catalogue: Catalogue, settings: Settings) -> None:
    """Raises Misconfigured, naming the tool or the effect and what to do, where the two do not fit together."""
    contracts = [tool.contract for tool in catalogue.writes()]
    for contract in contracts:
        _check_classified(contract, settings)
    for name, effect in settings.effects.items():
        _check_reached(name, effect, [one for one in contracts if one.effect == name])
    for contract in contracts:
        _check_owner(contract, settings)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the catalogue and the policy data say about one writing tool; `missing` are remedies, a sentence each."""

    tool: str
    version: str
    effect: str
    retry_safe: bool
    at_most_once: str
    undo: dict[str, Json] | None
    """{tool, owner, approved_by, approval, test}."""
    irreversible: bool
    behind: tuple[str, ...]
    """What an irreversible effect has to pass; of another, what it passes as well."""
    records: str
    missing: tuple[str, ...]


def audit(catalogue: Catalogue, settings: Settings) -> list[Answers]:
    """One row per writing tool. Needs `check_fit` to have passed."""
    return [_answers(tool.contract, catalogue, settings) for tool in catalogue.writes()]


def _answers(contract: Contract, catalogue: Catalogue, settings: Settings) -> Answers:
    effect = settings.effects[contract.effect]
    row, column = _place(contract, effect, settings)
    cell = settings.matrix[row][column]  # type: ignore[index]  # both come from the matrix's own names
    asked = effect.autonomy == "supervised" or cell.verdict == "needs_approval"
    held = effect.hold_seconds if cell.hold else 0
    missing = []
    if row == "irreversible" and column != "low" and not asked and not held:
        missing.append(
            f"{contract.name} cannot be taken back, has {column} consequence, and nothing stands before it. Give "
            f"{contract.effect} hold_seconds in the policy data, or make it supervised."
        )
    return Answers(
        tool=contract.name,
        version=contract.version,
        effect=contract.effect,
        retry_safe=contract.retry_safe,
        at_most_once=at_most_once(contract),
        undo=_undo(contract, catalogue, settings),
        irreversible=row == "irreversible",
        behind=_behind(effect, cell, asked=asked, held=held),
        records=f"the ledger's operations of version {contract.version}; {contract.records}",
        missing=tuple(missing),
    )


def _undo(contract: Contract, catalogue: Catalogue, settings: Settings) -> dict[str, Json] | None:
    if contract.undo is None:
        return None
    effect = settings.effects[catalogue.write(contract.undo.tool).contract.effect]
    return {**contract.undo.model_dump(), "approved_by": list(effect.approvers)}


def _behind(effect: Effect, cell: Cell, *, asked: bool, held: int) -> tuple[str, ...]:
    found = []
    if asked:
        found.append(f"approval by {effect.quorum} of {' or '.join(effect.approvers)}")
    if held:
        found.append(f"a hold of {held} s")
    if cell.verify:
        found.append("verification at once")
    return (*found, f"{len(effect.volume)} volume limits" if len(effect.volume) > 1 else "a volume limit")


def _place(contract: Contract, effect: Effect, settings: Settings) -> tuple[str, str]:
    """The strictest row and column, as the Rego takes them; amounts may raise the column of one action further."""
    return (
        max(contract.reversibility.value, effect.at_least.reversibility, key=settings.rows.index),
        max(contract.consequence.value, effect.at_least.consequence, key=settings.columns.index),
    )


def _check_classified(contract: Contract, settings: Settings) -> None:
    if contract.effect not in settings.effects:
        raise Misconfigured(
            f"{contract.name} has the effect {contract.effect}, which the policy data does not classify. "
            f"{_meant(contract.effect, settings.effects)}Add it to the effects of data.json, or correct the contract.",
            code="effect_unclassified",
        )


def _check_reached(name: str, effect: Effect, contracts: Sequence[Contract]) -> None:
    agents = any(one.for_agents for one in contracts)
    by = "agents" if agents else "recovery" if contracts else "nobody"
    if effect.reached_by == by:
        return
    tools = ", ".join(one.name for one in contracts) or "none"
    raise Misconfigured(
        f"The policy data says that {name} is reached by {effect.reached_by}, and by the contracts of its tools "
        f"({tools}) it is reached by {by}. Correct its reached_by in data.json, or the contract.",
        code="effect_reached_by",
    )


def _check_owner(contract: Contract, settings: Settings) -> None:
    if contract.undo is not None and contract.undo.owner not in settings.roles:
        raise Misconfigured(
            f"The undo of {contract.name} is owned by {contract.undo.owner}, which is no role of the policy data. "
            f"{_meant(contract.undo.owner, settings.roles)}Name one of: {', '.join(sorted(settings.roles))}.",
            code="unknown_role",
        )


def _meant(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.8)
    return f"Did you mean {close[0]}? " if close else ""
