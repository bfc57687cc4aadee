"""Text for people: what comes from company records or from the model is quoted, and nothing in it can act.

Keeps the screen honest (DESIGN section 12): control, direction and invisible characters are shown by their number,
so that no record can hide a line, reverse an amount or colour a word.
"""

import json
import re
import unicodedata
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from babel.numbers import format_currency, get_currency_precision, is_currency

_SHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that are no visible sign: controls, directions, surrogates, private, unassigned, separators."""

_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Signs of other categories that take room, or none, and show nothing."""

_MOST = 160

_MINOR = re.compile(r"(?<![\w.,-])(\d{1,18}) ([A-Z]{3})(?!\w)")
"""An amount as policy writes it: whole minor units and a currency's code."""


def safe(value: object) -> str:
    """One line of visible characters; every other one as `<U+202E>`."""
    return "".join(f"<U+{ord(sign):04X}>" if _invisible(sign) else sign for sign in str(value))


def _invisible(sign: str) -> bool:
    if sign.isascii():
        return not sign.isprintable()
    return unicodedata.category(sign) in _SHOWN or sign in _BLANKS or "\ufe00" <= sign <= "\ufe0f"


def quoted(text: str, most: int = _MOST) -> str:
    """Somebody else's words, marked as such and cut after `most` characters."""
    cut = text[:most]
    rest = f" ... (+{len(text) - most} characters)" if len(text) > most else ""
    return f'"{safe(cut).replace(chr(34), chr(39))}"{rest}'


def exact(value: object) -> str:
    """A value without any loss: JSON in which every sign that does not show itself stands by its number.

    A backslash of the value is doubled, so that nothing in it can look like such a number.
    """
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return "".join(json.dumps(sign)[1:-1] if _invisible(sign) else sign for sign in text)


def money(amount_minor: int, currency: str) -> str:
    """`240.00 USD`: as many decimals as the currency has."""
    amount = Decimal(amount_minor).scaleb(-get_currency_precision(currency))
    return format_currency(amount, currency, format="#,##0.00\u00a0\u00a4\u00a4", locale="en").replace(
        "\u00a0", " "
    )


def amounts(text: str) -> str:
    """Policy's words, each amount in minor units as money: `24000 USD of credit.issue` is 240.00 USD of it."""
    return _MINOR.sub(
        lambda found: money(int(found[1]), found[2]) if is_currency(found[2]) else found[0], text
    )


def moment(when: datetime) -> str:
    """A time to the second, in UTC."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(length: timedelta | float) -> str:
    """`5 seconds`, `3 minutes`, `2 hours`, `4 days`: the largest unit that fits twice, or seconds."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return many(int(seconds // size), name)
    return many(max(0, round(seconds)), "second")


def many(count: int, noun: str, plural: str | None = None) -> str:
    """`1 action`, `24 actions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def subject_of(text: str) -> str:
    """`customer:c-104` for `customer:c-104`, `c-104` and `104` alike."""
    if ":" in text:
        return text
    return f"customer:{text}" if not text.isdigit() else f"customer:c-{text}"
