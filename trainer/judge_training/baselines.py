"""Scores without reading: what a trained judge must beat.

Each baseline is a logistic regression of the labels on a few features. A family of criteria that the training part has
often gets a regression of its own, since one of all criteria cannot weigh the same word of a completion in two ways;
the others share one. Soft labels count as both classes, by their value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from rubricsvc.core.rubric import Criterion
from rubricsvc.stats.intervals import Floats, Ints
from trainer.judge_training.examples import Example, Target

Question = tuple[Example, Target]

MIN_FAMILY = 200
"""Labels of a family in the training part from which it has a regression of its own."""
MAX_TRAIN = 20_000
"""Labels that the baselines are fitted to; of more a random part is used."""
MAX_WORDS = 200_000
"""1- and 2-grams of a bag of words, the most frequent first."""


def baselines(train: Sequence[Question], test: Sequence[Question], *, seed: int = 0) -> dict[str, list[float]]:
    """Return the probabilities of each baseline for the test part, by its name."""
    if not train:
        raise ValueError("no training labels, so that no baseline can be fitted")
    if len(train) > MAX_TRAIN:
        kept = np.random.default_rng(seed).permutation(len(train))[:MAX_TRAIN]
        train = [train[place] for place in kept.tolist()]
    parts = _Parts.of(train, test)
    texts: dict[str, Callable[[Question], str]] = {
        "bag of words": lambda one: f"{criterion_text(one[1].criterion)}\n{one[0].completion.text}",
        "completion only": lambda one: one[0].completion.text,
        "criterion only": lambda one: criterion_text(one[1].criterion),
    }
    return {
        "majority": parts.predict(np.zeros((len(train), 0)), np.zeros((len(test), 0))),
        "length": parts.predict(*_standardized(_length, train, test)),
        "overlap": parts.predict(*_standardized(_overlap, train, test)),
        "prompt overlap": parts.predict(*_standardized(_prompt_overlap, train, test)),
        **{name: parts.predict(*_bags(text, train, test)) for name, text in texts.items()},
    }


def criterion_text(criterion: Criterion) -> str:
    """Return what a judge is shown of a criterion."""
    return "\n".join([criterion.text, criterion.reference or "", *(criterion.passages or ())]).strip()


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without stop words unless it has no other."""
    words = frozenset(re.findall(r"\w+", text.casefold()))
    return words - ENGLISH_STOP_WORDS or words


def overlap(text: str, completion: str) -> float:
    """Return the share of the content words of ``text`` that the completion has."""
    words = content_words(text)
    return len(words & frozenset(re.findall(r"\w+", completion.casefold()))) / len(words) if words else 0.0


def _length(one: Question) -> float:
    return float(np.log1p(len(one[0].completion.text)))


def _overlap(one: Question) -> float:
    return overlap(one[1].criterion.text, one[0].completion.text)


def _prompt_overlap(one: Question) -> float:
    return overlap(one[0].prompt.text, one[0].completion.text)


def _standardized(
    feature: Callable[[Question], float], train: Sequence[Question], test: Sequence[Question]
) -> tuple[Floats, Floats]:
    """Return a feature of both parts as [N, 1], with the mean 0 and the deviation 1 in the training part."""
    known, new = (np.array([[feature(one)] for one in part], float).reshape(-1, 1) for part in (train, test))
    scale = known.std() or 1.0
    return (known - known.mean()) / scale, (new - known.mean()) / scale


def _bags(text: Callable[[Question], str], train: Sequence[Question], test: Sequence[Question]) -> tuple[Any, Any]:
    """Return the TF-IDF of the 1- and 2-grams of both parts; no columns if the training part has no words."""
    bag = TfidfVectorizer(ngram_range=(1, 2), max_features=MAX_WORDS, sublinear_tf=True)
    try:
        return bag.fit_transform(map(text, train)), bag.transform(map(text, test))
    except ValueError:  # an empty vocabulary
        return np.zeros((len(train), 0)), np.zeros((len(test), 0))


@dataclass(frozen=True)
class _Parts:
    """The rows of training and test labels that share a regression, and the training labels [N]."""

    rows: Sequence[tuple[Ints, Ints]]
    labels: Floats
    size: int

    @classmethod
    def of(cls, train: Sequence[Question], test: Sequence[Question]) -> _Parts:
        """Return one part for each frequent family, and one for all others."""
        known: dict[str, list[int]] = defaultdict(list)
        new: dict[str, list[int]] = defaultdict(list)
        for place, (_, target) in enumerate(train):
            known[target.family_name].append(place)
        for place, (_, target) in enumerate(test):
            frequent = len(known.get(target.family_name, ())) >= MIN_FAMILY
            new[target.family_name if frequent else ""].append(place)
        every = range(len(train))
        rows = [(np.array(known[name] if name else every, int), np.array(places, int)) for name, places in new.items()]
        return cls(rows, np.array([target.value for _, target in train], float), len(test))

    def predict(self, train: Any, test: Any) -> list[float]:
        """Return the probabilities of the test rows of features [N, K], dense or sparse."""
        probabilities = np.zeros(self.size)
        for known, new in self.rows:
            probabilities[new] = _regress(train[known], self.labels[known], test[new])
        return [float(value) for value in probabilities]


def _regress(known: Any, labels: Floats, new: Any) -> Floats:
    """Return probabilities by a logistic regression; the mean label without features or with one class."""
    upper, lower = np.flatnonzero(labels > 0), np.flatnonzero(labels < 1)
    if not known.shape[1] or not len(upper) or not len(lower):
        return np.full(new.shape[0], labels.mean())
    stack = sparse.vstack if sparse.issparse(known) else np.vstack
    classes = np.repeat([1, 0], [len(upper), len(lower)])
    weights = np.concatenate([labels[upper], 1 - labels[lower]])
    model = LogisticRegression(max_iter=2000).fit(stack([known[upper], known[lower]]), classes, sample_weight=weights)
    return np.asarray(model.predict_proba(new)[:, 1], float)
