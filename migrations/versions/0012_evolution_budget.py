"""Name the limit of an evolution's cost as that of a job: budget.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the column."""
    op.execute("ALTER TABLE evolutions RENAME COLUMN max_cost TO budget")


def downgrade() -> None:
    """Rename it back."""
    op.execute("ALTER TABLE evolutions RENAME COLUMN budget TO max_cost")
