"""Questions about what answers say: exact labels, and nothing but the reading of both texts shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from recipes.embedded_judge.alterations.alter import ALTERATIONS
from recipes.embedded_judge.statements import statements, topics
from rubricsvc.collections.sources import python_reference
from rubricsvc.stats import agreement as agreement_metrics
from trainer.judge_training.examples import Example, questions


@cache
def made() -> tuple[Example, ...]:
    return tuple(statements(python_reference(), seed=1, count=300, negated=0.1))


def auroc(scores: Sequence[float], values: Sequence[float]) -> float:
    return agreement_metrics.auroc(np.array(scores, dtype=float), np.array(values))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def overlap(example: Example, criterion: str) -> float:
    shared = set(words(example.completion.text))
    asked = words(criterion)
    return sum(word in shared for word in asked) / len(asked)


def test_statements_labels_are_at_chance_given_shared_words() -> None:
    """On answers that say it, in their own words or others, and answers that say the contrary in the same words."""
    asked = [
        (overlap(example, target.criterion.text), target.value)
        for example, target in questions(made())
        if target.family == "says_that" and target.variant in (*ALTERATIONS, "stated", "paraphrased")
    ]
    assert len(asked) > 500
    scores, values = zip(*asked, strict=True)
    assert 0.4 < auroc(scores, values) < 0.6


def test_statements_labels_are_at_chance_given_the_criterion_alone() -> None:
    """A criterion that was met in other examples is as often met as not: no word or length of it shows the label."""
    asked = [(target.criterion.text, target.value) for _, target in questions(made())]
    values = [value for _, value in asked]
    assert 0.45 < sum(values) / len(values) < 0.55
    assert 0.4 < auroc([len(text) for text, _ in asked], values) < 0.6
    altered = ["not" in words(text) or "isn" in words(text) for text, _ in asked]
    assert 0.4 < auroc([float(one) for one in altered], values) < 0.6


def test_statements_leave_out_excluded_texts() -> None:
    sentence = topics(python_reference())[0][0].sentences[0]
    left = topics(python_reference(), exclude=[sentence])[0]
    assert left
    assert not any(sentence in topic.sentences for topic in left)
