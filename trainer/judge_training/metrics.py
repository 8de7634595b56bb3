"""Figures of scores on labels, with intervals of a bootstrap that draws whole groups (`Example.split_group`).

AUROC and accuracy take labels of 0.5 or more as positive; Brier score, calibration error and ranks take the labels
as they are. What cannot be measured, such as the AUROC of one class, has no value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.passport import Agreement, Bin, Figure, Measure, Row
from rubricsvc.core.rubric import Binary
from rubricsvc.stats import agreement_metrics
from rubricsvc.stats.agreement import Pairs, Sample, estimate_metrics, levels_of
from rubricsvc.stats.intervals import MIN_DRAWS, Floats, Ints, percentile_interval
from rubricsvc.stats.paired import spearman
from rubricsvc.stats.ranking import concordance
from trainer.judge_training.baselines import Question

By = Literal["source", "family", "variant"]

RESAMPLES = 500
MIN_CLASS_FOR_AUROC = 5
"""Labels of each class that a family needs to count in the mean over families."""
_DRAWS_AT_ONCE = 50
_AGREEMENT = ("kappa", "alpha", "balanced_accuracy", "macro_f1")
"""Measures of met or not met that a row has not."""

PARTS: dict[By, Callable[[Question], str]] = {
    "source": lambda one: one[0].source,
    "family": lambda one: one[1].family_name,
    "variant": lambda one: one[1].variant,
}


def rows(test: Sequence[Question], scores: Mapping[str, Sequence[float]], *, by: By | None = None) -> list[Row]:
    """Return a row for each of the scores, in [0, 1] and in the order of ``test``; with ``by`` for each part.

    Raises:
        ValueError: There are more or fewer scores than questions, or one is no probability.
    """
    arrays = {name: _probabilities(name, values, len(test)) for name, values in scores.items()}
    parts: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(test):
        parts[PARTS[by](one) if by else ""].append(place)
    found = []
    for part, places in sorted(parts.items()) or [("", [])]:
        labels = _Labels.of([test[place] for place in places])
        found += [labels.row(name, part, values[np.array(places, int)]) for name, values in arrays.items()]
    return found


def reliability(test: Sequence[Question], scores: Sequence[float]) -> tuple[Bin, ...]:
    """Return the bins of a reliability diagram, of equal width and without empty ones."""
    probabilities = _probabilities("scores", scores, len(test))
    labels = np.array([target.value for _, target in test], float)
    width = agreement_metrics.BINS
    which = np.minimum((probabilities * width).astype(int), width - 1)
    found = []
    for place in np.unique(which):
        rows_of_bin = which == place
        means = (float(np.clip(one[rows_of_bin].mean(), 0, 1)) for one in (probabilities, labels))
        found.append(Bin(n=int(rows_of_bin.sum()), probability=next(means), outcome=next(means)))
    return tuple(found)


def agreement(test: Sequence[Question], scores: Sequence[float]) -> Agreement:
    """Return the agreement of scores with the labels of all criteria together, as met from 0.5 on, or not met."""
    values = _probabilities("scores", scores, len(test)).tolist()
    prompts: dict[str, int] = {}
    groups = [prompts.setdefault(example.split_group, len(prompts)) for example, _ in test]
    met = Pairs.of(values, [target.value for _, target in test], levels_of(Binary()))
    pooled = {
        name: Figure(value=one.value, low=one.low, high=one.high)
        for name, one in estimate_metrics(Sample.of(met, groups), _AGREEMENT).items()
    }
    return Agreement(part="test", questions=len(test), pooled=pooled)


def _probabilities(name: str, values: Sequence[float], size: int) -> Floats:
    array = np.asarray(values, float)
    if array.shape != (size,):
        raise ValueError(f"{name}: {len(array)} scores for {size} labels")
    wrong = ~((array >= 0) & (array <= 1))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"{name}: score {place} is {array[place]}; expected a number from 0 to 1")
    return array


def _draws(groups: Sequence[str]) -> Floats:
    """Return how often each row is in each bootstrap draw of whole groups [R, N]; no draws with few groups."""
    _, group_of = np.unique(np.array(groups, object), return_inverse=True)
    size = int(group_of.max(initial=-1)) + 1
    if size < MIN_CLUSTERS:
        return np.zeros((0, len(groups)))
    random = np.random.default_rng(0)
    counts = np.stack([np.bincount(random.integers(size, size=size), minlength=size) for _ in range(RESAMPLES)])
    return counts.astype(np.float64)[:, group_of]


def _figure(value: float, samples: Floats) -> Figure:
    known = samples[np.isfinite(samples)]
    if not np.isfinite(value):
        return Figure()
    low, high = percentile_interval(known) if len(known) >= MIN_DRAWS else (None, None)
    return Figure(value=float(value), low=low, high=high)


def _mean(values: Floats, draws: Floats) -> Figure:
    if not len(values):
        return Figure()
    return _figure(float(values.mean()), draws @ values / draws.sum(1))


def _auroc(scores: Floats, positive: Floats, weights: Floats) -> Floats:
    """Return the AUROC of each row of weights [R, N]; NaN where one class has no weight.

    It is Σ over ties of (weight of positives) · (weight of lower negatives + half of the tied ones), as a share of all
    pairs.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) > 0])
    found = []
    for rows_RN in np.split(weights[:, order], range(_DRAWS_AT_ONCE, len(weights), _DRAWS_AT_ONCE)):
        upper = np.add.reduceat(rows_RN * positive[order], starts, axis=1)
        lower = np.add.reduceat(rows_RN * (1 - positive[order]), starts, axis=1)
        won = (upper * (lower.cumsum(1) - lower / 2)).sum(1)
        found.append(_ratio(won, upper.sum(1) * lower.sum(1)))
    return np.concatenate(found)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return the quotients; NaN where the divisor is 0."""
    quotients = np.full(len(part), np.nan)
    np.divide(part, whole, out=quotients, where=whole > 0)
    return quotients


@dataclass(frozen=True)
class _Labels:
    """The labels of one part of a test set [N], with their bootstrap draws [R, N].

    ``families`` are the rows of each family that has enough of both classes; ``same`` those of each prompt and
    criterion with different labels.
    """

    values: Floats
    draws: Floats
    families: Sequence[Ints]
    same: Sequence[Ints]
    ranked: bool

    @classmethod
    def of(cls, test: Sequence[Question]) -> _Labels:
        """Return the labels of these questions."""
        values = np.array([target.value for _, target in test], float)
        by_family: dict[str, list[int]] = defaultdict(list)
        by_question: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for place, (example, target) in enumerate(test):
            by_family[target.family_name].append(place)
            by_question[example.split_group, example.prompt.digest, target.criterion.question].append(place)
        families = [np.array(places) for places in by_family.values()]
        enough = [places for places in families if _smaller_class(values[places]) >= MIN_CLASS_FOR_AUROC]
        same = [np.array(places) for places in by_question.values() if np.ptp(values[places]) > 0]
        ranked = any(not isinstance(target.criterion.scale, Binary) for _, target in test)
        return cls(values, _draws([example.split_group for example, _ in test]), enough, same, ranked)

    def row(self, scorer: str, part: str, scores: Floats) -> Row:
        """Return the figures of these scores."""
        size, positive = len(self.values), (self.values >= 0.5).astype(float)
        figures: dict[Measure, Figure] = {"auroc": Figure(), "macro_auroc": self._macro(scores, positive)}
        if 0 < positive.sum() < size:
            figures["auroc"] = self._drawn(partial(_auroc, scores, positive))
        figures["accuracy"] = _mean(((scores >= 0.5) == (positive > 0)).astype(float), self.draws)
        figures["brier"] = _mean((scores - self.values) ** 2, self.draws)
        error = agreement_metrics.expected_calibration_error(scores, self.values) if size else None
        figures["ece"] = Figure(value=error)
        figures["pairwise_accuracy"] = self._pairwise(scores)
        if self.ranked:
            figures["spearman"] = self._spearman(scores)
        return Row(scorer=scorer, part=part, n=size, positives=int(positive.sum()), figures=figures)

    def _drawn(self, measure: Callable[[Floats], Floats]) -> Figure:
        """Return a measure of weights [R, N] -> [R] with its interval."""
        value = float(measure(np.ones((1, len(self.values))))[0])
        return _figure(value, measure(self.draws) if len(self.draws) else np.array([]))

    def _macro(self, scores: Floats, positive: Floats) -> Figure:
        """Return the mean AUROC of the families with enough of both classes."""
        if not self.families:
            return Figure()

        def mean(weights: Floats) -> Floats:
            each = np.stack([_auroc(scores[one], positive[one], weights[:, one]) for one in self.families])
            known = np.isfinite(each)
            total = np.where(known, each, 0.0).sum(0)
            return _ratio(total, known.sum(0))

        return self._drawn(mean)

    def _pairwise(self, scores: Floats) -> Figure:
        """Return the share of pairs of completions of one prompt that scores and labels order alike; ties half."""
        if not self.same:
            return Figure()
        counts = [
            concordance(list(zip(scores[one].tolist(), self.values[one].tolist(), strict=True))) for one in self.same
        ]
        net, different = (np.array([getattr(one, name) for one in counts]) for name in ("net_concordant", "in_second"))
        first = np.array([one[0] for one in self.same])

        def share(weights: Floats) -> Floats:
            return (1 + _ratio(weights[:, first] @ net, weights[:, first] @ different)) / 2

        return self._drawn(share)

    def _spearman(self, scores: Floats) -> Figure:
        """Return the rank correlation of scores and labels."""
        if len(scores) < 3 or not np.ptp(scores) or not np.ptp(self.values):
            return Figure()
        repeated = (np.repeat(np.arange(len(scores)), draw.astype(int)) for draw in self.draws)
        drawn = [(scores[one], self.values[one]) for one in repeated]
        samples = [spearman(a, b) for a, b in drawn if np.ptp(a) and np.ptp(b)]
        return _figure(spearman(scores, self.values), np.array(samples))


def _smaller_class(values: Floats) -> int:
    positives = int((values >= 0.5).sum())
    return min(positives, len(values) - positives)
