"""Durability: ledger, gates, approvals, journal, cases, the settle sweep, and LangGraph's Postgres saver."""

from remit.checkpoints.database import Database, open_pool
from remit.checkpoints.ledger import Ledger
from remit.checkpoints.migrate import migrate
from remit.checkpoints.people import People
from remit.checkpoints.saver import Unreadable, saver, thread_config
from remit.checkpoints.sweep import Sweep
from remit.checkpoints.workers import Worker

__all__ = [
    "Database",
    "Ledger",
    "People",
    "Sweep",
    "Unreadable",
    "Worker",
    "migrate",
    "open_pool",
    "saver",
    "thread_config",
]
