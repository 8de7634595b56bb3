"""What a judge reaches on questions that it was not trained on: figures beside baselines, with intervals.

The judge is asked as workers ask it. Intervals are of a bootstrap that draws whole groups (`Example.split_group`).
AUROC and accuracy take labels of 0.5 or more as positive; Brier score, calibration error and ranks take the labels as
they are. What cannot be measured, such as the AUROC of one class, has no value.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Figure, Measure, Row
from rubricsvc.core.rubric import Binary, Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from rubricsvc.stats.agreement import expected_calibration_error
from rubricsvc.stats.intervals import MIN_DRAWS, Floats, Ints, percentile_interval
from rubricsvc.stats.paired import spearman
from trainer.judge_training.examples import Example, Question, rubric_of
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring.completions import score

By = Literal["source", "family", "variant"]

AT_ONCE = 16
"""Completions that a judge is asked about at a time."""
RESAMPLES = 500
MIN_CLASS_FOR_AUROC = 5
"""Labels of each class that a family needs to count in the mean over families."""
MIN_FAMILY = 200
"""Labels of a family in the training part from which it has a regression of its own."""
MAX_TRAIN = 20_000
"""Labels that the baselines are fitted to; of more a random part is used."""
MAX_WORDS = 200_000
"""1- and 2-grams of a bag of words, the most frequent first."""


def base_judge(judge: Judge) -> Judge:
    """Return the same judge on its base: without adapter and calibration, and with any answer mass.

    An untrained base gives the labels little probability.
    """
    bare = {"adapter": None, "weights_sha256": None, "calibration": None, "min_answer_mass": 0.0}
    return judge.model_copy(update=bare)


def probabilities(
    judge: Judge,
    examples: Sequence[Example],
    on_progress: OnProgress = lambda done, total, note: None,
    *,
    some: bool = False,
) -> list[list[float | None]]:
    """Return the probability before calibration that the judge gives to each target; None where a verdict failed."""

    async def ask() -> list[list[Verdict]]:
        async with aclosing(make_engine(judge)) as engine:
            return await verdicts(engine, judge, examples, on_progress)

    answered = asyncio.run(ask())
    first = next((one for each in answered for one in each), None)
    if some and first and all(one.outcome == "failed" for each in answered for one in each):
        message = f"all verdicts of the judge failed, the first one with {first.reason}: {first.detail}"
        raise InvalidError(message, hint="correct this and continue with --resume, or train again with other settings")
    return [[one.value if one.probability is None else one.probability for one in each] for each in answered]


async def verdicts(
    engine: Engine,
    judge: Judge,
    examples: Sequence[Example],
    on_progress: OnProgress = lambda done, total, note: None,
) -> list[list[Verdict]]:
    """Return the judge's verdict on each target of each example."""
    results: dict[int, list[Verdict]] = {}
    places = iter(range(len(examples)))

    async def work() -> None:
        for place in places:
            example = examples[place]
            results[place] = await score(engine, judge, rubric_of(example), example.prompt, example.completion)
            on_progress(len(results), len(examples), "")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return [results[place] for place in range(len(examples))]


def baselines(train: Sequence[Question], test: Sequence[Question], *, seed: int = 0) -> dict[str, list[float]]:
    """Return the probabilities of each baseline for the test part, by its name: scores without reading.

    Each baseline is a logistic regression of the labels on a few features. A family of criteria that the training part
    has often gets a regression of its own, since one of all criteria cannot weigh the same word of a completion in two
    ways; the others share one. Soft labels count as both classes, by their value.
    """
    if not train:
        raise ValueError("no training labels, so that no baseline can be fitted")
    if len(train) > MAX_TRAIN:
        kept = np.random.default_rng(seed).permutation(len(train))[:MAX_TRAIN]
        train = [train[place] for place in kept.tolist()]
    known, new = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for place, (_, target) in enumerate(train):
        known[target.family_name].append(place)
    for place, (_, target) in enumerate(test):
        new[target.family_name if len(known[target.family_name]) >= MIN_FAMILY else ""].append(place)
    known[""] = list(range(len(train)))
    labels = np.array([target.value for _, target in train], float)

    def predict(features: Any, test_features: Any) -> list[float]:
        result = np.zeros(len(test))
        for family, places in new.items():
            rows = known[family]
            result[places] = _regress(features[rows], labels[rows], test_features[places])
        return [float(value) for value in result]

    def number(feature: Callable[[Question], float]) -> list[float]:
        values = [np.array([[feature(one)] for one in part], float).reshape(-1, 1) for part in (train, test)]
        scaler = StandardScaler().fit(values[0])
        return predict(*map(scaler.transform, values))

    def words(text: Callable[[Question], str]) -> list[float]:
        bag = TfidfVectorizer(ngram_range=(1, 2), max_features=MAX_WORDS, sublinear_tf=True)
        try:
            return predict(bag.fit_transform(map(text, train)), bag.transform(map(text, test)))
        except ValueError:  # an empty vocabulary
            return number(lambda _: 0.0)

    return {
        "majority": number(lambda _: 0.0),
        "length": number(lambda one: float(np.log1p(len(one[0].completion.text)))),
        "overlap": number(lambda one: overlap(one[1].criterion.text, one[0].completion.text)),
        "prompt overlap": number(lambda one: overlap(one[0].prompt.text, one[0].completion.text)),
        "bag of words": words(lambda one: f"{criterion_text(one[1].criterion)}\n{one[0].completion.text}"),
        "completion only": words(lambda one: one[0].completion.text),
        "criterion only": words(lambda one: criterion_text(one[1].criterion)),
    }


def criterion_text(criterion: Criterion) -> str:
    """Return what a judge is shown of a criterion."""
    return "\n".join([criterion.text, criterion.reference or "", *(criterion.passages or ())]).strip()


def overlap(text: str, completion: str) -> float:
    """Return the share of the words of ``text`` that the completion has; stop words count if there is no other."""
    words = frozenset(re.findall(r"\w+", text.casefold()))
    words = words - ENGLISH_STOP_WORDS or words
    return len(words & frozenset(re.findall(r"\w+", completion.casefold()))) / len(words) if words else 0.0


def _regress(known: Any, labels: Floats, new: Any) -> Floats:
    """Return probabilities by a logistic regression; the mean label with one class."""
    upper, lower = np.flatnonzero(labels > 0), np.flatnonzero(labels < 1)
    if not len(upper) or not len(lower):
        return np.full(new.shape[0], labels.mean())
    stack = sparse.vstack if sparse.issparse(known) else np.vstack
    classes = np.repeat([1, 0], [len(upper), len(lower)])
    weights = np.concatenate([labels[upper], 1 - labels[lower]])
    model = LogisticRegression(max_iter=2000).fit(stack([known[upper], known[lower]]), classes, sample_weight=weights)
    return np.asarray(model.predict_proba(new)[:, 1], float)


PARTS: dict[By, Callable[[Question], str]] = {
    "source": lambda one: one[0].source,
    "family": lambda one: one[1].family_name,
    "variant": lambda one: one[1].variant,
}


def rows(test: Sequence[Question], scores: Mapping[str, Sequence[float]], *, by: By | None = None) -> list[Row]:
    """Return a row for each of the scores, in [0, 1] and in the order of ``test``; with ``by`` for each part."""
    arrays = {name: _checked(name, values, len(test)) for name, values in scores.items()}
    parts: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(test):
        parts[PARTS[by](one) if by else ""].append(place)
    found = []
    for part, places in sorted(parts.items()) or [("", [])]:
        labels = _Labels.of([test[place] for place in places])
        found += [labels.row(name, part, values[np.array(places, int)]) for name, values in arrays.items()]
    return found


def _checked(name: str, values: Sequence[float], size: int) -> Floats:
    array = np.asarray(values, float)
    if array.shape != (size,):
        raise ValueError(f"{name}: {len(array)} scores for {size} labels")
    wrong = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if len(wrong):
        raise ValueError(f"{name}: score {wrong[0]} is {array[wrong[0]]}; expected a number from 0 to 1")
    return array


def _auroc(scores: Floats, positive: Floats, weights: Floats) -> Floats:
    """Return the AUROC of each row of weights [R, N]; NaN where one class has no weight.

    It is Σ over ties of (weight of positives) · (weight of lower negatives + half of the tied ones), as a share of all
    pairs.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) > 0])
    upper = np.add.reduceat(weights[:, order] * positive[order], starts, axis=1)
    lower = np.add.reduceat(weights[:, order] * (1 - positive[order]), starts, axis=1)
    return _ratio((upper * (lower.cumsum(1) - lower / 2)).sum(1), upper.sum(1) * lower.sum(1))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return the quotients; NaN where the divisor is 0."""
    quotients = np.full(len(part), np.nan)
    np.divide(part, whole, out=quotients, where=whole > 0)
    return quotients


@dataclass(frozen=True)
class _Labels:
    """The labels of one part of a test set [N], with their bootstrap draws [R, N].

    ``families`` are the rows of each family that has enough of both classes; ``better`` and ``worse`` the rows of each
    two completions of a prompt with different labels on a criterion.
    """

    values: Floats
    draws: Floats
    families: Sequence[Ints]
    better: Ints
    worse: Ints
    ranked: bool

    @classmethod
    def of(cls, test: Sequence[Question]) -> _Labels:
        """Return the labels of these questions; there are no draws with few groups."""
        values = np.array([target.value for _, target in test], float)
        by_family, by_question = defaultdict[str, list[int]](list), defaultdict[tuple[str, ...], list[int]](list)
        for place, (example, target) in enumerate(test):
            by_family[target.family_name].append(place)
            by_question[example.split_group, example.prompt.digest, target.criterion.question].append(place)
        positives = [(np.array(places), int((values[places] >= 0.5).sum())) for places in by_family.values()]
        families = [places for places, n in positives if min(n, len(places) - n) >= MIN_CLASS_FOR_AUROC]
        pairs = [
            (one, other) if values[one] > values[other] else (other, one)
            for same in by_question.values()
            for one, other in combinations(same, 2)
            if values[one] != values[other]
        ]
        better, worse = np.array(pairs, int).reshape(-1, 2).T
        _, group_of = np.unique(np.array([one.split_group for one, _ in test], object), return_inverse=True)
        size, random = int(group_of.max(initial=-1)) + 1, np.random.default_rng(0)
        counts = [
            np.bincount(random.integers(size, size=size), minlength=size).astype(float)[group_of]
            for _ in range(RESAMPLES if size >= MIN_CLUSTERS else 0)
        ]
        ranked = any(not isinstance(target.criterion.scale, Binary) for _, target in test)
        return cls(values, np.array(counts).reshape(len(counts), len(test)), families, better, worse, ranked)

    def row(self, scorer: str, part: str, scores: Floats) -> Row:
        """Return the figures of these scores."""
        size, positive = len(self.values), (self.values >= 0.5).astype(float)
        figures: dict[Measure, Figure] = {
            "auroc": self._drawn(partial(_auroc, scores, positive) if 0 < positive.sum() < size else None),
            "macro_auroc": self._drawn(partial(self._macro, scores, positive) if self.families else None),
            "accuracy": self._mean(((scores >= 0.5) == (positive > 0)).astype(float), np.arange(size)),
            "brier": self._mean((scores - self.values) ** 2, np.arange(size)),
            "ece": Figure(value=expected_calibration_error(scores, self.values) if size else None),
            "pairwise_accuracy": self._mean((np.sign(scores[self.better] - scores[self.worse]) + 1) / 2, self.better),
        }
        if self.ranked:
            figures["spearman"] = self._spearman(scores)
        return Row(scorer=scorer, part=part, n=size, positives=int(positive.sum()), figures=figures)

    def _mean(self, values: Floats, places: Ints) -> Figure:
        """Return the mean of values that are drawn with these rows."""
        ratio = lambda weights: _ratio(weights[:, places] @ values, weights[:, places].sum(1))  # noqa: E731
        return self._drawn(ratio if len(values) else None)

    def _drawn(self, measure: Callable[[Floats], Floats] | None) -> Figure:
        """Return a measure of weights [R, N] -> [R] with its interval; without a value if there is no measure."""
        if measure is None:
            return Figure()
        value = float(measure(np.ones((1, len(self.values))))[0])
        return _figure(value, measure(self.draws) if len(self.draws) else np.array([]))

    def _macro(self, scores: Floats, positive: Floats, weights: Floats) -> Floats:
        """Return the mean AUROC of the families with enough of both classes."""
        each = np.stack([_auroc(scores[one], positive[one], weights[:, one]) for one in self.families])
        known = np.isfinite(each)
        return _ratio(np.where(known, each, 0.0).sum(0), known.sum(0))

    def _spearman(self, scores: Floats) -> Figure:
        """Return the rank correlation of scores and labels."""
        if len(scores) < 3 or not np.ptp(scores) or not np.ptp(self.values):
            return Figure()
        repeated = (np.repeat(np.arange(len(scores)), draw.astype(int)) for draw in self.draws)
        drawn = [(scores[one], self.values[one]) for one in repeated]
        samples = [spearman(a, b) for a, b in drawn if np.ptp(a) and np.ptp(b)]
        return _figure(spearman(scores, self.values), np.array(samples))


def _figure(value: float, samples: Floats) -> Figure:
    known = samples[np.isfinite(samples)]
    if not np.isfinite(value):
        return Figure()
    low, high = percentile_interval(known) if len(known) >= MIN_DRAWS else (None, None)
    return Figure(value=value, low=low, high=high)
