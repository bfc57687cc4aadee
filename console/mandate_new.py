"""`remit mandate new`: a few questions, and a mandate's file. What comes out is read back by the same strict reader.

Keeps the first half of I2: whatever is not wanted by a step stands under `never`, and every effect gets a limit.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.console.edge import go
from remit.console.screen import heading, say
from remit.tools.catalogue import credit_catalogue
from remit.tools.errors import Refused

if TYPE_CHECKING:
    from remit.policies.data import Effect
    from remit.policies.data import Settings as PolicySettings


_PLAIN = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*")
_OTHER = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML may read as something else than text."""


@dataclass
class _Step:
    name: str
    effect: str
    lines: list[str] = field(default_factory=list)
    amount: str | None = None
    fields: list[str] = field(default_factory=list)


def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; it must not exist yet.")],
) -> None:
    """Ask the few questions that a mandate answers, and write it. Nothing is granted."""
    go(_new(file))


async def _new(file: Path) -> None:
    from remit.policies import in_words, load_policy, parse_mandate

    if file.exists():
        raise Refused(f"{file} is there already, and is left as it is. Name another file.", code="exists")
    text = _asked(load_policy().settings)
    mandate = parse_mandate(str(file), text.encode())
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except OSError as error:
        raise Refused(
            f"{file} cannot be written ({error.strerror}). Name another file.", code="file"
        ) from error
    heading(f"The mandate in {file}, in words:")
    say(*(f"  {line}" for line in in_words(mandate)))
    say(f"Nothing is granted yet. See first what it would do: `remit mandate try {file}`.")


def _asked(settings: "PolicySettings") -> str:
    purpose = _ask("Its purpose, a short name that stays the same in corrected mandates (outage-0611)")
    why = _ask("Why, in a sentence for whoever has to decide")
    agent = _ask("Which agent", "credit-agent")
    who = _ask("For whom: the id of an incident, or subjects with commas between them (customer:c-104, ...)")
    subjects = [one.strip() for one in who.split(",")] if ":" in who else []
    most = _whole("For how many subjects at most", len(subjects) or None)
    days = _whole("Valid for how many days from now", 14)
    steps = _steps(settings)
    ask = _whole("Above how many actions is a person asked", 10)
    begin = datetime.now(UTC).replace(microsecond=0)
    lines = [
        "mandate: 1",
        f"purpose: {_text(purpose)}",
        f"why: {_text(why)}",
        f"agent: {_text(agent)}",
        "",
        "who:",
        f"  subjects: [{', '.join(map(_text, subjects))}]" if subjects else f"  affected_by: {_text(who)}",
        f"  at_most: {most}",
        "",
        "valid:",
        f"  from: {_moment(begin)}",
        f"  until: {_moment(begin + timedelta(days=days))}",
        "",
        "steps:",
        *(line for step in steps for line in step.lines),
        *_never(settings, steps),
        "",
        "ask_above:",
        f"  count: {ask}",
        "",
        "limits:",
        *_limits(steps, most),
    ]
    return "\n".join(lines) + "\n"


def _steps(settings: "PolicySettings") -> list[_Step]:
    able = {tool.contract.effect for tool in credit_catalogue().for_agents()}
    steps: list[_Step] = []
    for effect, terms in settings.effects.items():
        if effect in able and typer.confirm(f"Shall it do {effect}?", default=False):
            steps.append(_step(effect, terms, steps))
    if not steps:
        raise Refused(
            "No step is wanted, so there is nothing to delegate. Say yes to one effect.", code="no_step"
        )
    return steps


def _step(effect: str, terms: "Effect", earlier: list[_Step]) -> _Step:
    step = _Step(_ask("  What to call this step", effect.rsplit(".", maxsplit=1)[-1]), effect)
    step.lines += [f"  - name: {_text(step.name)}", f"    effect: {effect}"]
    if terms.money:
        step.amount = _ask("  Exactly how much for each subject (10.00 USD)")
        step.lines.append(f"    exactly: {_text(step.amount)}")
    if terms.fields:
        step.fields = [one.strip() for one in _ask("  Which fields", ", ".join(terms.fields[:1])).split(",")]
        step.lines.append(f"    fields: [{', '.join(map(_text, step.fields))}]")
    if terms.message:
        template = _ask("  With which template")
        step.lines.append(f"    template: {_text(template)}")
        step.lines.append(f"    promise: {_text(_ask('  What may that template promise', template))}")
    money = next((one for one in earlier if one.amount is not None), None)
    after = (
        _ask("  Only after which steps (none, or names with commas)", money.name if money else "none")
        if earlier
        else "none"
    )
    names = [] if after == "none" else [one.strip() for one in after.split(",")]
    if terms.message and money is not None and money.name in names and money.amount is not None:
        step.lines.append(f"    announces: {_text(money.amount)}")
    if names:
        step.lines.append(f"    after: [{', '.join(map(_text, names))}]")
    return step


def _never(settings: "PolicySettings", steps: list[_Step]) -> Iterator[str]:
    """Every effect and field that no step wants: what was not asked for is said, not merely left out."""
    writes = credit_catalogue().writes()
    undo = {tool.contract.effect for tool in writes if not tool.contract.for_agents}
    effects = {step.effect for step in steps} | undo
    wanted = {name for step in steps for name in step.fields}
    named = {effect: terms for effect, terms in settings.effects.items() if not effect.startswith("canary.")}
    forbidden = [f"  - {effect}" for effect in named if effect not in effects]
    fields = {name for effect, terms in named.items() if effect not in undo for name in terms.fields}
    forbidden += [f"  - field: {name}" for name in sorted(fields - wanted)]
    if forbidden:
        yield from ("", "never:", *forbidden)


def _limits(steps: list[_Step], most: int) -> Iterator[str]:
    for effect in dict.fromkeys(step.effect for step in steps):
        mine = [step for step in steps if step.effect == effect]
        amount = next((step.amount for step in mine if step.amount is not None), None)
        total = f", total: {_text(_times(amount, most * len(mine)))}" if amount is not None else ""
        yield f"  {effect}: {{count: {most * len(mine)}{total}}}"


def _times(amount: str, count: int) -> str:
    """The amount as written, so many times; what is no amount is left for the reader to refuse with its line."""
    figure, _, currency = amount.partition(" ")
    units, point, fraction = figure.partition(".")
    if not (units + fraction).isdigit():
        return amount
    total = str(int(units + fraction) * count).rjust(len(fraction) + 1, "0")
    return f"{total[: len(total) - len(fraction)]}{point}{total[len(total) - len(fraction) :]} {currency}"


def _ask(question: str, default: str | None = None) -> str:
    answer: str = typer.prompt(question, default=default)
    return answer.strip()


def _whole(question: str, default: int | None) -> int:
    answer: int = typer.prompt(question, default=default, value_proc=_whole_number)
    return answer


def _whole_number(answer: object) -> int:
    """Raises what typer shows before it asks again."""
    text = str(answer)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 100_000:
        raise typer.BadParameter("a whole number from 1 to 100000")
    return int(text)


def _text(text: str) -> str:
    """One YAML scalar that reads as this text and nothing else."""
    return text if _PLAIN.fullmatch(text) and text not in _OTHER else json.dumps(text, ensure_ascii=False)


def _moment(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
