"""Pairings, win rates and aligned scores."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.comparison import (
    ANCHORS,
    align_scores,
    overlapping_parts,
    pairings,
    top_n,
    win_rate,
)


def test_pairings_pair_all_by_default() -> None:
    assert pairings(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert pairings(3, opponents=9) == pairings(3)
    assert pairings(1) == []


@given(st.integers(2, 40), st.integers(1, 40))
def test_pairings_with_few_opponents_are_balanced(count: int, opponents: int) -> None:
    pairs = pairings(count, opponents)
    met = Counter(place for pair in pairs for place in pair)
    assert len(set(pairs)) == len(pairs)
    assert all(a < b for a, b in pairs)
    assert len(met) == count
    (each,) = set(met.values())
    wanted = min(opponents, count - 1)
    assert each == wanted or (each == wanted + 1 and count % 2 == 1 and wanted % 2 == 1)


@given(st.integers(1, 200), st.integers(2, 26))
def test_overlapping_parts_cover_all_and_share_the_first(count: int, size: int) -> None:
    found = overlapping_parts(count, size)
    shared = set.intersection(*map(set, found))
    assert set().union(*found) == set(range(count))
    assert max(map(len, found)) <= size
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert len(found) == 1 or shared == set(range(min(ANCHORS, size - 1)))


def test_align_scores_shifts_a_strict_part() -> None:
    found = align_scores([{0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.3, 1: 0.5, 3: 0.1}])
    assert found == pytest.approx({0: 0.4, 1: 0.6, 2: 0.8, 3: 0.2})
    assert align_scores([{0: 0.1, 1: 1.0}]) == {0: 0.1, 1: 1.0}
    assert align_scores([]) == {}


def test_win_rate_is_the_mean_over_all_pairs() -> None:
    assert win_rate([(1.0, 1), (0.0, 1)]) == 0.5
    assert win_rate([(1.0, 3), (0.0, 1)]) == 0.75
    assert win_rate([(1.0, 1)], ties=1) == 0.75
    assert win_rate([], ties=2) == 0.5
    assert win_rate([]) is None


def test_top_n_gives_1_to_the_best() -> None:
    assert top_n({0: 0.2, 1: 0.9, 2: 0.4}, 2) == {0: 0.0, 1: 1.0, 2: 1.0}
    assert top_n({0: 0.4, 1: 0.9, 2: 0.4}, 2) == {0: 1.0, 1: 1.0, 2: 1.0}
    assert top_n({0: 0.4}, 5) == {0: 1.0}
    assert top_n({}, 1) == {}
