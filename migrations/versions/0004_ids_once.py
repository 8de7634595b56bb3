"""Ids of deleted rows are not given again, on SQLite as on PostgreSQL: work in progress names rows by their ids.

What SQLite stores of a table is the same with AUTOINCREMENT and without, so its statement alone is rewritten.
"""

from __future__ import annotations

import re

from alembic import op
from sqlalchemy import text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Rewrite the statements of tables that count their own ids."""
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    op.execute("CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)")  # SQLite adds its table of counters
    op.execute("DROP TABLE counted")
    counted = list[str]()
    version = connection.scalar(text("PRAGMA schema_version")) or 0
    op.execute("PRAGMA writable_schema = ON")
    for name, sql in connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")).all():
        statement, found = re.subn(r",\s*CONSTRAINT \w+ PRIMARY KEY \(id\)", "", sql)
        if found:
            counted.append(name)
            statement = statement.replace("\tid INTEGER NOT NULL", "\tid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT")
            values = {"sql": statement, "name": name}
            connection.execute(
                text("UPDATE sqlite_master SET sql = :sql WHERE name = :name AND type = 'table'"), values
            )
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = RESET")
    for name in counted:  # else the first row to come would have the largest id of those that are left then
        highest = f"SELECT '{name}', max(id) FROM {name} HAVING max(id) > 0"  # noqa: S608 - a table's name
        op.execute(f"INSERT INTO sqlite_sequence (name, seq) {highest}")


def downgrade() -> None:
    """Leave the statements, which earlier versions can read."""
