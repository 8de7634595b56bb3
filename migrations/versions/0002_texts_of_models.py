"""What came after the first schema, for databases that it made: texts of models, and the processes of a worker."""

from __future__ import annotations

from alembic import op
from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.states import NOT_APPROVED, OF_MODELS
from rubricsvc.store.rubrics import add_model_texts
from rubricsvc.store.tables import Base, RubricRow

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add what is missing, and keep the texts of drafts that models wrote."""
    connection = op.get_bind()
    op.drop_table("workers")  # those that run write themselves in again
    Base.metadata.create_all(connection)
    drafts = select(RubricRow).where(RubricRow.origin.in_(OF_MODELS), RubricRow.state.in_(NOT_APPROVED))
    with Session(connection) as session:
        for row in session.scalars(drafts).all():
            add_model_texts(session, row.value.texts, row.name, row.prompt_id, row.parent_id)
        session.flush()


def downgrade() -> None:
    """Leave the tables, which the first schema has too."""
