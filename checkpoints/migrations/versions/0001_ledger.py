"""The ledger: tables, transitions, journal, authority, approvals, runs, claims, records."""

from pathlib import Path

from alembic import op

from remit.checkpoints.migrate import digests

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run each `.sql` file of the folder in order, as one statement list each."""
    driver = op.get_bind().connection.driver_connection
    assert driver is not None, "an open connection was handed in"
    # Functions name each other across files; each call is checked when it is first made, and by the tests.
    driver.execute("SET LOCAL check_function_bodies = off")
    for file in sorted((Path(__file__).parent.parent / "0001").glob("*.sql")):
        driver.execute(file.read_text(encoding="utf-8"))
    driver.execute("INSERT INTO remit.builds VALUES (%s, %s)", (revision, digests()[revision]))
