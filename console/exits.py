"""Exit codes, and which one an end or a pause of a run has. They are part of the interface: DESIGN section 12."""

from collections.abc import Mapping
from enum import IntEnum

from remit.tools.states import RunStatus


class Exit(IntEnum):
    """What a script may decide on."""

    DONE = 0
    FAULT = 1
    USAGE = 2
    PAUSED = 3
    STOPPED = 4
    CASES = 5


def exit_of_run(status: str, waits: Mapping[str, int], open_cases: int) -> Exit:
    """The exit code of a command that carried a run on: `waits` counts operations by what they wait for.

    A run that waits for nothing but open cases, and an ended one that left some, exits with CASES.
    """
    if status == RunStatus.COMPLETED:
        return Exit.CASES if open_cases else Exit.DONE
    if status in {RunStatus.PAUSED, RunStatus.PAUSED_AWAITING_APPROVAL, RunStatus.RUNNING}:
        return Exit.CASES if open_cases and set(waits) == {"case"} else Exit.PAUSED
    return Exit.CASES if open_cases and status == RunStatus.INCOMPLETE else Exit.STOPPED
