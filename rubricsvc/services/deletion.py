"""`Deletable`: what nouns share whose rows are deleted with all that hangs on them."""

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from rubricsvc.queries import DeletionQuery
from rubricsvc.schemas.base import Deletion, takes
from rubricsvc.store import completions, deletion, rubrics
from rubricsvc.store.session import Database, existing, page_of
from rubricsvc.store.tables import CompletionRow, DatedRow, JobRow, LabelRow, RubricRow, RunRow

_NAMED: dict[str, Callable[[Session, int | str], Sequence[DatedRow]]] = {
    "Prompts": lambda session, ref: [completions.get_prompt(session, ref, only=True)],
    "Rubrics": lambda session, ref: (
        page_of(session, RubricRow, limit=None, name=str(ref)) or [rubrics.get(session, ref, allow_drafts=True)]
    ),
    "Completions": lambda session, ref: [existing(session, CompletionRow, "completion", ref)],
    "Labels": lambda session, ref: [existing(session, LabelRow, "label", ref, hint="`rubricsvc labels export`")],
    "Jobs": lambda session, ref: [existing(session, JobRow, "job", ref)],
    "Runs": lambda session, ref: [existing(session, RunRow, "run", ref)],
}
"""The rows that are meant, by noun: the name of a rubric means all of its versions."""


class Deletable:
    """A noun whose rows can be deleted."""

    db: Database

    @takes(DeletionQuery)
    def delete(self, ref: int | str, query: DeletionQuery) -> Deletion:
        """Delete it with all that hangs on it, such as the rubrics, completions, verdicts and labels of a prompt.

        The name of a rubric means all of its versions. With `dry_run` the rows are only counted. 404 if any of several
        is missing, and 409 while a job that is not finished, or a training run, uses one: then none is deleted.
        """
        with self.db.write() as session:
            rows = [row for one in (ref, *query.also) for row in _NAMED[type(self).__name__](session, one)]
            counts, names, may_quote = deletion.remove(session, type(rows[0]), {row.id for row in rows})
            if query.dry_run:
                session.rollback()
        erased = None if query.dry_run else deletion.erase(self.db)
        return Deletion(rows=counts, names=names, may_quote=may_quote, erased=erased)
