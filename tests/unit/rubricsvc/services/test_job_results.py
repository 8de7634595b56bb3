"""The results of a job: sums over its criteria, and its extreme completions."""

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Usage, Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.services import job_results
from rubricsvc.services.job_results import BINS, distribution, read_results
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from tests.rows import item_result

DOSE = Criterion(key="dose", text="States the dose.", weight=3, tags=("facts",))
SOURCE = Criterion(key="source", text="Names a source.", weight=1, tags=("facts", "form"), required=True)
RUDE = Criterion(key="rude", text="Is rude.", weight=-2, tags=("form",))
VALUES: list[tuple[float | None, ...]] = [(1.0, 1.0, 0.0), (0.5, 1.0, 1.0), (1.0, 0.0, 0.0), (None, 1.0, 0.0)]


@pytest.fixture(params=[1, 100])
def job(db: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """A job over eight completions of two prompts, with a rubric of one wording each; pages of one, and one page."""
    monkeypatch.setattr(job_results, "ITEMS_PER_PAGE", request.param)
    usage = Usage(prompt=10, completion=2)
    with db.write() as session:
        judge = judges.add(session, Judge(name="test", model="m"))
        wanted = []
        for n, dose in enumerate((DOSE, DOSE.model_copy(update={"text": "States another dose."}))):
            prompt = completions.add_prompt(session, Prompt.of(f"Question {n}?"))
            rubric = Rubric(criteria=(dose, SOURCE, RUDE))
            rubric_id = rubrics.add(session, rubric, name=f"r{n}", prompt_id=prompt.id).id
            texts = [(prompt.id, Completion(text=f"answer {k}", policy="ab"[k % 2])) for k in range(4)]
            wanted += [(id_, rubric_id) for id_ in completions.add_many(session, texts)]
        job_id = jobs.submit(session, judge_id=judge.id, items=wanted, name="try").id
        for lease, values in zip(leases.claim(session, 1, limit=8, worker="w", seconds=60), VALUES * 2, strict=True):
            verdicts = [
                Verdict.failed(key, "timeout") if value is None else Verdict.scored(key, value, usage=usage)
                for key, value in zip(("dose", "source", "rude"), values, strict=True)
            ]
            leases.record(session, [item_result(lease, rubric, verdicts, way=str(lease.rubric_id))])
        leases.finish(session)
    return job_id


def test_read_results_sums_by_criterion_by_falling_gain(db: Database, job: int) -> None:
    results = read_results(db, job, extremes=10)
    expected = [("Is rude.", 8), ("Names a source.", 8), ("States another dose.", 4), ("States the dose.", 4)]
    assert [(row.text, row.completions) for row in results.criteria] == expected
    rude, source, dose, _ = results.criteria
    assert (rude.gain, rude.rewarded) == (pytest.approx(1.0), 6)
    assert (rude.met, rude.scored, rude.values, rude.weights) == (2, 8, 2.0, {-2.0})
    assert (source.vetoes, source.met) == (2, 6)
    assert (dose.failed, dose.scored, dose.gain, dose.values) == (1, 3, pytest.approx(0.375), 2.5)


def test_read_results_has_distributions_and_extremes(db: Database, job: int) -> None:
    results = read_results(db, job, extremes=3)
    assert results.rewards is not None and results.rewards.n == 6
    assert [(name, one.n) for name, one in results.policies.items()] == [("a", 4), ("b", 2)]
    assert [one.row.reward for one in results.worst] == pytest.approx([0.0, 0.0, 0.125])
    assert [one.row.reward for one in results.best] == pytest.approx([1.0, 1.0])  # the third is among the worst
    assert [one.row.reward for one in results.without_reward] == [None, None]
    assert sum(results.null_reasons.values()) == 2
    assert results.usage is not None and (results.usage.prompt, results.usage.completion) == (220, 44)
    assert (results.rubrics, results.formulas) == ({"r0@1": 4, "r1@1": 4}, {"weighted_mean": 6})
    assert (results.low, results.high) == (0.0, 1.0)


def test_read_results_of_an_unfinished_job(db: Database, job: int) -> None:
    with db.write() as session:
        ids = jobs.completion_ids(session, job)[:1]
        empty = jobs.submit(session, judge_id=1, items=[(ids[0], 1)], key="new").id
    results = read_results(db, empty, extremes=10)
    assert (results.rewards, results.worst, results.null_reasons) == (None, [], {"pending": 1})
    assert (results.usage, results.policies) == (None, {})
    with pytest.raises(NotFoundError):
        read_results(db, 99, extremes=10)


def test_distribution_counts_rewards_in_bars() -> None:
    found = distribution([0.0, 0.04, 0.05, 1.0, 0.999, 0.5], [1, 1, 1, 1, 1, 1], range(6), 0.0, 1.0)
    assert found is not None
    assert (found.n, sum(found.counts)) == (6, 6)
    assert (found.counts[0], found.counts[1], found.counts[BINS // 2], found.counts[-1]) == (2, 1, 1, 2)
    assert distribution([], [], [], 0.0, 1.0) is None


def test_distribution_treats_prompts_as_independent() -> None:
    found = distribution([0.1, 0.9] * 5, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], range(10), 0.0, 1.0)
    assert found is not None and found.mean.low == pytest.approx(0.5)
