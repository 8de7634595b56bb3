"""Deletion of rows with all that hangs on them; of SQLite also from the bytes of its files."""

from typing import Any

import pytest
from sqlalchemy import select

from rubricsvc.core.generation import Provenance, Specification
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.schemas.runs import RolloutGroup, RunHeartbeat, RunStep
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, generation, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database, sqlite_file
from rubricsvc.store.tables import Base, EvolutionRow, EvolutionStepRow, ItemRow
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
        mark = Label(criterion="c1", annotator="ann", value=1.0, note=text)
        labels = [{"completion_id": id_, "rubric": row.id, "label": mark} for id_ in ids]
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
    gone = {"prompts": 1, "rubrics": 1, "completions": 41, "items": 40, "verdicts": 120, "labels": 40, "rollouts": 1}
    assert rows(s, "prompts", "secret", dry_run=True) == gone
    assert s.prompts.get("secret").id == 1, "a dry run deletes nothing"
    assert rows(s, "prompts", "secret") == gone
    with each_db.write() as session:
        assert completions.add_many(session, [(2, Completion(text="new"))])[0] > 81, "no id is given again"
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


GENERATED = {
    **{"method": "one-shot", "judge": "j", "model": "m", "template": "t", "template_digest": "0", "sampling": {}},
    **{"redraws": 0, "repairs": 0, "raw_reply": SECRET},
    "gate": {"judge": "j", "probes": {"own": {"reward": 1.0, "reasons": {"c1": SECRET}}}},
}


def tables_with(db: Database, text: str) -> set[str]:
    with db.read() as session:
        return {
            table.name
            for table in Base.metadata.sorted_tables
            if any(text in repr(row) for row in session.execute(select(table)))
        }


def test_delete_clears_what_models_wrote_of_a_completion_and_the_last_use_of_a_text(each_db: Database) -> None:
    """Rubrics that quote it may stay, and are listed; a specification goes with its job, a key with its questions."""
    s, key = LocalService(each_db), "Key of it"
    rubric = Rubric(criteria=(Criterion(key=key, text="Is kind."),))
    with each_db.write() as session:
        prompt_id = completions.add_prompt(session, Prompt.of("What?"), "p").id
        judge_id, row = judges.add(session, Judge(name="j", model="m")).id, rubrics.add(session, rubric, name="r")
        completion = Completion(text=SECRET)
        (completion_id,) = completions.add_many(session, [(prompt_id, completion)])
        jobs.submit(session, judge_id=judge_id, items=[(completion_id, row.id)])
        for lease in leases.claim(session, judge_id, limit=1, worker="w", seconds=60):
            leases.record(session, [item_result(lease, rubric, [Verdict.scored(key, 1.0)])])
        proposed = {"shown": [completion.digest], "raw_reply": SECRET}
        evolution = EvolutionRow(key="e", rubric_id=row.id)
        session.add(EvolutionStepRow(evolution=evolution, step=0, rubric_id=row.id, round=proposed))
    house = Specification(name="house", text="Be kind to Mr Spec.")
    job = s.rubrics.generate(judge="j", method="principles", specification=house, gate=False)
    with each_db.write() as session:
        (lease,) = leases.claim(session, judge_id, limit=1, worker="w", seconds=60)
        generation.add_replies(session, lease.item_id, {"q": {"text": SECRET}})
        made = Provenance.model_validate(GENERATED | {"job_id": job.id})
        generation.record(session, [generation.GeneratedItem(lease, rubric=RUBRIC, provenance=made)])
        leases.finish(session)
    assert tables_with(each_db, SECRET) == {"completions", "rubrics", "replies", "evolution_steps"}
    assert tables_with(each_db, key) >= {"questions", "verdicts"}
    found = s.completions.delete(completion_id)
    assert (found.names, found.may_quote) == ({"completions": [str(completion_id)]}, ["p-one-shot@1"])
    assert not tables_with(each_db, SECRET) and tables_with(each_db, key) == {"rubrics"}
    assert tables_with(each_db, "Mr Spec") == {"texts"}
    s.jobs.delete(job.id)
    assert not tables_with(each_db, "Mr Spec")


def test_delete_refuses_an_id_of_several_prompts(each_db: Database) -> None:
    s = LocalService(each_db)
    ids = [s.prompts.add(prompt=text, external_id="one").id for text in ("What is one?", "What is the other one?")]
    with pytest.raises(InvalidError, match=f"2 prompts have the id 'one': {ids[0]}, {ids[1]}"):
        s.prompts.delete("one")
    s.prompts.delete(ids[0])
    assert s.prompts.delete("one").names == {"prompts": [f"{ids[1]} one"]}
    here = s.prompts.add(prompt="What is two?").id
    there = s.prompts.add(prompt="What is three?", external_id=str(here)).id
    assert [s.prompts.get(ref).id for ref in (here, str(here), there)] == [here, here, there]
    with pytest.raises(InvalidError, match=f"2 prompts have the id '{here}': {here}, {there}"):
        s.prompts.delete(str(here))
