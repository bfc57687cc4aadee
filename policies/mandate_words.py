"""A mandate read back in plain English, from the compiled form alone: what is granted is what it says."""

from collections.abc import Sequence
from datetime import UTC, datetime

from babel.numbers import get_currency_precision

from remit.tools.mandates import Limit, Mandate, Money, Step


def in_words(mandate: Mandate) -> list[str]:
    """Sentences: who may, for whom, what, how much, in which order, never what, when it asks, how long."""
    return [
        f"{mandate.agent} may act for {mandate.purpose}: {mandate.why.strip().rstrip('.')}.",
        _who(mandate),
        *(_step(step) for step in mandate.steps),
        *(_limit(limit) for limit in mandate.limits),
        _never(mandate),
        _asks(mandate),
        f"Valid from {_time(mandate.valid_from)} until {_time(mandate.valid_until)}, unless revoked earlier.",
    ]


def _who(mandate: Mandate) -> str:
    who = mandate.who
    if who.affected_by is not None:
        return f"For whom: everybody affected by {who.affected_by}, {_many(who.at_most, 'subject')} at most."
    return f"For whom: {_list(who.subjects)}, and nobody else."


def _step(step: Step) -> str:
    parts = [f"{step.name}: once per subject, {step.effect}"]
    if step.exactly is not None:
        parts.append(f"exactly {_money(step.exactly)}")
    if step.fields:
        parts.append(f"writing only {_list(step.fields)}")
    if step.template is not None:
        parts.append(f"with the template {step.template}, which may promise {step.promise} and nothing else")
    if step.announces is not None:
        parts.append(f"naming {_money(step.announces)}")
    if step.after:
        parts.append(f"only after {_list(step.after)} is completed")
    return f"{', '.join(parts)}."


def _limit(limit: Limit) -> str:
    total = f", and {_money(limit.money)} in total" if limit.money else ""
    return f"At most {_many(limit.count, 'time')} {limit.effect}{total}, over all runs."


def _never(mandate: Mandate) -> str:
    if not mandate.never:
        return "Never: anything that is not named above."
    never = _list([entry.replace("field:", "the field ") for entry in mandate.never])
    return f"Never: {never}, or anything that is not named above."


def _asks(mandate: Mandate) -> str:
    """Steps that follow others and move no money are not asked about again, as in the policy."""
    bounds = []
    if mandate.ask_above.count is not None:
        bounds.append(f"more than {_many(mandate.ask_above.count, 'action')}")
    if mandate.ask_above.money is not None:
        bounds.append(f"more than {_money(mandate.ask_above.money)}")
    if not bounds:
        return "A person is asked first only where policy says so."
    asked = _list([step.name for step in mandate.steps if step.exactly is not None or not step.after])
    return f"A person is asked first where all of {asked} together, with what is under way, is {' or '.join(bounds)}."


def _money(money: Money) -> str:
    digits = get_currency_precision(money.currency)
    whole, fraction = divmod(money.amount_minor, 10**digits)
    return f"{whole}.{fraction:0{digits}} {money.currency}" if digits else f"{whole} {money.currency}"


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
