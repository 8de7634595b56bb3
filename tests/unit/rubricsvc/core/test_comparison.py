"""Who meets whom, and what comes of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.comparison import (
    ANCHORS,
    RankedPair,
    aligned,
    disagree,
    genrm_compare,
    meetings,
    parts,
    standing,
    top,
)


def test_all_meet_all() -> None:
    assert meetings(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert meetings(3, opponents=9) == meetings(3)
    assert meetings(1) == []


@given(st.integers(2, 40), st.integers(1, 40))
def test_with_few_opponents_everybody_meets_as_many(count: int, opponents: int) -> None:
    pairs = meetings(count, opponents)
    met = Counter(place for pair in pairs for place in pair)
    assert len(set(pairs)) == len(pairs)
    assert all(a < b for a, b in pairs)
    assert len(met) == count
    (each,) = set(met.values())
    wanted = min(opponents, count - 1)
    assert each == wanted or (each == wanted + 1 and count % 2 == 1 and wanted % 2 == 1)


@given(st.integers(1, 200), st.integers(2, 26))
def test_parts_hold_everybody_and_share_the_first(count: int, size: int) -> None:
    found = parts(count, size)
    shared = set.intersection(*map(set, found))
    assert set().union(*found) == set(range(count))
    assert max(map(len, found)) <= size
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert len(found) == 1 or shared == set(range(min(ANCHORS, size - 1)))


def test_a_strict_part_is_moved_to_its_anchors() -> None:
    found = aligned([{0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.3, 1: 0.5, 3: 0.1}])
    assert found == pytest.approx({0: 0.4, 1: 0.6, 2: 0.8, 3: 0.2})
    assert aligned([{0: 0.1, 1: 1.0}]) == {0: 0.1, 1: 1.0}
    assert aligned([]) == {}


@given(st.lists(st.fixed_dictionaries({0: st.floats(0, 1), 1: st.floats(0, 1)}), min_size=1, max_size=4))
def test_moved_scores_stay_in_range(given_scores: list[dict[int, float]]) -> None:
    assert all(0.0 <= score <= 1.0 for score in aligned(given_scores).values())


def test_a_standing_is_the_mean_over_all_that_were_met() -> None:
    assert standing([(1.0, 1), (0.0, 1)]) == 0.5
    assert standing([(1.0, 3), (0.0, 1)]) == 0.75
    assert standing([(1.0, 1)], equals=1) == 0.75
    assert standing([], equals=2) == 0.5
    assert standing([]) is None


def test_genrm_compare_breaks_ties_by_the_ranking() -> None:
    pairs = [
        RankedPair(0, 1, 4, 2, ranking=6),  # no tie: the ranking says nothing
        RankedPair(1, 2, 3, 3, ranking=2),  # a tie that the first wins: 4.5 and 1.5
        RankedPair(2, 0, 5, 5, ranking=6),  # one that the second wins: 2.5 and 7.5
    ]
    assert genrm_compare(pairs) == {0: (4 + 7.5) / 2, 1: (2 + 4.5) / 2, 2: (1.5 + 2.5) / 2}
    assert genrm_compare([]) == {}


def test_the_top_n_are_worth_1() -> None:
    assert top({0: 0.2, 1: 0.9, 2: 0.4}, 2) == {0: 0.0, 1: 1.0, 2: 1.0}
    assert top({0: 0.4, 1: 0.9, 2: 0.4}, 2) == {0: 1.0, 1: 1.0, 2: 1.0}
    assert top({0: 0.4}, 5) == {0: 1.0}
    assert top({}, 1) == {}


def test_orders_disagree_where_they_name_different_winners() -> None:
    assert disagree(0.9, 0.1)
    assert not disagree(0.9, 0.6)
    assert not disagree(0.5, 0.1)
