"""Durability: ledger, gates, approvals, journal, cases, the settle sweep, and LangGraph's Postgres saver.

The saver is imported from its own module: most commands, `stop` first of all, need no LangGraph and start without it.
"""

from remit.checkpoints.database import Database, open_pool
from remit.checkpoints.ledger import Ledger
from remit.checkpoints.migrate import migrate
from remit.checkpoints.people import People
from remit.checkpoints.sweep import Sweep
from remit.checkpoints.workers import Worker

__all__ = [
    "Database",
    "Ledger",
    "People",
    "Sweep",
    "Worker",
    "migrate",
    "open_pool",
]
