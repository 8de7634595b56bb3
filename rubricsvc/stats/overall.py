"""Regression of people's overall scores on a judge's verdicts (LLM-Rubric, arXiv 2501.00274). Needs ``judging``.

Ridge regression on the verdicts (of a readout: on the probabilities of all levels) with an offset for each person,
since people use a scale differently, and, if that predicts better, weights for each person beside the shared ones
(features copied for each domain: Daume, ACL 2007). Its quality is measured by nested cross-validation over whole
prompts: the outer folds measure, the inner ones choose the penalty and whether people have weights of their own. As in
the paper, a score is predicted for a known person, whose labels on *other* prompts are in the training data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.linear_model import Ridge, ridge_regression
from sklearn.model_selection import GroupKFold

from rubricsvc.core.base import Value
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats.agreement import RESAMPLES, Estimate, Pairs, estimate_metrics
from rubricsvc.stats.intervals import Floats

MIN_SCORES = 30
FOLDS, INNER_FOLDS = 10, 5
MIN_PERSON_SCORES = 10
"""People with fewer scores have no weights of their own."""
MAX_PERSON_COLUMNS = 600
"""With more columns (people times features) no person has weights: fitting would take minutes."""
PENALTIES = np.logspace(-2, 3, 11)
_TENTHS = tuple(step / 10 for step in range(11))


class OverallModel(Value):
    """score = intercept + Σ weight · value + the person's offset; values are in [0, 1], the sum is not clipped.

    A key of ``weights`` is a criterion's key, or ``key=level`` for the probability of that level. ``person_weights``
    are differences from the weights of people on average.
    """

    weights: dict[str, float] = Field(min_length=1)
    intercept: float
    person_offsets: dict[str, float] = Field(default_factory=dict)
    person_weights: dict[str, dict[str, float]] = Field(default_factory=dict)

    def score(self, values: Mapping[str, float], person: str | None = None) -> float:
        """Return the score that ``person`` would give, or people on average if it is None or unknown.

        Raises:
            KeyError: A value is missing.
        """
        own = self.person_weights.get(person or "", {})
        weighted = sum((weight + own.get(key, 0.0)) * values[key] for key, weight in self.weights.items())
        return self.intercept + weighted + self.person_offsets.get(person or "", 0.0)

    def predict(self, verdicts: Iterable[Verdict], person: str | None = None) -> float | None:
        """Return the `score` of a judge's verdicts on one completion; None if a value is missing."""
        values = _features({verdict.criterion: verdict for verdict in verdicts})
        return self.score(values, person) if self.weights.keys() <= values.keys() else None


@dataclass(frozen=True, slots=True)
class OverallFit:
    """A fitted model, and Pearson's r of people's scores with predictions on held-out prompts.

    ``judge`` is the judge's own score, if it has one. ``no_person`` is not given the person, ``person_mean`` is
    given nothing else, ``person_offset`` adds an offset a person, and ``person_weights`` is ``model``.
    """

    model: OverallModel
    scores: int
    people: int
    prompts: int
    judge: Estimate | None
    no_person: Estimate
    person_mean: Estimate
    person_offset: Estimate
    person_weights: Estimate


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

    Args:
        columns: The names of the features.
        features: [N, len(columns)], values of verdicts or probabilities of levels.
        scores: [N], people's overall scores.
        people: [N], who gave each score.
        prompts: [N], the prompt of each score.
        judge_scores: [N], the judge's own scores.
        resamples: The number of bootstrap draws of an interval.
        seed: The seed of the folds.

    Raises:
        InvalidError: There are too few scores or prompts.
    """
    if len(scores) < MIN_SCORES or len(set(prompts)) < FOLDS:
        raise InvalidError(
            f"a regression needs at least {MIN_SCORES} overall scores on at least {FOLDS} prompts, found "
            f"{len(scores)} on {len(set(prompts))}",
            hint="label more completions under the key 'overall' (`rubricsvc labels import FILE`), and let the judge "
            "score them (`rubricsvc jobs submit --judge NAME --wait`)",
        )
    x, y, groups = np.asarray(features, float), np.asarray(scores, float), np.asarray(prompts)
    names = sorted(set(people))
    one_hot = (np.asarray(people)[:, None] == np.asarray(names)[None]).astype(float)
    nothing = np.empty((len(y), 0))

    def pearson(predicted: Floats) -> Estimate:
        pairs = Pairs.of(predicted.tolist(), y.tolist(), _TENTHS)
        return estimate_metrics(pairs, groups.tolist(), ("pearson",), resamples=resamples)["pearson"]

    def cross_validated(features: Floats, persons: Floats, *, person_weights: bool = False) -> Estimate:
        return pearson(_Regression(features, persons, y, groups, seed, person_weights).cross_predicted())

    return OverallFit(
        model=_Regression(x, one_hot, y, groups, seed, person_weights=True).fitted(columns, names),
        scores=len(y),
        people=len(names),
        prompts=len(set(prompts)),
        judge=pearson(np.asarray(judge_scores, float)) if judge_scores is not None else None,
        no_person=cross_validated(x, nothing),
        person_mean=cross_validated(nothing, one_hot),
        person_offset=cross_validated(x, one_hot),
        person_weights=cross_validated(x, one_hot, person_weights=True),
    )


def fit_to_labels(rows: Iterable[JudgedLabel], *, resamples: int = RESAMPLES, seed: int = 0) -> OverallFit:
    """Fit a model to ``overall`` labels and a judge's verdicts on the criteria that all rubrics share.

    The features of a criterion are the probabilities of its levels if all verdicts have the same levels, else the
    probability or the value. The judge's own score is its ``overall`` verdict if it is asked for one, else its reward.
    Completions with a missing value are left out.

    Raises:
        InvalidError: The rubrics share no criterion, or there are too few scores.
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


@dataclass(frozen=True)
class _Regression:
    """``x`` [N, F] features, ``people`` [N, P] one-hot, ``y`` [N] scores, ``groups`` [N] prompts.

    ``person_weights`` says whether people may have weights of their own.
    """

    x: Floats
    people: Floats
    y: Floats
    groups: NDArray[Any]
    seed: int
    person_weights: bool = False

    @cached_property
    def frequent(self) -> NDArray[Any]:
        """The people [K] who may have weights of their own."""
        enough = np.flatnonzero(self.people.sum(0) >= MIN_PERSON_SCORES)
        allowed = self.person_weights and len(enough) * self.x.shape[1] <= MAX_PERSON_COLUMNS
        return enough if allowed else enough[:0]

    @cached_property
    def designs(self) -> list[Floats]:
        """The candidates: [N, F + P], and [N, F + P + F K] with the features of each frequent person."""
        plain = np.hstack([self.x, self.people])
        if not len(self.frequent):
            return [plain]
        own = self.x[:, :, None] * self.people[:, None, self.frequent]
        return [plain, np.hstack([plain, own.reshape(len(self.y), -1)])]

    def cross_predicted(self) -> Floats:
        """Return the score of each row [N], predicted without its prompt."""
        predicted = np.empty_like(self.y)
        folds = GroupKFold(FOLDS, shuffle=True, random_state=self.seed)
        for fit, test in folds.split(predicted, groups=self.groups):
            design, ridge = self._ridge(fit)
            predicted[test] = ridge.predict(design[test])
        return predicted

    def _ridge(self, rows: NDArray[Any]) -> tuple[Floats, Ridge]:
        """Return the better design, and the regression on these rows of it."""
        errors = [self._errors(design[rows], self.y[rows], self.groups[rows]) for design in self.designs]
        design = self.designs[int(np.argmin([each.min() for each in errors]))]
        penalty = PENALTIES[min(errors, key=np.min).argmin()]
        return design, Ridge(penalty).fit(design[rows], self.y[rows])

    def _errors(self, design: Floats, y: Floats, groups: NDArray[Any]) -> Floats:
        """Return the squared error of each penalty on folds of whole prompts.

        Features are not standardised: they share a scale, and a criterion with hardly any variance must not count for
        more than one with much.
        """
        errors = np.zeros(len(PENALTIES))
        folds = GroupKFold(INNER_FOLDS, shuffle=True, random_state=self.seed)
        for fit, test in folds.split(design, groups=groups):
            middle, mean = design[fit].mean(0), y[fit].mean()
            repeated = np.repeat(y[fit, None] - mean, len(PENALTIES), 1)  # one decomposition solves for all penalties
            weights = ridge_regression(design[fit] - middle, repeated, PENALTIES, solver="svd")
            errors += np.square((design[test] - middle) @ weights.T + mean - y[test, None]).mean(0)
        return errors

    def fitted(self, columns: Sequence[str], names: Sequence[str]) -> OverallModel:
        """Return the model fitted to all rows. An unknown person is predicted as people on average."""
        _, ridge = self._ridge(np.arange(len(self.y)))
        weights, offsets, rest = np.split(ridge.coef_, np.cumsum([len(columns), len(names)]))
        own, share = np.zeros((len(columns), len(names))), self.people.mean(0)
        if rest.size:
            own[:, self.frequent] = rest.reshape(len(columns), -1)
        weights, own = weights + own @ share, own - (own @ share)[:, None]
        average = float(share @ offsets)
        return OverallModel(
            weights=_by_name(columns, weights),
            intercept=float(ridge.intercept_) + average,
            person_offsets=_by_name(names, offsets - average),
            person_weights={
                name: _by_name(columns, each) for name, each in zip(names, own.T, strict=True) if rest.size
            },
        )


def _by_name(names: Sequence[str], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
