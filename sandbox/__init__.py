"""The sandbox company: a pretend company in its own process, with its own database and credentials.

It is the world that the other layers act on, and it imports none of them.
"""

from remit.sandbox.checker import Finding, check
from remit.sandbox.client import Control
from remit.sandbox.lifecycle import SandboxError, SandboxInfo, credentials, info, reset, start, stop
from remit.sandbox.records import dump
from remit.sandbox.worlds import running_world

__all__ = [
    "Control",
    "Finding",
    "SandboxError",
    "SandboxInfo",
    "check",
    "credentials",
    "dump",
    "info",
    "reset",
    "running_world",
    "start",
    "stop",
]
