"""Questions about what answers say: exact labels, and nothing but the reading of both texts shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import islice

import numpy as np
import pytest

from rubricsvc.core.prompt import Document
from rubricsvc.errors import InvalidError
from rubricsvc.stats import agreement_metrics
from trainer.environments.documents import python_reference
from trainer.judge_training.data.statements import statements
from trainer.judge_training.data.statements_alter import KINDS
from trainer.judge_training.examples import Example, questions


@cache
def made() -> tuple[Example, ...]:
    return tuple(statements(python_reference(), seed=1, count=300))


def test_statements_are_equal_under_a_seed() -> None:
    again = list(islice(statements(python_reference(), seed=1, count=5), 5))
    assert again == list(made()[:5])
    assert again != list(statements(python_reference(), seed=2, count=5))


def test_statements_never_repeat_a_completion() -> None:
    texts = [example.completion.text for example in made()]
    assert len(set(texts)) == len(texts) == 300
    assert all(3 <= len(example.targets) <= 6 for example in made()[:50] if len(example.completion.text) > 200)


def test_statements_refuse_too_little_text() -> None:
    with pytest.raises(InvalidError):
        list(statements([Document(id="a", text="Nothing is said here.")], seed=1, count=1))


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
        if target.family == "says_that" and target.variant in (*KINDS, "stated", "paraphrased")
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
