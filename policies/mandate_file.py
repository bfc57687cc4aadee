"""A manager's YAML becomes the compiled mandate: strict, nothing guessed, each error with its line.

Keeps the first half of I2: no unknown effect, unbounded cohort, missing limit or approximate amount gets in.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from remit.policies.data import Effect, Settings, read_settings
from remit.policies.revision import HERE
from remit.policies.yaml_nodes import Value, read_yaml
from remit.tools.actions import PURPOSE, STEP, SUBJECT
from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove, Limit, Mandate, Money, Step, Who

_MONEY = re.compile(r"(\d{1,10})(?:\.(\d+))? ([A-Z]{3})")
_TOP = ("mandate", "purpose", "why", "agent", "who", "valid", "steps", "limits")
_STEP_KEYS = ("name", "effect", "exactly", "fields", "template", "promise", "announces", "after")
_MOST = 100_000


def read_mandate(file: Path, *, settings: Settings | None = None) -> Mandate:
    """The mandate in `file`. Raises Refused (mandate_invalid): `FILE:LINE: what is wrong. What to do.`"""
    try:
        content = file.read_bytes()
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Give the path of a mandate file."
        raise Refused(message, code="mandate_invalid") from error
    return parse_mandate(str(file), content, settings=settings)


def parse_mandate(file: str, content: bytes, *, settings: Settings | None = None) -> Mandate:
    """As `read_mandate`, for content already read; `settings` are this installation's unless given."""
    known = settings or read_settings(HERE / "boundary" / "data.json")
    return _Reader(read_yaml(file, content), known).mandate()


@dataclass(frozen=True)
class _Reader:
    root: Value
    settings: Settings

    def mandate(self) -> Mandate:
        top = self._top
        top["mandate"].whole(1, 1)
        valid_from, valid_until = self._validity(top["valid"])
        return Mandate(
            purpose=_name(top["purpose"], PURPOSE, "a purpose such as outage-0611"),
            why=top["why"].text(),
            agent=top["agent"].text(),
            who=self._who(top["who"]),
            valid_from=valid_from,
            valid_until=valid_until,
            steps=tuple(self._steps.values()),
            never=self._never(),
            ask_above=self._ask_above(),
            limits=self._limits(top["limits"]),
        )

    @cached_property
    def _top(self) -> dict[str, Value]:
        return self.root.members((*_TOP, "never", "ask_above"), _TOP)

    def _who(self, value: Value) -> Who:
        who = value.members(("affected_by", "subjects", "at_most"))
        if "at_most" not in who:
            value.refuse("The cohort has no bound", "Add `at_most: 30` or the like")
        most = who["at_most"].whole(1, _MOST)
        if ("affected_by" in who) == ("subjects" in who):
            value.refuse(
                "It must be one of affected_by and subjects", "Name the incident, or list the subjects"
            )
        if "affected_by" in who:
            return Who(
                affected_by=_name(who["affected_by"], PURPOSE, "an incident such as outage-0611"),
                at_most=most,
            )
        subjects = [
            _name(one, SUBJECT, "a subject such as customer:c-104") for one in who["subjects"].items()
        ]
        if len(set(subjects)) != len(subjects) or not 1 <= len(subjects) <= most:
            who["subjects"].refuse(
                "The subjects are none, too many or named twice", "List each once, up to at_most"
            )
        return Who(subjects=tuple(subjects), at_most=most)

    def _validity(self, value: Value) -> tuple[int, int]:
        valid = value.members(("from", "until"), ("from", "until"))
        begin, end = _moment(valid["from"]), _moment(valid["until"])
        if begin >= end:
            valid["until"].refuse("It ends before it begins", "Give an `until` after `from`")
        return begin, end

    @cached_property
    def _steps(self) -> dict[str, Step]:
        steps: dict[str, Step] = {}
        for value in self._top["steps"].items():
            step = self._step(value, steps)
            if step.name in steps:
                value.refuse(f"The step {step.name} stands twice", "Give each step its own name")
            steps[step.name] = step
        if not steps:
            self._top["steps"].refuse("No step is wanted", "List at least one")
        return steps

    def _step(self, value: Value, earlier: dict[str, Step]) -> Step:
        given = value.members(_STEP_KEYS, ("name", "effect"))
        effect = self._effect(given["effect"])
        if effect.reached_by == "recovery":
            given["effect"].refuse(
                f"{given['effect'].text()} takes back what was done, and no agent's mandate reaches it",
                "Remove the step",
            )
        needed = {"exactly"} if effect.money else {"template", "promise"} if effect.message else set()
        needed |= {"fields"} if effect.fields else set()
        for key in ("exactly", "fields", "template", "promise"):
            if (key in given) != (key in needed):
                what = "needs" if key in needed else "has no"
                value.refuse(
                    f"{given['effect'].text()} {what} `{key}`", "Add it" if key in needed else "Remove it"
                )
        after = tuple(_one_of(one, earlier, "an earlier step") for one in _items(given.get("after")))
        return Step(
            name=_name(given["name"], STEP, "a name such as credit"),
            effect=given["effect"].text(),
            exactly=self._money(given["exactly"]) if "exactly" in given else None,
            fields=tuple(self._fields(given["fields"], effect)) if "fields" in given else (),
            template=given["template"].text() if "template" in given else None,
            promise=given["promise"].text() if "promise" in given else None,
            announces=self._announced(given["announces"], effect, [earlier[name] for name in after])
            if "announces" in given
            else None,
            after=after,
        )

    def _announced(self, value: Value, effect: Effect, after: Sequence[Step]) -> Money:
        """I12: a message names only what a step before it gives."""
        money = self._money(value)
        if not effect.message:
            value.refuse("Only a message announces", "Remove `announces`")
        if money not in [step.exactly for step in after]:
            value.refuse(
                "No step that comes before gives this amount", "Announce what a step in `after` gives exactly"
            )
        return money

    def _fields(self, value: Value, effect: Effect) -> list[str]:
        fields = [_one_of(one, effect.fields, "a field of this effect") for one in value.items()]
        if not fields:
            value.refuse("No field is named", "Name at least one")
        return fields

    def _never(self) -> tuple[str, ...]:
        """Compiled as `effect` and `field:name`; what a step itself wants cannot stand here."""
        never: list[str] = []
        for value in _items(self._top.get("never")):
            entry = self._never_entry(value)
            if any(
                entry == step.effect or entry in {f"field:{one}" for one in step.fields}
                for step in self._steps.values()
            ):
                value.refuse(f"{entry} is wanted by a step and never allowed", "Decide for one of them")
            never.append(entry)
        return tuple(never)

    def _never_entry(self, value: Value) -> str:
        if value.is_mapping:
            field = value.members(("field",), ("field",))["field"]
            every = {name for effect in self.settings.effects.values() for name in effect.fields}
            return f"field:{_one_of(field, every, 'a field of any effect')}"
        self._effect(value)
        return value.text()

    def _ask_above(self) -> AskAbove:
        if "ask_above" not in self._top:
            return AskAbove()
        given = self._top["ask_above"].members(("count", "total"))
        money = self._money(given["total"]) if "total" in given else None
        if money and money.currency not in {
            step.exactly.currency for step in self._steps.values() if step.exactly
        }:
            given["total"].refuse("No step moves this currency", "Use the currency of the steps")
        return AskAbove(count=given["count"].whole(0, _MOST) if "count" in given else None, money=money)

    def _limits(self, value: Value) -> tuple[Limit, ...]:
        limits = {key.text(): self._limit(key, given) for key, given in value.named()}
        for step in self._steps.values():
            if step.effect not in limits:
                value.refuse(f"{step.effect} has no limit", f"Add a line `{step.effect}: {{count: …}}`")
        return tuple(limits.values())

    def _limit(self, key: Value, value: Value) -> Limit:
        effect = self._effect(key)
        steps = [step for step in self._steps.values() if step.effect == key.text()]
        if not steps:
            key.refuse(f"No step has the effect {key.text()}", "Remove the limit, or add the step")
        given = value.members(("count", "total"), ("count", "total") if effect.money else ("count",))
        if "total" in given and not effect.money:
            given["total"].refuse("No money moves here", "Remove the total")
        money = self._money(given["total"]) if "total" in given else None
        for step in steps:
            if money and step.exactly and not _covers(money, step.exactly):
                given["total"].refuse(
                    f"It does not cover one {step.name}", "Raise it, in the step's currency"
                )
        return Limit(effect=key.text(), count=given["count"].whole(1, _MOST), money=money)

    def _effect(self, value: Value) -> Effect:
        return self.settings.effects[_one_of(value, self.settings.effects, "an effect")]

    def _money(self, value: Value) -> Money:
        written = _MONEY.fullmatch(value.text())
        advice = 'Write it as "10.00 USD", in quotes'
        if written is None:
            value.refuse(f"{value.text()} is no amount with its currency", advice)
        units, fraction, currency = written.groups()
        digits = self.settings.currencies.get(currency)
        if digits is None:
            value.refuse(
                f"{currency} is not used here", f"Use one of: {', '.join(sorted(self.settings.currencies))}"
            )
        if fraction is not None and len(fraction) != digits:
            value.refuse(f"{currency} has {digits} digits after the point", advice)
        minor = int(Decimal(f"{units}.{fraction or 0}").scaleb(digits))
        if not 1 <= minor <= 1_000_000_000_000:
            value.refuse("The amount is nothing or too large", advice)
        return Money(amount_minor=minor, currency=currency)


def _covers(total: Money, one: Money) -> bool:
    return total.currency == one.currency and total.amount_minor >= one.amount_minor


def _items(value: Value | None) -> list[Value]:
    return value.items() if value else []


def _name(value: Value, pattern: str, what: str) -> str:
    if not re.fullmatch(pattern, value.text()):
        value.refuse(f"{value.text()} is not {what}", "Use that form")
    return value.text()


def _one_of(value: Value, known: Collection[str], what: str) -> str:
    if value.text() not in known:
        value.refuse(f"{value.text()} is not {what}", f"Use one of: {', '.join(sorted(known)) or 'none'}")
    return value.text()


def _moment(value: Value) -> int:
    """Whole seconds since 1970 UTC."""
    advice = "Write it as 2026-06-11T00:00:00Z"
    try:
        moment = datetime.fromisoformat(value.written())
    except ValueError:
        value.refuse(f"{value.written()} is no time", advice)
    if moment.utcoffset() is None:
        value.refuse(f"{value.written()} names no time zone", advice)
    if moment.microsecond or moment < datetime(1970, 1, 1, tzinfo=UTC):
        value.refuse(f"{value.written()} is not a whole second since 1970", advice)
    return int(moment.timestamp())
