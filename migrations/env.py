"""Alembic's entry. `rubricsvc.store.session` has opened the connection and the transaction that this runs in."""

from alembic import context

from rubricsvc.store.tables import Base

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
