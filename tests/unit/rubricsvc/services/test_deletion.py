"""Deletion of rows with all that hangs on them; of SQLite also from the bytes of its files."""

from typing import Any

import pytest
from sqlalchemy import select

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.errors import ConflictError, NotFoundError
from rubricsvc.schemas.runs import RolloutGroup, RunHeartbeat, RunStep
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database, sqlite_file
from rubricsvc.store.tables import ItemRow
from tests.recorded_run import new_run, rollout, run_evaluation
from tests.rows import RUBRIC, item_result

SECRET = "Mrs Example of room 12"


def fill(db: Database) -> LocalService:
    """Prompts 1 and 2 with a rubric, 40 completions, verdicts, labels and a job each; a run on prompt 1."""
    s = LocalService(db)
    for name, text in (("secret", SECRET), ("other", "Mr Other")):
        with db.write() as session:
            prompt_id = completions.add_prompt(session, Prompt.of(f"What of {text}?"), name).id
            row = rubrics.add(session, RUBRIC, name=name, prompt_id=prompt_id)
            given = ((prompt_id, Completion(text=f"{n}: {text} is well. " * (1 + 60 * n))) for n in range(40))
            ids = completions.add_many(session, given)
            judge_id = judges.add(session, Judge(name="j", model="m")).id
            jobs.submit(session, judge_id=judge_id, items=[(id_, row.id) for id_ in ids])
            for lease in leases.claim(session, judge_id, limit=40, worker="w", seconds=60):
                found = [
                    Verdict.scored(one.key, 1.0, rationale=f"It names {text}.", evidence=({"quote": text},))
                    for one in RUBRIC.criteria
                ]
                leases.record(session, [item_result(lease, RUBRIC, found)])
            leases.finish(session)
        labels = [
            {
                "completion_id": id_,
                "rubric": row.id,
                "label": Label(criterion="c1", annotator="ann", value=1.0, note=text),
            }
            for id_ in ids
        ]
        s.labels.add(labels=labels)
    s.runs.create(new_run())
    group = RolloutGroup(prompt=Prompt.of(f"What of {SECRET}?"), rubric=RUBRIC, rollouts=(rollout(SECRET),))
    s.runs.record(1, RunStep(step=1, metrics={"step": 1}, groups=(group,)))
    s.runs.record_evaluation(1, run_evaluation(0))
    return s


def rows(s: LocalService, noun: str, ref: int | str, **query: Any) -> dict[str, int]:
    return getattr(s, noun).delete(ref, **query).rows


def test_delete_removes_all_that_hangs_on_a_prompt(each_db: Database) -> None:
    s = fill(each_db)
    with pytest.raises(ConflictError):
        rows(s, "prompts", "secret")
    s.runs.heartbeat(1, RunHeartbeat(state="finished"))
    expected = {
        "prompts": 1,
        "rubrics": 1,
        "completions": 41,
        "items": 40,
        "verdicts": 120,
        "labels": 40,
        "rollouts": 1,
    }
    assert rows(s, "prompts", "secret", dry_run=True) == expected
    assert s.prompts.get("secret").id == 1, "a dry run deletes nothing"
    assert rows(s, "prompts", "secret") == expected
    with pytest.raises(NotFoundError):
        rows(s, "prompts", "secret")
    assert len(s.labels.page(limit=1000).data) == 40 and len(s.verdicts.page(limit=1000).data) == 120
    if (file := sqlite_file(each_db.url)) is not None:
        for each in file.parent.glob(f"{file.name}*"):
            assert SECRET.encode() not in each.read_bytes(), each


def test_delete_takes_what_hangs_on_each_noun(each_db: Database) -> None:
    """A verdict stays while another item asks its question; the record of a run has no item of a deleted job."""
    s = fill(each_db)
    s.runs.heartbeat(1, RunHeartbeat(state="finished"))
    first, second = (one.id for one in s.completions.page(prompt_id="secret", limit=2))
    items = [{"completion_id": one, "rubric": "secret@1"} for one in (first, second)]
    queued = s.jobs.submit(judge="j", key="again", items=items).id
    with each_db.write() as session:  # its part of the job is done, and the job is not
        of_first = select(ItemRow).where(ItemRow.job_id == queued, ItemRow.completion_id == first)
        session.scalars(of_first).one().state = "done"
    for noun, ref in (("completions", first), ("jobs", queued), ("rubrics", "secret")):
        with pytest.raises(ConflictError) as error:
            rows(s, noun, ref)
        assert f"rubricsvc jobs cancel {queued}" in error.value.hint
    s.jobs.cancel(queued)
    cases: list[tuple[str, int | str, dict[str, int]]] = [
        ("jobs", queued, {"jobs": 1, "items": 2}),
        ("labels", 1, {"labels": 1}),
        ("completions", first, {"completions": 1, "items": 1, "verdicts": 3}),
        ("jobs", 1, {"jobs": 1, "items": 39, "verdicts": 117}),
        ("rubrics", "secret", {"rubrics": 1, "labels": 39, "rollouts": 1}),
        ("runs", 1, {"runs": 1, "run_metrics": 1, "run_evaluations": 1}),
    ]
    for noun, ref, expected in cases:
        found = rows(s, noun, ref)
        assert {name: found.get(name) for name in expected} == expected, noun
        assert noun == "runs" or found == expected, (noun, found)
    assert len(s.verdicts.page(limit=1000).data) == 120
