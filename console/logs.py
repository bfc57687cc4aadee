"""Where log lines go: warnings of Remit's own to the error stream, made safe; other libraries' nowhere.

A library's warning may quote what somebody else wrote, and is not a sentence that a person can act on.
"""

import logging

from remit.console.screen import complain


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def quiet() -> None:
    """Set up logging for a command. Repeatable."""
    root, own = logging.getLogger(), logging.getLogger("remit")
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    if not any(isinstance(handler, _Handler) for handler in own.handlers):
        own.addHandler(_Handler(logging.WARNING))
        own.propagate = False
