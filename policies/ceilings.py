"""How far a role may delegate, said before anything is granted; policy says it again for each action (I2)."""

from remit.policies.data import Ceiling, Settings
from remit.tools.mandates import Limit, Mandate, Money, Step


def beyond_ceiling(mandate: Mandate, role: str, settings: Settings) -> list[str]:
    """Why `role` may not delegate this mandate, a sentence each; empty where it may."""
    held = settings.roles.get(role, {})
    found: list[str] = []
    for limit in mandate.limits:
        ceiling = held.get(limit.effect)
        if ceiling is None:
            able = sorted(name for name, its in settings.roles.items() if limit.effect in its)
            found.append(
                f"The role {role} may not delegate {limit.effect}; {', '.join(able) or 'nobody'} may."
            )
            continue
        found += _over(limit, ceiling, role)
        for step in mandate.steps_for(limit.effect):
            found += _step_over(step, ceiling, role)
    return found


def _over(limit: Limit, ceiling: Ceiling, role: str) -> list[str]:
    found = []
    if limit.count > ceiling.count:
        found.append(f"{limit.effect}: {limit.count} times, and {role} may delegate {ceiling.count}.")
    if limit.money is not None and _more(limit.money, ceiling.total):
        found.append(
            f"{limit.effect}: {_said(limit.money)} in total, and {role} may delegate {_most(ceiling.total)}."
        )
    return found


def _step_over(step: Step, ceiling: Ceiling, role: str) -> list[str]:
    if step.exactly is None or not _more(step.exactly, ceiling.each):
        return []
    return [f"{step.name}: {_said(step.exactly)} each, and {role} may delegate {_most(ceiling.each)}."]


def _more(money: Money, ceiling: dict[str, int]) -> bool:
    return money.amount_minor > ceiling.get(money.currency, 0)


def _said(money: Money) -> str:
    return f"{money.amount_minor} {money.currency}"


def _most(ceiling: dict[str, int]) -> str:
    return ", ".join(f"{amount} {currency}" for currency, amount in sorted(ceiling.items())) or "none"
