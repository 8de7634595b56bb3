"""Preference pairs and edges."""

from __future__ import annotations

import numpy as np

from rubricsvc.stats.paired import edges, preference_pairs

PROMPTS = np.array([1, 1, 1, 2])


def test_preference_pairs_are_of_one_person_and_prompt() -> None:
    labels = [(0, "ann", 1.0), (1, "ann", 0.2), (2, "ann", 0.2), (3, "ann", 0.0), (1, "bob", 1.0), (2, "bob", 0.0)]
    assert preference_pairs(labels, PROMPTS).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_edges_are_mean_differences() -> None:
    values = np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 1.0], [0.0, 0.0]])
    found = edges(values, np.array([[0, 1], [2, 3]]), np.array([1, 1, 2, 2]))
    assert [one.value for one in found] == [1.0, 0.25]
