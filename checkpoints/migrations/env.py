"""Alembic's environment: one transaction for all revisions, on the connection of `remit.checkpoints.migrate`."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="migrations", version_table_schema="remit")
with context.begin_transaction():
    context.run_migrations()
