"""The states, facts, gates and reasons of DESIGN sections 1 and 6, as closed enumerations.

The database holds the transition table; these are its names in Python. Nothing here decides anything.
"""

from enum import StrEnum


class State(StrEnum):
    """Where the ledger stands with one operation. DESIGN section 6."""

    PENDING = "PENDING"
    SENDING = "SENDING"
    UNKNOWN = "UNKNOWN"
    ACCEPTED = "ACCEPTED"
    SETTLED = "SETTLED"
    CLOSED = "CLOSED"


class Fact(StrEnum):
    """What the evidence proves about one operation. DESIGN section 1."""

    NOT_SENT = "NOT_SENT"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    UNKNOWN = "UNKNOWN"


class Closed(StrEnum):
    """Why an operation was closed without an effect."""

    DENIED = "denied"
    REJECTED = "rejected"
    EXPIRED = "expired"
    STALE = "stale"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    BY_PERSON = "by_person"


class Gate(StrEnum):
    """What still keeps an operation from being sent."""

    POLICY = "policy"
    APPROVAL = "approval"
    HOLD = "hold"
    REQUIREMENT = "requirement"
    LIMIT = "limit"
    RECEIVER = "receiver"
    BACKOFF = "backoff"
    STOP = "stop"
    FREEZE = "freeze"
    CASE = "case"


class Verdict(StrEnum):
    """Policy's answer for one action; deny outranks needs_approval outranks allow."""

    ALLOW = "allow"
    NEEDS_APPROVAL = "needs_approval"
    DENY = "deny"


class Reversibility(StrEnum):
    """How an effect can be taken back, from the tool's contract."""

    REVERSIBLE = "reversible"
    COMPENSABLE = "compensable"
    IRREVERSIBLE = "irreversible"


class Consequence(StrEnum):
    """How much depends on one effect, from the tool's contract; policy may raise it."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Seen(StrEnum):
    """What one attempt showed its sender; `classify` of a contract answers with one of these, by default UNKNOWN."""

    NOT_WRITTEN = "not_written"
    RATE_LIMITED = "rate_limited"
    CREDENTIAL = "credential"
    RECEIVER_DOWN = "receiver_down"
    REFUSED = "refused"
    PRECONDITION = "precondition"
    IN_PROGRESS = "in_progress"
    KEY_REUSED = "key_reused"
    ACCEPTED = "accepted"
    STORED_FAILURE = "stored_failure"
    """A 5xx that the receiver kept under the key: its last word under that key, and none about the effect."""
    UNKNOWN = "unknown"


class Sight(StrEnum):
    """What a system of record showed when it was asked about one reference."""

    ABSENT = "absent"
    PENDING = "pending"
    EFFECTIVE = "effective"
    DIFFERENT = "different"
    MULTIPLE = "multiple"
    WITHDRAWN = "withdrawn"
    UNREADABLE = "unreadable"


class RunStatus(StrEnum):
    """Where a run stands; the last five are ends."""

    RUNNING = "RUNNING"
    PAUSED_AWAITING_APPROVAL = "PAUSED_AWAITING_APPROVAL"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    INCOMPLETE = "INCOMPLETE"
    BLOCKED = "BLOCKED"
