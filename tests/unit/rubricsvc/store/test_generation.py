"""Jobs that generate rubrics, in the store: submitted once, recorded under a valid lease, replies stored once."""

import pytest

from rubricsvc.core.generation import GateFindings, Generation, ProbeReward, Provenance
from rubricsvc.core.judge import Endpoint, Judge, Price, Sampling
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.store import completions, generation, jobs, judges, leases, rubrics
from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import GenerationLease
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import ReplyRow, RubricRow
from tests.rows import RUBRIC, submit_job

JUDGE = Judge(name="writer", model="m")


def submit(db: Database, *texts: str, external_id: str | None = None, **settings: object) -> int:
    with db.write() as session:
        ids = [completions.add_prompt(session, Prompt.of(text), external_id=external_id).id for text in texts]
        row = judges.add(session, JUDGE)
        given = Generation.model_validate(settings)
        return generation.submit(session, judge_id=row.id, prompt_ids=ids, generation=given).id


def claim(db: Database, *, whole_groups: bool = False) -> list[GenerationLease]:
    with db.write() as session:
        judge = judges.get(session, JUDGE.name).id
        taken = leases.claim(session, judge, limit=10, worker="w", seconds=60.0, whole_groups=whole_groups)
        return [lease for lease in taken if isinstance(lease, GenerationLease)]


def made(lease: GenerationLease, rubric: Rubric = RUBRIC, refused_by: tuple[str, ...] = ()) -> GeneratedItem:
    provenance = Provenance(
        method="one-shot",
        job_id=lease.job_id,
        judge="writer",
        model="m",
        template="one_shot",
        template_digest="0" * 64,
        sampling=Sampling(),
        redraws=1,
        repairs=2,
        raw_reply="{}",
        gate=GateFindings(judge="writer", probes={"empty": ProbeReward(reward=0.25)}, refused_by=refused_by),
    )
    return GeneratedItem(lease, rubric, provenance)


def test_submit_gives_the_same_job_for_the_same_settings(each_db: Database) -> None:
    first = submit(each_db, "Why?", "How?")
    assert submit(each_db, "How?", "Why?") == first
    assert submit(each_db, "How?", "Why?", method="reference-guided") != first
    assert submit(each_db, "How?") != first


def test_submit_refuses_what_cannot_be_generated(db: Database) -> None:
    members = (JUDGE, JUDGE.model_copy(update={"name": "other"}))
    with db.write() as session:
        panel = judges.add(session, Judge(name="panel", mode="panel", members=members)).id
        priced = judges.add(session, Judge(name="p", model="m", endpoint=Endpoint(price=Price(prompt=1)))).id
        unpriced = judges.add(session, JUDGE).id
        prompt = completions.add_prompt(session, Prompt.of("Why?")).id
        wrong = [
            {"judge_id": unpriced, "prompt_ids": []},
            {"judge_id": panel, "prompt_ids": [prompt]},
            {"judge_id": unpriced, "prompt_ids": [prompt], "budget": 1.0},
            {"judge_id": priced, "prompt_ids": [prompt], "budget": 1.0, "generation": Generation(gate_judge="writer")},
        ]
        for fields in wrong:
            with pytest.raises(InvalidError):
                generation.submit(session, **{"generation": Generation(), **fields})  # type: ignore[arg-type]


def test_submit_refuses_a_key_of_another_job(db: Database) -> None:
    scoring = submit_job(db, 1, judge=JUDGE, key="mine")
    with db.write() as session, pytest.raises(ConflictError):
        generation.submit(session, judge_id=1, prompt_ids=[1], generation=Generation(), key="mine")
    with db.read() as session:
        assert jobs.get(session, scoring).kind == "score"


def test_record_stores_each_rubric_with_its_provenance(each_db: Database) -> None:
    job = submit(each_db, "Why?", "How?")
    first, second = claim(each_db)
    other = Rubric(criteria=(*RUBRIC.criteria, Criterion(key="bad", text="Says nothing.", weight=-1)))
    with each_db.write() as session:
        results = [made(first), made(second, other, refused_by=("empty",))]
        assert generation.record(session, results) == [first.item_id, second.item_id]
    with each_db.write() as session:
        leases.finish(session, [job])
    with each_db.read() as session:
        rows = page_of(session, RubricRow)
        assert [(row.name, row.version, row.origin, row.state) for row in rows] == [
            (f"prompt-{lease.prompt_id}-one-shot", 1, "generated", "draft") for lease in (first, second)
        ]
        written = rubrics.get(session, rows[0].name, allow_drafts=True).provenance
        assert written is not None and written["redraws"] == 1
        assert [row.rubric_id for row in jobs.items(session, job)] == [row.id for row in rows]
        found = jobs.summary(session, job).generation
        assert jobs.get(session, job).status == "completed"
    assert found is not None and (found.prompts, found.rubrics, found.drafts) == (2, 2, 2)
    assert (found.refused_by, found.asked_again) == ({"empty": 1}, 0)


def test_record_drops_results_of_lost_leases(each_db: Database) -> None:
    job = submit(each_db, "Why?")
    (lease,) = claim(each_db)
    with each_db.write() as session:
        jobs.cancel(session, job)
    with each_db.write() as session:
        assert generation.record(session, [made(lease)]) == []
    with each_db.read() as session:
        assert page_of(session, RubricRow) == []


def test_record_names_rubrics_of_prompts_with_one_id_apart(each_db: Database) -> None:
    submit(each_db, "Why?", "How?", external_id="a@1 question")
    leased = claim(each_db)
    with each_db.write() as session:
        generation.record(session, [made(lease) for lease in leased])
    with each_db.read() as session:
        names = {row.prompt_id: row.name for row in page_of(session, RubricRow)}
    assert sorted(names.values()) == ["a-1 question-one-shot", f"prompt-{leased[1].prompt_id}-one-shot"]


def test_record_fails_items_with_their_reason_and_retry_reopens_them(each_db: Database) -> None:
    job = submit(each_db, "Why?")
    (lease,) = claim(each_db)
    failed = GeneratedItem(lease, reason="no_rubric: expected 2 to 20 criteria")
    with each_db.write() as session:
        generation.record(session, [failed])
    with each_db.write() as session:
        leases.finish(session, [job])
    with each_db.write() as session:
        assert jobs.get(session, job).status == "completed_with_failures"
        found = jobs.summary(session, job).generation
        assert found is not None and found.reasons == {"no_rubric": 1}
        assert jobs.retry(session, job) == 1
    (again,) = claim(each_db)
    assert (again.item_id, again.prompt_id) == (lease.item_id, lease.prompt_id)


def test_claim_takes_prompts_for_a_judge_that_compares(each_db: Database) -> None:
    submit(each_db, "Why?", "How?")
    assert len(claim(each_db, whole_groups=True)) == 2


def test_replies_are_stored_once(each_db: Database) -> None:
    job = submit(each_db, "Why?")
    (lease,) = claim(each_db)
    for text in ("first", "second"):
        with each_db.write() as session:
            generation.add_replies(session, lease.item_id, {"d" * 64: {"text": text}})
    with each_db.read() as session:
        (stored,) = page_of(session, ReplyRow, item_id=lease.item_id)
        assert (stored.digest, stored.reply) == ("d" * 64, {"text": "first"})
        summary = jobs.summary(session, job).generation
        assert summary is not None and summary.asked_again == 1


def test_scoring_refuses_a_job_that_generates(db: Database) -> None:
    job = submit(db, "Why?")
    with db.write() as session:
        for read in (jobs.scoring, jobs.rescore):
            with pytest.raises(InvalidError):
                read(session, job)
