"""From a judge's findings on several criteria to one person's score of the whole (LLM-Rubric, arXiv 2501.00274).

Ridge regression on the findings (of a readout: on the probabilities of all levels), with an offset for each person,
since people read the same scale differently, and, where that tells more, with weights for each person beside those for
all, since people care for different things (features copied for each domain: Daume, ACL 2007). What it is worth is told
by nested cross-validation that never has one prompt on both sides: the outer folds tell, the inner ones choose the
penalty, and whether people have weights of their own. The person is known when a score is told, and the person's labels
on *other* prompts are learned from, as in the paper.
Needs the extra ``judging``.
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
from rubricsvc.stats.agreement import RESAMPLES, Figure, Pairs, measure
from rubricsvc.stats.intervals import Floats

LEAST_SCORES = 30
FOLDS, INNER_FOLDS = 10, 5
LEAST_OWN = 10
"""Whoever gave fewer scores has no weights of their own."""
MOST_OWN = 600
"""Nobody has, where people times columns would be more: fitting would take minutes."""
PENALTIES = np.logspace(-2, 3, 11)
_FINE = tuple(step / 10 for step in range(11))


class Overall(Value):
    """score = intercept + Σ weight · finding + the person's offset. Findings lie in [0, 1]; the sum is not clipped.

    A column of ``weights`` is a criterion's key, or ``key=level`` for the probability of that level. ``own`` has by how
    much a person's weights differ from those of people on average.
    """

    weights: dict[str, float] = Field(min_length=1)
    intercept: float
    people: dict[str, float] = Field(default_factory=dict)
    own: dict[str, dict[str, float]] = Field(default_factory=dict)

    def score(self, findings: Mapping[str, float], person: str | None = None) -> float:
        """The score that ``person`` would give, or, unnamed or unknown, people on average.

        Raises:
            KeyError: a finding is missing.
        """
        own = self.own.get(person or "", {})
        told = sum((weight + own.get(key, 0.0)) * findings[key] for key, weight in self.weights.items())
        return self.intercept + told + self.people.get(person or "", 0.0)

    def predict(self, verdicts: Iterable[Verdict], person: str | None = None) -> float | None:
        """`score` of a judge's verdicts on one completion; None where a finding is missing: a failure is no number."""
        found = _columns_of({verdict.criterion: verdict for verdict in verdicts})
        return self.score(found, person) if self.weights.keys() <= found.keys() else None


@dataclass(frozen=True, slots=True)
class OverallFit:
    """What came of it, on held-out prompts: Pearson's r of people's scores with the regression that knows the person
    (``personal``), with one that knows the person's offset only (``shifted``), with one that does not know the person
    (``pooled``), and with the person's habit alone (``habit``), beside the judge's own score (``raw``), where it has
    one. ``overall`` is the first of them."""

    overall: Overall
    scores: int
    people: int
    prompts: int
    raw: Figure | None
    pooled: Figure
    habit: Figure
    shifted: Figure
    personal: Figure


def fit_overall(
    columns: Sequence[str],
    findings: Sequence[Sequence[float]],
    scores: Sequence[float],
    people: Sequence[str],
    prompts: Sequence[int],
    *,
    raw: Sequence[float] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> OverallFit:
    """Fit and tell. ``findings`` [N, len(columns)]: values, or the probabilities of all levels; the rest [N].

    Raises:
        InvalidError: too few scores or prompts.
    """
    if len(scores) < LEAST_SCORES or len(set(prompts)) < FOLDS:
        raise InvalidError(
            f"a regression takes at least {LEAST_SCORES} overall scores on at least {FOLDS} prompts, and there are "
            f"{len(scores)} on {len(set(prompts))}",
            hint="label more completions under the key 'overall' (`rubricsvc labels import FILE`), and let the judge "
            "score them (`rubricsvc jobs submit --judge NAME --wait`)",
        )
    x, y, groups = np.asarray(findings, float), np.asarray(scores, float), np.asarray(prompts)
    names = sorted(set(people))
    who = (np.asarray(people)[:, None] == np.asarray(names)[None]).astype(float)
    nothing = np.empty((len(y), 0))

    def told(features: Floats, persons: Floats, *, may_own: bool = False) -> Figure:
        predicted = _Data(features, persons, y, groups, seed, may_own).cross_predicted()
        return _pearson(predicted, y, groups, resamples)

    return OverallFit(
        overall=_Data(x, who, y, groups, seed, may_own=True).fitted(columns, names),
        scores=len(y),
        people=len(names),
        prompts=len(set(prompts)),
        raw=_pearson(np.asarray(raw, float), y, groups, resamples) if raw is not None else None,
        pooled=told(x, nothing),
        habit=told(nothing, who),
        shifted=told(x, who),
        personal=told(x, who, may_own=True),
    )


def fit_judged(rows: Iterable[JudgedLabel], *, resamples: int = RESAMPLES, seed: int = 0) -> OverallFit:
    """``fit_overall`` on what one judge found on the criteria that all rubrics share: of each the probabilities of all
    its levels, where they are there and the same throughout, else the probability, else the value. ``raw`` is the
    judge's own ``overall`` where it is asked for that, else its reward.

    A completion on which a finding is missing is left out.

    Raises:
        InvalidError: the rubrics have no criterion in common, or there are too few scores.
    """
    scored = [row for row in rows if row.label.criterion == OVERALL and row.label.value is not None and row.verdicts]
    shared = set.intersection(*(set(row.verdicts) for row in scored)) if scored else set()
    if scored and not shared:
        hint = "an overall score is regressed on criteria that every completion is judged by: use one rubric for all"
        raise InvalidError("the rubrics of the completions with overall scores share no criterion", hint=hint)
    columns = [column for key in sorted(shared) for column in _columns(key, [row.verdicts[key] for row in scored])]
    table = [(row, _columns_of(row.verdicts)) for row in scored]
    whole = [(row, [found[name] for name in columns]) for row, found in table if found.keys() >= set(columns)]
    own = [_found(row.verdicts[OVERALL]) if OVERALL in shared else row.reward for row, _ in whole]
    raw = [score for score in own if score is not None]
    return fit_overall(
        columns,
        [values for _, values in whole],
        [row.label.value or 0.0 for row, _ in whole],
        [row.label.annotator for row, _ in whole],
        [row.prompt_id for row, _ in whole],
        raw=raw if len(raw) == len(whole) else None,
        resamples=resamples,
        seed=seed,
    )


def _columns(key: str, verdicts: Iterable[Verdict]) -> list[str]:
    """A column for each level, where all verdicts have the same ones; else one column."""
    told = [verdict.levels or {} for verdict in verdicts if verdict.value is not None]
    alike = told and all(levels.keys() == told[0].keys() for levels in told)
    return [f"{key}={level}" for level in told[0]] if alike and told[0] else [key]


def _columns_of(found: Mapping[str, Verdict]) -> dict[str, float]:
    """What verdicts give of all columns, by name."""
    known = {key: value for key, verdict in found.items() if (value := _found(verdict)) is not None}
    levels = {f"{key}={name}": p for key, verdict in found.items() for name, p in (verdict.levels or {}).items()}
    return levels | known


def _found(verdict: Verdict) -> float | None:
    return verdict.value if verdict.probability is None else verdict.probability


def _pearson(predicted: Floats, scores: Floats, groups: NDArray[Any], resamples: int) -> Figure:
    pairs = Pairs.of(predicted.tolist(), scores.tolist(), _FINE)
    return measure(pairs, groups.tolist(), ("pearson",), resamples=resamples)["pearson"]


@dataclass(frozen=True)
class _Data:
    """``x`` [N, F] findings, ``who`` [N, P] people one-hot, ``y`` [N] scores, ``groups`` [N] prompts.

    ``may_own``: people may have weights of their own.
    """

    x: Floats
    who: Floats
    y: Floats
    groups: NDArray[Any]
    seed: int
    may_own: bool = False

    @cached_property
    def owners(self) -> NDArray[Any]:
        """The people [K] who may have weights of their own."""
        enough = np.flatnonzero(self.who.sum(0) >= LEAST_OWN)
        return enough if self.may_own and len(enough) * self.x.shape[1] <= MOST_OWN else enough[:0]

    @cached_property
    def designs(self) -> list[Floats]:
        """What may be regressed on: [N, F + P] findings and people, and [N, F + P + F K] each owner's findings too."""
        plain = np.hstack([self.x, self.who])
        if not len(self.owners):
            return [plain]
        own = self.x[:, :, None] * self.who[:, None, self.owners]
        return [plain, np.hstack([plain, own.reshape(len(self.y), -1)])]

    def cross_predicted(self) -> Floats:
        """The score of each row [N] by a regression that saw none of its prompt."""
        predicted = np.empty_like(self.y)
        folds = GroupKFold(FOLDS, shuffle=True, random_state=self.seed)
        for fit, test in folds.split(predicted, groups=self.groups):
            design, ridge = self._ridge(fit)
            predicted[test] = ridge.predict(design[test])
        return predicted

    def _ridge(self, rows: NDArray[Any]) -> tuple[Floats, Ridge]:
        """The better design, and the regression on these rows of it."""
        errors = [self._errors(design[rows], self.y[rows], self.groups[rows]) for design in self.designs]
        design = self.designs[int(np.argmin([each.min() for each in errors]))]
        penalty = PENALTIES[min(errors, key=np.min).argmin()]
        return design, Ridge(penalty).fit(design[rows], self.y[rows])

    def _errors(self, design: Floats, y: Floats, groups: NDArray[Any]) -> Floats:
        """The squared error of each penalty, on folds of whole prompts. Findings are not standardised: they share a
        scale, and a criterion on which a judge hardly varies must not count for more than one on which it does."""
        errors = np.zeros(len(PENALTIES))
        folds = GroupKFold(INNER_FOLDS, shuffle=True, random_state=self.seed)
        for fit, test in folds.split(design, groups=groups):
            middle, mean = design[fit].mean(0), y[fit].mean()
            each = np.repeat(y[fit, None] - mean, len(PENALTIES), 1)  # one decomposition solves for all penalties
            weights = ridge_regression(design[fit] - middle, each, PENALTIES, solver="svd")
            errors += np.square((design[test] - middle) @ weights.T + mean - y[test, None]).mean(0)
        return errors

    def fitted(self, columns: Sequence[str], people: Sequence[str]) -> Overall:
        """The regression on all rows. An unknown person is one like those who labelled: on average."""
        _, ridge = self._ridge(np.arange(len(self.y)))
        weights, offsets, rest = np.split(ridge.coef_, np.cumsum([len(columns), len(people)]))
        own, share = np.zeros((len(columns), len(people))), self.who.mean(0)
        if rest.size:
            own[:, self.owners] = rest.reshape(len(columns), -1)
        weights, own = weights + own @ share, own - (own @ share)[:, None]
        average = float(share @ offsets)
        return Overall(
            weights=_named(columns, weights),
            intercept=float(ridge.intercept_) + average,
            people=_named(people, offsets - average),
            own={name: _named(columns, each) for name, each in zip(people, own.T, strict=True) if rest.size},
        )


def _named(names: Sequence[str], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
