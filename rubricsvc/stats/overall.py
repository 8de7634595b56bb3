"""Regression of people's overall scores on a judge's verdicts (LLM-Rubric, arXiv 2501.00274). Needs ``judging``.

Ridge regression on the verdicts (of a readout: on the probabilities of all levels) with an offset for each person,
since people use a scale differently. Its quality is measured by cross-validation over whole prompts; within the
training folds, leave-one-out chooses the penalty. As in the paper, a score is predicted for a known person, whose
labels on *other* prompts are in the training data. Features are not standardised: they share a scale, and a criterion
with hardly any variance must not count for more than one with much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, cross_val_predict

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats import RESAMPLES
from rubricsvc.stats.agreement import TENTHS, Pairs, Sample, estimate_metrics
from rubricsvc.stats.intervals import Floats

MIN_SCORES = 30
FOLDS = 10
PENALTIES = np.logspace(-2, 3, 11)


class OverallModel(Value):
    """score = intercept + Σ weight · value + the person's offset; values are in [0, 1], the sum is not clipped.

    A key of ``weights`` is a criterion's key, or ``key=level`` for the probability of that level.
    """

    weights: dict[str, float] = Field(min_length=1)
    intercept: float
    person_offsets: dict[str, float] = Field(default_factory=dict)

    def predict(self, verdicts: Iterable[Verdict], person: str | None = None) -> float | None:
        """Return the score that ``person`` would give to a completion with these verdicts; None if a value is missing.

        Where the person is None or unknown, it is that of people on average.
        """
        values = _features({verdict.criterion: verdict for verdict in verdicts})
        if not self.weights.keys() <= values.keys():
            return None
        weighted = sum(weight * values[key] for key, weight in self.weights.items())
        return self.intercept + weighted + self.person_offsets.get(person or "", 0.0)


@dataclass(frozen=True, slots=True)
class OverallFit:
    """A fitted model, and Pearson's r of people's scores with predictions on held-out prompts.

    ``judge`` is the judge's own score, if it has one. ``no_person`` is not given the person, ``person_mean`` is
    given nothing else, and ``person_offset`` is ``model``.
    """

    model: OverallModel
    scores: int
    people: int
    prompts: int
    judge: Estimate | None
    no_person: Estimate
    person_mean: Estimate
    person_offset: Estimate


def fit_overall(
    columns: Sequence[str],
    features: Sequence[Sequence[float]],
    scores: Sequence[float],
    people: Sequence[str],
    prompts: Sequence[int],
    *,
    judge_scores: Sequence[float] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> OverallFit:
    """Fit a model and measure it.

    ``features`` [N, len(columns)] are values of verdicts or probabilities of levels; the others are [N]. ``seed`` is
    that of the folds. Too few scores or prompts raise an InvalidError.
    """
    if len(scores) < MIN_SCORES or len(set(prompts)) < FOLDS:
        raise InvalidError(
            f"a regression needs at least {MIN_SCORES} overall scores on at least {FOLDS} prompts, found "
            f"{len(scores)} on {len(set(prompts))}",
            hint="label more completions under the key 'overall' (`rubricsvc labels import FILE`), and let the judge "
            "score them (`rubricsvc jobs submit --judge NAME --wait`)",
        )
    x, y, names = np.asarray(features, float), np.asarray(scores, float), sorted(set(people))
    one_hot = (np.asarray(people)[:, None] == np.asarray(names)[None]).astype(float)
    folds = GroupKFold(FOLDS, shuffle=True, random_state=seed)

    def pearson(predicted: Sequence[float]) -> Estimate:
        sample = Sample.of(Pairs.of(predicted, scores, TENTHS), prompts)
        return estimate_metrics(sample, ("pearson",), resamples=resamples)["pearson"]

    def cross_validated(design: Floats) -> Estimate:
        return pearson(cross_val_predict(RidgeCV(PENALTIES), design, y, groups=prompts, cv=folds))

    ridge = RidgeCV(PENALTIES).fit(np.hstack([x, one_hot]), y)
    weights, offsets = np.split(ridge.coef_, [len(columns)])
    average = float(one_hot.mean(0) @ offsets)
    return OverallFit(
        model=OverallModel(
            weights=dict(zip(columns, weights.tolist(), strict=True)),
            intercept=float(ridge.intercept_) + average,
            person_offsets=dict(zip(names, (offsets - average).tolist(), strict=True)),
        ),
        scores=len(y),
        people=len(names),
        prompts=len(set(prompts)),
        judge=pearson(judge_scores) if judge_scores is not None else None,
        no_person=cross_validated(x),
        person_mean=cross_validated(one_hot),
        person_offset=cross_validated(np.hstack([x, one_hot])),
    )


def fit_to_labels(rows: Iterable[JudgedLabel], *, resamples: int = RESAMPLES, seed: int = 0) -> OverallFit:
    """Fit a model to ``overall`` labels and a judge's verdicts on the criteria that all rubrics share.

    The features of a criterion are the probabilities of its levels if all verdicts have the same levels, else the
    probability or the value. The judge's own score is its ``overall`` verdict if it is asked for one, else its reward.
    Completions with a missing value are left out. Rubrics without a shared criterion raise an InvalidError.
    """
    scored = [row for row in rows if row.label.criterion == OVERALL and row.label.value is not None and row.verdicts]
    shared = set.intersection(*(set(row.verdicts) for row in scored)) if scored else set()
    if scored and not shared:
        hint = "an overall score is regressed on criteria that every completion is judged by: use one rubric for all"
        raise InvalidError("the rubrics of the completions with overall scores share no criterion", hint=hint)
    columns = [name for key in sorted(shared) for name in _columns(key, [row.verdicts[key] for row in scored])]
    table = [(row, _features(row.verdicts)) for row in scored]
    complete = [
        (row, [features[name] for name in columns]) for row, features in table if features.keys() >= set(columns)
    ]
    own = [_value(row.verdicts[OVERALL]) if OVERALL in shared else row.reward for row, _ in complete]
    judge_scores = [score for score in own if score is not None]
    return fit_overall(
        columns,
        [features for _, features in complete],
        [row.label.value or 0.0 for row, _ in complete],
        [row.label.annotator for row, _ in complete],
        [row.prompt_id for row, _ in complete],
        judge_scores=judge_scores if len(judge_scores) == len(complete) else None,
        resamples=resamples,
        seed=seed,
    )


def _columns(key: str, verdicts: Iterable[Verdict]) -> list[str]:
    """Return a column for each level if all verdicts have the same levels, else one column."""
    levels = [verdict.levels or {} for verdict in verdicts if verdict.value is not None]
    same = levels and all(each.keys() == levels[0].keys() for each in levels)
    return [f"{key}={level}" for level in levels[0]] if same and levels[0] else [key]


def _features(verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Return the values and the probabilities of levels of verdicts by column name."""
    values = {key: value for key, verdict in verdicts.items() if (value := _value(verdict)) is not None}
    levels = {f"{key}={name}": p for key, verdict in verdicts.items() for name, p in (verdict.levels or {}).items()}
    return levels | values


def _value(verdict: Verdict) -> float | None:
    return verdict.value if verdict.probability is None else verdict.probability
