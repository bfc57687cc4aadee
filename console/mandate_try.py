"""`remit mandate try`: what a mandate would allow, before anybody grants it. Nothing is written."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.console import identity
from remit.console.cohorts import cohort, overlap_line
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import amounts, many, money, span
from remit.console.screen import heading, print_json, say, table
from remit.console.services import opened

if TYPE_CHECKING:
    from remit.graph import Trial
    from remit.graph.trial import StepTrial


def try_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A mandate as YAML.")],
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what a mandate would allow, hold, ask and deny, and why, on real reads. Exit 4 where something is denied."""
    go(_try(file, token, as_json))


async def _try(file: Path, token: str | None, as_json: bool) -> int:
    from remit.graph import try_mandate
    from remit.policies import in_words, read_mandate

    async with opened() as services:
        mandate = read_mandate(file)
        secret = identity.secret(services.settings, token)
        actor = await (await services.people()).whoami(secret)
        deps = replace(await services.looking(), policy=await services.policy())
        subjects = await cohort(services, mandate)
        tried = await try_mandate(deps, mandate, actor["person"], actor["role"], subjects)
        denied = any(step.deny or step.tool is None for step in tried.steps)
        if as_json:
            print_json(
                {"hash": mandate.hash, "grantor": actor["person"], "role": actor["role"], **asdict(tried)}
            )
        else:
            heading(f"The mandate in {file}, in words:")
            say(*(f"  {line}" for line in in_words(mandate)))
            heading(
                f"If {actor['person']}, as {actor['role']}, granted it now, for {many(tried.subjects, 'subject')}:"
            )
            _show(tried)
            say(
                "Nothing was granted and nothing was sent. "
                + (
                    "What is denied stays denied until the mandate, or the grantor, is another."
                    if denied
                    else f"Next: `remit mandate grant {file}`."
                )
            )
        return Exit.STOPPED if denied else Exit.DONE


def _show(tried: "Trial") -> None:
    names = ("step", "effect", "allow", "hold", "ask", "deny", "there already", "money")
    table(names, [_row(step) for step in tried.steps])
    for step in tried.steps:
        say(*(f"  {line}" for line in _lines(step)))
    if tried.no_return is None:
        say("Every step can be taken back by an undo of its own.")
    else:
        say(f"Point of no return: {tried.no_return}. Nothing takes that back.", style="bold")
    for name, missing in tried.early.items():
        say(
            f"{name} cannot be taken back and may leave before a person has decided about {', '.join(missing)}: "
            f"add `after: [{', '.join(missing)}]`.",
            style="yellow",
        )
    say(*(overlap_line(row) for row in tried.overlaps), style="yellow")


def _row(step: "StepTrial") -> tuple[object, ...]:
    total = ", ".join(money(amount, currency) for currency, amount in sorted(step.amounts.items()))
    counts = (step.allow, step.hold, step.needs_approval, step.deny, step.there_already)
    return step.step, step.effect, *counts, total


def _lines(step: "StepTrial") -> list[str]:
    lines = [
        f"{step.step}: {many(count, 'action')}: {code}: {amounts(step.details[code])} "
        f"(for example {step.examples[code]})"
        for code, count in sorted(step.reasons.items())
    ]
    if step.tool is None:
        lines.append(f"{step.step}: no tool of the catalogue does {step.effect} for an agent.")
    if step.needs_approval:
        lines.append(f"{step.step}: decided by {step.quorum} of the roles {', '.join(step.approvers)}.")
    if step.hold_seconds:
        lines.append(f"{step.step}: each waits {span(step.hold_seconds)} before it leaves.")
    return lines
