"""One small tree of errors; each says what its reader may do, and its last sentence is the next step.

Every class carries its attributes as constructor arguments, so that it survives pickling between processes.
"""


class RemitError(Exception):
    """Something that a person can act on. Read the last sentence of the message."""

    def __init__(self, message: str = "", *, code: str = "error", **details: object) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.code = code
        self.details = details

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), str(self), self.code, self.details))


def _rebuild(kind: type[RemitError], message: str, code: str, details: dict[str, object]) -> RemitError:
    return kind(message, code=code, **details)


class Refused(RemitError):
    """The request is final as it stands and will not become right by being repeated. Correct it first."""


class NotSent(RemitError):
    """Nothing was written to the receiver. It is safe to try again."""


class OutcomeUnknown(RemitError):
    """The receiver may have acted. Verify at the system of record before anything is sent again."""


class NoAnswer(RemitError):
    """Policy gave no exact, complete answer, so nothing is sent. Run `remit policy check`."""


class LeaseLost(RemitError):
    """Another worker took this run over. Nothing needs to be done here; see `remit runs`."""


class Misconfigured(RemitError):
    """A contract, policy or setting is not usable, so Remit does not start. Correct what the message names."""
