"""An index of a job's items by id, so that reading a large job in pages does not sort all items for each page.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_items_page", "items", ["job_id", "id"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_items_page", "items")
