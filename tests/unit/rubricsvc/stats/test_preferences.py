"""Preference pairs, edges and RRD's bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from rubricsvc.stats.paired import edges, error_bounds, preference_pairs

PROMPTS = np.array([1, 1, 1, 2])


def test_preference_pairs_are_of_one_person_and_prompt() -> None:
    labels = [(0, "ann", 1.0), (1, "ann", 0.2), (2, "ann", 0.2), (3, "ann", 0.0), (1, "bob", 1.0), (2, "bob", 0.0)]
    assert preference_pairs(labels, PROMPTS).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_edges_are_mean_differences() -> None:
    values = np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 1.0], [0.0, 0.0]])
    found = edges(values, np.array([[0, 1], [2, 3]]), np.array([1, 1, 2, 2]))
    assert [one.value for one in found] == [1.0, 0.25]


def test_error_bound_holds_for_normal_differences() -> None:
    random = np.random.default_rng(0)
    mean, spread = np.array([0.5, 0.2, 0.0]), np.array([1.0, 0.5, 1.0])
    better = random.normal(mean, spread, (20_000, 3))
    values = np.vstack([better, np.zeros_like(better)])
    pairs = np.column_stack([np.arange(20_000), np.arange(20_000, 40_000)])
    weights = np.array([1.0, 1.0, 1.0])
    current, equal, best = error_bounds(values, pairs, weights)
    ratio = weights @ mean / np.sqrt(weights**2 @ spread**2)
    assert current.error == pytest.approx(ndtr(-ratio), abs=0.01)
    assert current.bound == pytest.approx(np.exp(-0.5 * ratio**2), abs=0.02)
    assert equal == current.model_copy(update={"weights": "equal"})
    assert best.error < current.error < current.bound
    assert best.bound < current.bound
