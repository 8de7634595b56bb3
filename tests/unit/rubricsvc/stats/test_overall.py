"""Regression of overall scores on synthetic and real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.bench_calibration import fit
from rubricsvc.core.label import JudgedLabel, Label
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats.overall import OverallModel, fit_overall, fit_to_labels
from tests import llm_rubric

OFFSETS = {"ann": 0.2, "bob": -0.2, "eve": 0.0}


def draw(n: int, weight: float) -> tuple[np.ndarray, list[float], list[str], list[int]]:
    random = np.random.default_rng(1)
    features = random.random((n, 3))
    people = [list(OFFSETS)[i % 3] for i in range(n)]
    noise = random.normal(0, 0.05, n)
    scores = [weight * (x[0] - 0.5) + 0.5 + OFFSETS[p] + e for x, p, e in zip(features, people, noise, strict=True)]
    return features, np.clip(scores, 0, 1).tolist(), people, [i // 2 for i in range(n)]


def test_fit_overall_finds_weights_and_offsets() -> None:
    features, scores, people, prompts = draw(120, 0.5)
    fitted = fit_overall(("a", "b", "c"), features.tolist(), scores, people, prompts, judge_scores=scores, resamples=0)
    assert fitted.model.weights["a"] == pytest.approx(0.5, abs=0.1)
    assert fitted.model.weights["b"] == pytest.approx(0.0, abs=0.1)
    assert fitted.model.person_offsets["ann"] - fitted.model.person_offsets["bob"] == pytest.approx(0.4, abs=0.08)
    known = (fitted.no_person, fitted.person_mean, fitted.person_offset)
    unknown, mean, offset = (estimate.value or 0.0 for estimate in known)
    assert offset > 0.9 > unknown and offset > mean and fitted.judge is not None
    one = [Verdict.scored(key, value) for key, value in zip("abc", features[0], strict=True)]
    average = fitted.model.predict(one)
    assert average is not None
    assert fitted.model.predict(one, "ann") == pytest.approx(average + fitted.model.person_offsets["ann"])
    assert fitted.model.predict(one, "unknown person") == average


def test_fit_to_labels_uses_the_levels_of_a_readout() -> None:
    """The worth of an ordinal finding hides what people go by: here, whether it is the middle level."""
    random = np.random.default_rng(4)
    rows = []
    for n in range(60):
        middle = float(random.random())
        shares = {"bad": (1 - middle) / 2, "fair": middle, "good": (1 - middle) / 2}
        verdicts = {"a": Verdict.scored("a", 0.5, probability=0.5, levels=shares)}
        rows.append(JudgedLabel(n, n, 1, Label(criterion="overall", annotator="ann", value=middle), None, verdicts))
    fitted = fit_to_labels(rows, resamples=0)
    assert set(fitted.model.weights) == {"a=bad", "a=fair", "a=good"} and (fitted.no_person.value or 0.0) > 0.99
    assert fitted.model.predict(rows[0].verdicts.values()) == pytest.approx(rows[0].label.value, abs=0.05)
    bare = Verdict.scored("a", 0.5, probability=0.5)
    assert fitted.model.predict([bare]) is None
    mixed = [*rows, JudgedLabel(60, 60, 1, rows[0].label, None, {"a": bare})]
    assert set(fit_to_labels(mixed, resamples=0).model.weights) == {"a"}


def test_fit_overall_predicts_nothing_from_noise() -> None:
    features, _, people, prompts = draw(120, 0.0)
    scores = np.random.default_rng(2).random(120).tolist()
    fitted = fit_overall(("a", "b", "c"), features.tolist(), scores, people, prompts, resamples=0)
    # it may be below 0: a fold's mean falls where its held-out part is high
    assert (fitted.person_offset.value or 0.0) < 0.25


def judged(n: int, *, criteria: tuple[str, ...] = ("a", "b", "c"), fail: int = 0) -> list[JudgedLabel]:
    features, scores, people, prompts = draw(n, 0.5)
    rows = []
    for i in range(n):
        verdicts = {key: Verdict.scored(key, x) for key, x in zip(criteria, features[i], strict=False)}
        if i < fail:
            verdicts["a"] = Verdict.failed("a", "timeout")
        label = Label(criterion="overall", annotator=people[i], value=scores[i])
        rows.append(JudgedLabel(i, prompts[i], 1, label, None, verdicts, reward=0.5 if i % 2 else 0.4))
    other = Label(criterion="a", annotator="ann", value=1.0)
    return [*rows, JudgedLabel(0, 0, 1, other, Criterion(key="a", text="A."), {}, None)]


def test_fit_to_labels_leaves_out_failures() -> None:
    fitted = fit_to_labels(judged(80, fail=5), resamples=0)
    assert (fitted.scores, fitted.people, set(fitted.model.weights)) == (75, 3, {"a", "b", "c"})
    assert fitted.judge is not None and fitted.judge.value is not None


def test_overall_model_predicts_from_probabilities_and_not_from_failures() -> None:
    """To what it was fitted on: the probability, where there is one."""
    kept = OverallModel(weights={"a": 0.5, "b": 0.25}, intercept=0.1, person_offsets={"ann": 0.2}).model_dump_json()
    overall = OverallModel.model_validate_json(kept)
    a, b = Verdict.scored("a", 1.0, probability=0.8), Verdict.scored("b", 1.0)
    assert overall.predict([a, b, Verdict.failed("c", "timeout")]) == pytest.approx(0.1 + 0.4 + 0.25)
    assert overall.predict([b, a], "ann") == pytest.approx(0.95)
    assert overall.predict([a]) is overall.predict([a, Verdict.failed("b", "timeout")]) is None


def test_fit_to_labels_refuses_too_few_scores() -> None:
    with pytest.raises(InvalidError, match=r"\b12\b.*\b6\b"):
        fit_to_labels(judged(12))
    apart = judged(40, criteria=("a",)) + judged(40, criteria=("z",))
    with pytest.raises(InvalidError, match="criterion"):
        fit_to_labels(apart)
    with pytest.raises(InvalidError, match=r"\b0\b.*\b0\b"):
        fit_to_labels([])


def test_fit_overall_reaches_the_published_correlation(shared_data: Path) -> None:
    """LLM-Rubric's own figures on these dialogues are 0.177 raw and 0.313 calibrated."""
    fitted = fit(llm_rubric.read(shared_data), seed=0)
    assert (fitted.scores, fitted.people) == (223, 13)
    assert fitted.judge is not None and fitted.judge.value == pytest.approx(0.177, abs=0.0005)
    assert fitted.person_offset.value is not None and fitted.person_offset.value > 0.313
