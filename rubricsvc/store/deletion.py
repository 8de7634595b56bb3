"""Deletion of rows with all that hangs on them, as the foreign keys of the tables say, in one transaction."""

from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from sqlite3 import OperationalError
from typing import Any

from sqlalchemy import delete, func, select, text, tuple_, update
from sqlalchemy.orm import Session, undefer

from rubricsvc.core.states import OF_MODELS
from rubricsvc.errors import ConflictError
from rubricsvc.store import runs, tables
from rubricsvc.store.completions import with_verdicts
from rubricsvc.store.leases import database_time
from rubricsvc.store.session import Database, batched, by_id, rows_with
from rubricsvc.store.tables import CompletionRow, ItemRow, JobRow, RolloutRow, RubricRow, RunRow, VerdictRow

CLEARED = {"rubrics.parent_id", "rollouts.item_id", "evaluation_rewards.item_id"}
"""References that become null: their rows stay."""
_NOT_OWNED = {*CLEARED, "verdicts.rubric_id"}
_SHARED: tuple[tuple[Any, Any], ...] = (
    (tables.QuestionRow.question_set, ItemRow.question_set),
    (tables.TextRow.digest, JobRow.settings["specification"]["digest"].as_string()),
)
"""Columns with a digest, and those that name it: its row goes with the last that does."""
_NAMES = {tables.PromptRow: "external_id", RubricRow: "ref", CompletionRow: "policy", tables.LabelRow: "annotator"}
MOST_NAMED = 5  # rows of a table
Removed = tuple[dict[str, int], dict[str, list[str]], list[str]]


def remove(session: Session, table: type[tables.DatedRow], ids: Collection[int]) -> Removed:
    """Delete rows with all that hangs on them; return how many of each table, and the first by id and name.

    A verdict is deleted with its completion, or with the last item that asks its question. With a completion the
    replies of models that may quote it are cleared; the rubrics that were made of them stay, and are returned, too.

    Raises:
        ConflictError: A job that is not finished, or a training run that reports, uses some of it.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("LOCK TABLE questions, texts"))  # no row that refers to one of them is added meanwhile
    ordered = tables.Base.metadata.sorted_tables
    found = defaultdict[str, set[int]](set, {table.__tablename__: set(ids)})
    new = [(table.__tablename__, ids)]
    references = [(key.column.table.name, column) for one in ordered for column in one.c for key in column.foreign_keys]
    while new:
        parent, added = new.pop()
        for column in (one for name, one in references if name == parent and str(one) not in _NOT_OWNED):
            if "id" in column.table.c:
                rows = {id_ for (id_,) in rows_with(session, select(column.table.c.id), column, added)}
                if fresh := rows - found[column.table.name]:
                    found[column.table.name] |= fresh
                    new.append((column.table.name, fresh))
    _add_verdicts(session, found)
    place = select(tables.EvaluationCompletionRow.evaluation_id, tables.EvaluationCompletionRow.place)
    shown = [*rows_with(session, place, tables.EvaluationCompletionRow.id, found["evaluation_completions"])]
    reward = tables.EvaluationRewardRow
    rewards = rows_with(session, select(reward.id), tuple_(reward.evaluation_id, reward.place), map(tuple, shown))
    found["evaluation_rewards"] |= {id_ for (id_,) in rewards}
    _reject_running(session, found)
    may_quote, names = _clear_replies(session, found), dict[str, list[str]]()
    for row_of, name in (*_NAMES.items(), (JobRow, "name"), (RunRow, "name")):
        if some := sorted(found[row_of.__tablename__]):
            first = [(row.id, getattr(row, name)) for row in by_id(session, row_of, some[:MOST_NAMED]).values()]
            shown_names = [f"{id_} {named}" if named else str(id_) for id_, named in first]
            names[row_of.__tablename__] = shown_names + ["…"] * (len(some) > MOST_NAMED)
    for child in reversed(ordered):
        for parent, column in references:
            for chunk in batched(found[parent] if column.table is child else ()):
                if str(column) in CLEARED:
                    session.execute(update(child).where(column.in_(chunk)).values({column: None}))
                elif "id" not in child.c:
                    session.execute(delete(child).where(column.in_(chunk)))
        for chunk in batched(found[child.name]):
            session.execute(delete(child).where(child.c.id.in_(chunk)))
    for key, name in _SHARED if found["items"] or found["jobs"] else ():
        session.execute(delete(key.class_.__table__).where(key.not_in(select(name).where(name.is_not(None)))))
    session.expire_all()
    return {one.name: len(found[one.name]) for one in ordered if found[one.name]}, names, may_quote


def _add_verdicts(session: Session, found: dict[str, set[int]]) -> None:
    """Add the verdicts whose questions no item asks any more; of the others, name the rubric of an item that does."""
    items, versions = found["items"], found["rubrics"]
    asked = rows_with(session, with_verdicts(select(VerdictRow.id).select_from(ItemRow)), ItemRow.id, items)
    of_rubrics = rows_with(session, select(VerdictRow.id), VerdictRow.rubric_id, versions)
    ids = {id_ for rows in (asked, of_rubrics) for (id_,) in rows}
    asking = select(VerdictRow.id, ItemRow.id, ItemRow.rubric_id, tables.QuestionRow.criterion).select_from(ItemRow)
    rows = rows_with(session, with_verdicts(asking), VerdictRow.id, ids)
    others = {id_: names for id_, item, *names in rows if item not in items}
    found["verdicts"] |= ids - others.keys()
    for row in by_id(session, VerdictRow, others).values():
        if row.rubric_id in versions:
            row.rubric_id, row.criterion = others[row.id]
    session.flush()


def _clear_replies(session: Session, found: dict[str, set[int]]) -> list[str]:
    """Clear what models wrote for the completions' prompts, or shown them; return the rubrics that they made of it."""
    own = select(CompletionRow.prompt_id, CompletionRow.digest)
    of_prompts = {*map(tuple, rows_with(session, own, CompletionRow.id, found["completions"]))}
    prompts, digests = {id_ for id_, _ in of_prompts} - found["prompts"], {digest for _, digest in of_prompts}
    replies = select(tables.ReplyRow.id).join(ItemRow, ItemRow.id == tables.ReplyRow.item_id)
    found["replies"] |= {id_ for (id_,) in rows_with(session, replies, ItemRow.prompt_id, prompts)}
    may_quote = list[str]()
    rubrics = select(RubricRow).options(undefer(RubricRow.provenance)).where(RubricRow.origin.in_(OF_MODELS))
    for (row,) in rows_with(session, rubrics, RubricRow.prompt_id, prompts):
        may_quote += [row.ref] * (row.id not in found["rubrics"])
        if row.provenance is not None:
            gate = row.provenance.get("gate")
            probes = gate and {"probes": {name: one | {"reasons": {}} for name, one in gate["probes"].items()}}
            row.provenance = row.provenance | {"raw_reply": "", "cleaned": None, "gate": gate and gate | probes}
    steps = select(tables.EvolutionStepRow).join(tables.EvolutionRow).where(tables.EvolutionStepRow.round.is_not(None))
    evolved = func.coalesce(tables.EvolutionRow.prompt_id, 0)  # on labels, of any prompt
    for (step,) in [*rows_with(session, steps, evolved, {0, *prompts} if digests else ())]:
        if digests & {*step.round.get("shown", ())}:
            step.round = step.round | {"raw_reply": ""}
    session.flush()
    return may_quote


def _reject_running(session: Session, found: dict[str, set[int]]) -> None:
    under_way = select(ItemRow.job_id).join(tables.JobRow).where(tables.JobRow.finished_at.is_(None))
    for (job_id,) in rows_with(session, under_way, ItemRow.id, found["items"]):
        raise ConflictError(f"job {job_id} uses it", hint=f"cancel it first: `rubricsvc jobs cancel {job_id}`")
    completion, evaluation = tables.EvaluationCompletionRow, tables.EvaluationRow
    evaluated = select(evaluation.run_id).join(completion, completion.evaluation_id == evaluation.id)
    used = [*rows_with(session, select(RolloutRow.run_id), RolloutRow.id, found["rollouts"])]
    used += rows_with(session, evaluated, completion.id, found["evaluation_completions"])
    for run in by_id(session, RunRow, found["runs"] | {id_ for (id_,) in used}).values():
        if (status := runs.status(run, database_time(session))) in runs.LIVE:
            raise ConflictError(f"run {run.id} is {status}", hint=f"stop it first: `rubricsvc runs stop {run.id}`")


def erase(db: Database) -> bool | None:
    """Rewrite the file of SQLite without what was deleted, and its log; return whether that is done, None elsewhere.

    Pages that SQLite has reorganized keep copies of deleted text, so that overwriting deleted rows is not enough.
    """
    if db.engine.name != "sqlite":
        return None
    with closing(db.engine.raw_connection()) as connection:
        connection.detach()  # it alone has little patience: while somebody reads, all others wait for it
        try:
            connection.executescript("PRAGMA busy_timeout = 2000; VACUUM")
            return not connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except OperationalError:  # another process reads or writes, or the disk is full
            return False
