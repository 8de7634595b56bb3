"""Best-of-n over jobs: which samples and gold scores are used, and what judges' curves are."""

from collections.abc import Sequence

import numpy as np
import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import OVERALL, Label
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.schemas.jobs import BestOfN
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, labels, rubrics
from rubricsvc.store.session import Database

PROMPTS, SAMPLES = 6, 4
GOLD = np.random.default_rng(0).random((PROMPTS, SAMPLES))
RUBRIC = Rubric(
    criteria=(
        Criterion(key="judged", text="Is good.", weight=1),
        Criterion(key="checked", text="Is long.", weight=3, check={"name": "words", "args": {"min": 4}}),
    )
)


def submit(db: Database, name: str, rewards: Sequence[Sequence[float | None]], *, model: str = "") -> int:
    """Score the same completions by a judge; return the job's id."""
    with db.write() as session:
        judge = judges.add(session, Judge(name=name, model=model or name))
        rubric = rubrics.add(session, RUBRIC, name="r").id
        ids: list[int] = []
        for number, row in enumerate(rewards):
            prompt = completions.add_prompt(session, Prompt.of(f"question {number}")).id
            texts = [f"words {number} {'x ' * sample}" for sample in range(len(row))]
            ids += completions.add_many(session, [(prompt, Completion(text=text)) for text in texts])
        job = jobs.submit(session, judge_id=judge.id, items=[(id_, rubric) for id_ in ids]).id
        for row, reward in zip(jobs.items(session, job, limit=1000), np.concatenate(rewards), strict=True):
            row.reward = reward
        return job


def found(db: Database, job_ids: Sequence[int], gold: object, **options: int) -> BestOfN:
    return LocalService(db).jobs.best_of_n(job=tuple(job_ids), gold=str(gold), **options)


def values(curve: Sequence[object]) -> list[float]:
    return [one.value for one in curve]


def test_best_of_n_ranks_judges_by_what_they_choose(db: Database) -> None:
    gold = submit(db, "gold", GOLD)
    perfect, opposite, constant = (submit(db, f"j{n}", one) for n, one in enumerate((GOLD, -GOLD, 0 * GOLD)))
    result = found(db, [perfect, opposite, constant], gold)
    assert (result.n, result.prompts, result.left_out) == ((1, 2, 4), 6, {})
    best, worst, same = result.judges
    assert values(best.gold) == values(result.oracle)
    assert values(best.gold)[2] == pytest.approx(GOLD.max(1).mean())
    assert values(worst.gold)[2] == pytest.approx(GOLD.min(1).mean())
    assert values(same.gold) == pytest.approx([GOLD.mean()] * 3)
    for judge, share in ((best, 1.0), (same, 0.0)):
        assert judge.oracle_share.value == pytest.approx(share)
        assert (judge.oracle_share.low, judge.oracle_share.high) == (pytest.approx(share), pytest.approx(share))
    low, high = worst.oracle_share.low, worst.oracle_share.high
    assert low is not None and high is not None and low < worst.oracle_share.value < high < 0
    assert best.difference is None
    assert worst.difference.high < 0 and worst.difference.value == pytest.approx((GOLD.min(1) - GOLD.max(1)).mean())
    assert best.gain.low < best.gain.value == pytest.approx((GOLD.max(1) - GOLD.mean(1)).mean())
    assert (best.judge, best.job_id) == ("j0", perfect)


def test_best_of_n_leaves_out_and_counts_what_lacks_a_score(db: Database) -> None:
    proxy, gold = GOLD.tolist(), GOLD.tolist()
    proxy[0][0], gold[1][1], gold[1][2] = None, None, None
    jobs_ = submit(db, "proxy", proxy), submit(db, "other", GOLD.tolist())
    by = submit(db, "gold", gold)
    reasons = {"without a reward of each judge": 1, "without gold": 2}
    result = found(db, jobs_, by)
    assert (result.prompts, result.n, result.left_out) == (6, (1, 2), reasons)
    result = found(db, jobs_, by, n=3)
    assert (result.prompts, result.n) == (5, (1, 2, 3))
    assert result.left_out == reasons | {"of a prompt with fewer samples": 2}


def test_best_of_n_refuses_its_own_judge_as_gold(db: Database) -> None:
    first, second = submit(db, "proxy", GOLD, model="m"), submit(db, "another name", GOLD, model="m")
    for gold in (first, second, "people"):
        with pytest.raises(InvalidError) as raised:
            found(db, [first], gold)
        assert raised.value.path == "gold"
    with pytest.raises(NotFoundError):
        found(db, [first], 99)
    with pytest.raises(NotFoundError):
        found(db, [99], first)


def test_gold_by_labels_is_the_mean_of_overall_scores(db: Database) -> None:
    job = submit(db, "proxy", GOLD)
    with pytest.raises(InvalidError) as raised:
        found(db, [job], "labels")
    assert raised.value.path == "gold"
    with db.write() as session:
        rows = list(zip(jobs.items(session, job, limit=1000), GOLD.ravel().tolist(), strict=True))[SAMPLES:]
        scores = [(row, who, value) for row, gold in rows for who, value in (("ann", gold), ("ben", 0.5))]
        given = [(row, Label(criterion=OVERALL, annotator=who, value=value)) for row, who, value in scores]
        labels.add_many(session, [(row.completion_id, row.rubric_id, one) for row, one in given])
    result = found(db, [job], "labels")
    assert values(result.oracle)[-1] == pytest.approx(((GOLD[1:] + 0.5) / 2).max(1).mean())
    assert (result.gold_source, result.prompts, result.left_out) == ("overall labels", 5, {"without gold": SAMPLES})
