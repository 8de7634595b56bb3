"""What a judge reaches on questions that it was not trained on: figures beside baselines, with intervals.

The judge is asked as workers ask it. Intervals are of a bootstrap that draws whole groups (`Example.split_group`).
AUROC and accuracy take labels of 0.5 or more as positive; Brier score, calibration error and ranks take the labels as
they are. What cannot be measured, such as the AUROC of fewer than five questions of a class, has no value.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from rubricsvc.core.audit import Figure
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Row
from rubricsvc.core.rubric import Binary, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from rubricsvc.stats.agreement import Sample, estimate_metrics, pair_counts
from trainer.judge_training.data import Example, Question
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring.completions import score

By = Literal["source", "family", "variant"]

AT_ONCE = 16
"""Completions that a judge is asked about at a time."""
RESAMPLES = 200
MIN_CLASS_FOR_AUROC = 5
"""Labels of each class that an AUROC needs, also that of a family to count in the mean over families."""
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
    engine: Engine, judge: Judge, examples: Sequence[Example], on_progress: OnProgress = lambda done, total, note: None
) -> list[list[Verdict]]:
    """Return the judge's verdict on each target of each example."""
    results: dict[int, list[Verdict]] = {}
    places = iter(range(len(examples)))

    async def work() -> None:
        for place in places:
            example = examples[place]
            criteria = [
                target.criterion.model_copy(update={"key": f"c{number}", "weight": 1.0})
                for number, target in enumerate(example.targets)
            ]
            rubric = Rubric(criteria=tuple(criteria))
            results[place] = await score(engine, judge, rubric, example.prompt, example.completion)
            on_progress(len(results), len(examples), "")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return [results[place] for place in range(len(examples))]


def criterion_text(criterion: Criterion) -> str:
    """Return what a judge is shown of a criterion."""
    return "\n".join([criterion.text, criterion.reference or "", *(criterion.passages or ())]).strip()


def overlap(text: str, completion: str) -> float:
    """Return the share of the words of ``text`` that the completion has; stop words count if there is no other."""
    words = frozenset(re.findall(r"\w+", text.casefold()))
    words = words - ENGLISH_STOP_WORDS or words
    return len(words & frozenset(re.findall(r"\w+", completion.casefold()))) / len(words) if words else 0.0


BASELINES: dict[str, Callable[[Question], float | str]] = {
    "majority": lambda _: 0.0,
    "length": lambda one: float(np.log1p(len(one[0].completion.text))),
    "overlap": lambda one: overlap(one[1].criterion.text, one[0].completion.text),
    "prompt overlap": lambda one: overlap(one[0].prompt.text, one[0].completion.text),
    "bag of words": lambda one: f"{criterion_text(one[1].criterion)}\n{one[0].completion.text}",
    "completion only": lambda one: one[0].completion.text,
    "criterion only": lambda one: criterion_text(one[1].criterion),
}
"""What each baseline is given of a question: a number, or a text that it knows the words of."""


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
    scores: dict[str, list[float]] = {}
    for name, given in BASELINES.items():
        values, test_values = ([given(one) for one in part] for part in (train, test))
        if any(isinstance(value, str) for value in values):
            bag = TfidfVectorizer(ngram_range=(1, 2), max_features=MAX_WORDS, sublinear_tf=True)
            try:
                features, test_features = bag.fit_transform(values), bag.transform(test_values)
            except ValueError:  # an empty vocabulary
                features, test_features = np.zeros((len(train), 1)), np.zeros((len(test), 1))
        else:
            columns = [np.array(each, float).reshape(-1, 1) for each in (values, test_values)]
            features, test_features = map(StandardScaler().fit(columns[0]).transform, columns)
        result = np.zeros(len(test))
        for family, places in new.items():
            own, soft = np.array(known[family]), labels[known[family]]
            upper, lower = np.flatnonzero(soft > 0), np.flatnonzero(soft < 1)
            if not len(upper) or not len(lower):  # one class
                result[places] = soft.mean()
                continue
            classes = np.repeat([1, 0], [len(upper), len(lower)])
            weights = np.concatenate([soft[upper], 1 - soft[lower]])
            model = LogisticRegression(max_iter=2000)
            model.fit(features[own[np.concatenate([upper, lower])]], classes, sample_weight=weights)
            result[places] = model.predict_proba(test_features[places])[:, 1]
        scores[name] = result.tolist()
    return scores


def rows(
    test: Sequence[Question], scores: Mapping[str, Sequence[float]], *, by: By | None = None, resamples: int = RESAMPLES
) -> list[Row]:
    """Return a row for each of the scores, in [0, 1] and in the order of ``test``; with ``by`` for each part."""
    for name, values in scores.items():
        if len(values) != len(test):
            raise ValueError(f"{name}: {len(values)} scores for {len(test)} labels")
        if wrong := [value for value in values if not 0 <= value <= 1]:
            raise ValueError(f"{name}: a score is {wrong[0]}; expected a number from 0 to 1")
    parts: dict[str, list[int]] = defaultdict(list)
    for place, (example, target) in enumerate(test):
        names = {"source": example.source, "family": target.family_name, "variant": target.variant}
        parts[names[by] if by else ""].append(place)
    return [
        _row(name, part, [test[place] for place in places], [values[place] for place in places], resamples)
        for part, places in sorted(parts.items()) or [("", [])]
        for name, values in scores.items()
    ]


def _row(scorer: str, part: str, test: Sequence[Question], scores: Sequence[float], resamples: int) -> Row:
    labels = [target.value for _, target in test]
    met = [float(label >= 0.5) for label in labels]
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(example.split_group, len(numbers)) for example, _ in test]
    families = defaultdict[str, list[int]](list)
    for place, (_, target) in enumerate(test):
        families[target.family_name].append(place)
    counts = pair_counts(
        (groups[place], (example.prompt.digest, target.criterion.question), place, scores[place], labels[place])
        for place, (example, target) in enumerate(test)
    )

    def sample(places: Sequence[int], values: Sequence[float]) -> list[Sample]:
        chosen = [scores[n] for n in places], [values[n] for n in places], [groups[n] for n in places]
        return [Sample.of(*chosen, counts=counts)]

    every = range(len(test))
    mixed = []
    for places in families.values():
        positives = sum(met[place] for place in places)
        if min(positives, len(places) - positives) >= MIN_CLASS_FOR_AUROC:
            mixed += sample(places, met)
    found = estimate_metrics(sample(every, met), ("auroc", "accuracy", "pairwise_accuracy"), resamples=resamples)
    ranked = any(not isinstance(target.criterion.scale, Binary) for _, target in test)
    soft = ("brier", "ece", "spearman") if ranked else ("brier", "ece")
    found |= estimate_metrics(sample(every, labels), soft, resamples=resamples)
    found["macro_auroc"] = estimate_metrics(mixed, ("auroc",), resamples=resamples)["auroc"]
    figures = {name: Figure(value=one.value, low=one.low, high=one.high) for name, one in found.items()}
    if min(sum(met), len(met) - sum(met)) < MIN_CLASS_FOR_AUROC:
        figures["auroc"] = Figure()
    fields = {"scorer": scorer, "part": part, "n": len(test), "positives": int(sum(met)), "figures": figures}
    return Row.model_validate(fields)
