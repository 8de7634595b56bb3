"""Rubrics analysed from recorded verdicts and labels."""

import numpy as np
import pytest

from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.services.job_results import read_results
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.store import labels
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.services.test_comparing import score

KEYS = ("right", "copy", "always", "rude", "long")
WEIGHTS = (2.0, 1.0, 1.0, -1.0, 1.0)
RUBRIC = Rubric(
    criteria=tuple(Criterion(key=k, text=f"Is {k}.", weight=w) for k, w in zip(KEYS, WEIGHTS, strict=True)),
    formula="healthbench",
)
PROMPTS, EACH = 20, 6


def table(seed: int = 0) -> np.ndarray:
    """Values [N, 5]: one criterion, its copy, one that is always met, one that varies, one that follows the length."""
    random = np.random.default_rng(seed)
    right = random.integers(0, 2, PROMPTS * EACH)
    long = np.arange(PROMPTS * EACH) % EACH >= EACH // 2
    return np.column_stack([right, right, np.ones_like(right), random.integers(0, 2, len(right)), long]).astype(float)


def texts(values: np.ndarray) -> list[tuple[str, str, list[float | None]]]:
    return [
        (f"prompt {n // EACH}", f"text {n} " + "x" * (200 * (n % EACH >= EACH // 2)), list(row))
        for n, row in enumerate(values.tolist())
    ]


def test_analyse_counts_and_advises(each_db: Database) -> None:
    values = table()
    score(each_db, "j", texts(values), rubric=RUBRIC)
    found = Rubrics(each_db).analyse("r")
    assert (found.rubric, found.judge, found.completions, found.prompts, found.groups) == ("r@1", "j", 120, 20, 20)
    right, _, always, rude, long = found.criteria
    assert [one.n for one in found.criteria] == [120] * 5
    assert right.mean.value == pytest.approx(values[:, 0].mean())
    assert (always.saturated, always.variance_within) == ("met", 0.0)
    assert long.varying_groups == 1.0
    assert long.length_correlation == pytest.approx(1.0, abs=0.05)
    assert sum(one.variance_share or 0 for one in found.criteria) == pytest.approx(1.0)
    assert [(pair.a, pair.b, pair.n) for pair in found.redundant] == [("right", "copy", 120)]
    expected = {("right", "reweigh"), ("copy", "retire"), ("always", "retire"), ("long", "check")}
    assert {(one.criterion, one.action) for one in found.advice} == expected
    assert found.reward.n == 120 and rude.edge is None


def test_analysis_and_report_give_the_same_interval_or_none(db: Database) -> None:
    """Completions of one prompt are independent; from 2 to 4 prompts there is no interval, of no figure."""
    for prompts in (1, 3, 5):
        each = [(f"prompt {prompts} {n % prompts}", f"text {n}", [n % 3 / 2, 1, 0, 0, 0]) for n in range(15)]
        job = score(db, f"j{prompts}", each, rubric=RUBRIC)
        found, page = Rubrics(db).analyse("r", job_id=job), read_results(db, job, extremes=1)
        assert page.rewards is not None and page.rewards.mean == found.reward.mean
        known = {figure.low is not None for figure in (found.reward.mean, *(one.met for one in found.criteria))}
        assert known == {prompts != 3}


def test_analyse_reads_labels_and_preferences(db: Database) -> None:
    values = table()
    score(db, "j", texts(values), rubric=RUBRIC)
    with db.write() as session:
        for number, row in enumerate(values.tolist()):
            scores = {"overall": row[0] * 0.8 + 0.1 * row[3], "right": row[0], "rude": 1 - row[3]}
            entries = [(number + 1, 1, Label(criterion=k, annotator="ann", value=v)) for k, v in scores.items()]
            labels.add_many(session, entries)
    found = Rubrics(db).analyse("r")
    right, _, _, rude, _ = found.criteria
    assert right.agreement["accuracy"].value == 1.0
    assert rude.agreement["weighted_kappa"].value == pytest.approx(-1.0, abs=0.2)
    assert (right.labels, rude.labels) == (120, 120)
    assert right.edge is not None and right.edge.value is not None and right.edge.value > 0.5
    advice = {(one.criterion, one.action) for one in found.advice}
    assert {("rude", "sharpen"), ("rude", "retire")} <= advice  # kappa, and people prefer completions that meet it
