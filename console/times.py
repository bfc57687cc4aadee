"""Times as people write them: how long, and when. What is not written exactly is refused, never guessed."""

import re
from datetime import UTC, datetime

from remit.console.render import quoted
from remit.tools.errors import Refused

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_WRITTEN = re.compile(r"([+-]?)(\d{1,6}(?:\.\d{1,3})?)([smhd])", re.ASCII)


def seconds_of(text: str) -> float | None:
    """Seconds of `30s`, `+5m`, `-2h`, `1d`; None for anything else."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return None
    return float(written[2]) * _UNITS[written[3]] * (-1 if written[1] == "-" else 1)


def moment_of(text: str) -> datetime:
    """A moment in UTC, from ISO 8601 with its zone. Raises Refused (usage) for what names no exact moment."""
    try:
        read = datetime.fromisoformat(text)
        if read.tzinfo is not None:
            return read.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Refused(
        f"{quoted(text)} is no exact moment. Write date, time and zone, such as 2026-06-12T09:30Z.",
        code="usage",
    )
