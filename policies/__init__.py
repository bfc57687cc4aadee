"""The control boundary: mandates, the policy and the only clients that ask it for a verdict."""

from remit.policies.ask import Judged, ask_all
from remit.policies.ceilings import beyond_ceiling
from remit.policies.engines import EmbeddedEngine, PolicyEngine, ServerEngine
from remit.policies.mandate_file import parse_mandate, read_mandate
from remit.policies.mandate_words import in_words
from remit.policies.revision import Policy, load_policy

__all__ = [
    "EmbeddedEngine",
    "Judged",
    "Policy",
    "PolicyEngine",
    "ServerEngine",
    "ask_all",
    "beyond_ceiling",
    "in_words",
    "load_policy",
    "parse_mandate",
    "read_mandate",
]
