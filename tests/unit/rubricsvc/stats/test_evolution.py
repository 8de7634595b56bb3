"""Objectives, operators, selection and the held-out comparison of evolutions, on plain arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.evolution import Candidate, Objective
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.stats.evolution.held_out import held_out_result, paired_test
from rubricsvc.stats.evolution.objectives import (
    OBJECTIVES,
    Line,
    Outcome,
    Target,
    line_of,
    rungs,
    score_of,
    unit_values,
)
from rubricsvc.stats.evolution.operators import OPERATORS, Material, mutate
from rubricsvc.stats.evolution.selection import Parent, novelties, survivors, tournament

N = 12
CLUSTERS = np.arange(N) // 2
CRITERIA = (
    Criterion(key="a", text="Is a.", weight=3.0),
    Criterion(key="b", text="Is b.", weight=1.0),
    Criterion(key="c", text="Is short.", weight=2.0, check=Check(name="words", args={"max": 9})),
    Criterion(key="d", text="Is d.", weight=-2.0),
)
START = Candidate(rubric=Rubric(criteria=CRITERIA))


def target(**changes: Any) -> Target:
    fields: dict[str, Any] = {
        "clusters": CLUSTERS,
        "pairs": np.array([(0, 1), (3, 2), (4, 5)]),
        "scored": np.arange(N),
        "scores": np.linspace(0, 1, N),
        "labelled": np.array([0, 1, 2]),
        "keys": ["a", "a", "b"],
        "met": np.array([True, False, True]),
    }
    return Target(**fields | changes)


def outcome(rewards: Any, **values: Any) -> Outcome:
    return Outcome(np.asarray(rewards, float), {key: np.asarray(one, float) for key, one in values.items()})


def test_unit_values_of_preferences_count_ties_half() -> None:
    rewards = [1, 0, 0.5, 0.5, 0, 1, *[0] * 6]
    assert unit_values("preferences", target(), outcome(rewards)).tolist() == [1.0, 0.5, 0.0]
    assert score_of("preferences", target(), outcome(rewards)) == 0.5


def test_unit_values_of_scores_do_not_depend_on_shift_and_scale() -> None:
    rewards = np.linspace(0, 1, N) ** 2
    first, second = (score_of("scores", target(), outcome(one)) for one in (rewards, 5 + 3 * rewards))
    assert first == pytest.approx(second)
    assert score_of("scores", target(), outcome(-rewards)) == pytest.approx(-np.var(np.linspace(0, 1, N)))
    assert line_of(target(), outcome(-rewards)) == Line(pytest.approx(0.5), 0.0)


def test_unit_values_of_verdicts_compare_with_labels() -> None:
    values = {"a": [0.9, 0.6, *[0] * 10], "b": [0, 0, 0.1, *[0] * 9]}
    assert unit_values("verdicts", target(), outcome(np.zeros(N), **values)).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_score_of_is_none_if_too_many_units_have_no_value(objective: Objective) -> None:
    missing = outcome(np.full(N, np.nan), a=np.full(N, np.nan))
    assert score_of(objective, target(), missing) is None


def test_of_rows_keeps_pairs_within_a_part_only() -> None:
    part = target().of_rows(np.arange(N) < 3)
    assert part.pairs.tolist() == [[0, 1]] and part.scored.tolist() == [0, 1, 2] and part.keys == ["a", "a", "b"]


def test_rungs_grow_by_whole_prompts_and_end_with_all() -> None:
    clusters = np.arange(400) // 4
    many = target(clusters=clusters, scored=np.arange(400), scores=np.linspace(0, 1, 400), pairs=np.zeros((0, 2), int))
    search = clusters < 60
    parts = list(rungs("scores", many, search, seed=0))
    assert [int(one.sum()) for one in parts] == [60, 120, 240] and (parts[-1] == search).all()
    for small, large in pairwise(parts):
        assert not (small & ~large).any()
    assert all((part[clusters == one].all() or not part[clusters == one].any()) for part in parts for one in range(60))
    assert len(list(rungs("scores", target(), np.ones(N, bool), seed=0))) == 1


@given(st.sampled_from(sorted(OPERATORS)), st.integers(0, 2**32), st.integers(1, 5))
def test_mutate_makes_valid_rubrics_whose_weights_keep_their_signs(operator: Any, seed: int, times: int) -> None:
    random = np.random.default_rng(seed)
    child, other = START, START
    for _ in range(times):
        material = Material(START, other, ("short",), lambda random, one: np.ones(len(one.rubric.criteria)))
        made = mutate(operator, random, child, material)
        if made is not None:
            other, child = child, made
    check_formula(child.rubric)
    signs = {one.key: np.sign(one.weight) for one in CRITERIA}
    if operator != "fit":
        assert all(np.sign(one.weight) == signs[one.key] for one in child.rubric.criteria)
    assert {one.question for one in child.rubric.criteria} <= {one.question for one in CRITERIA}
    assert any(one.weight > 0 for one in child.rubric.criteria)


def test_drop_and_restore_bring_back_a_criterion() -> None:
    random = np.random.default_rng(0)
    material = Material(START, START, (), lambda random, one: None)
    dropped = mutate("drop", random, START, material)
    assert dropped is not None and len(dropped.rubric.criteria) == 3
    assert mutate("restore", random, dropped, material) == START
    assert mutate("restore", random, START, material) is None
    assert mutate("template", random, START, material) is None


def parent(number: int, score: float, rewards: Any) -> Parent:
    return Parent(number, START, score, np.asarray(rewards, float))


def test_novelties_are_low_for_similar_rewards() -> None:
    pool = [parent(0, 1, [0, 1, 2, 3]), parent(1, 1, [0, 1, 2, 4]), parent(2, 1, [3, 0, 3, 0])]
    one, two, other = novelties(pool)
    assert one == two < other


def test_tournament_prefers_better_candidates() -> None:
    pool = [parent(n, n / 10, np.random.default_rng(n).random(8)) for n in range(8)]
    wins = [tournament(np.random.default_rng(seed), pool).number for seed in range(300)]
    assert np.mean(wins) > 4 and len(set(wins)) > 4


def test_survivors_are_the_better_half_and_the_older_of_equal_ones() -> None:
    assert survivors([(1, 0.5), (2, 0.9), (3, 0.5)]) == [1, 2]
    assert survivors([]) == []


def test_paired_test_is_exact() -> None:
    found = paired_test(np.array([1.0] * 9 + [-1.0] * 1 + [0.0] * 50 + [np.nan]))
    assert (found.better, found.worse) == (9, 1)
    assert found.p == pytest.approx(2 * 11 / 2**10)  # P(X <= 1) + P(X >= 9) of 10 fair coins
    assert paired_test(np.zeros(3)).p == 1.0


def test_held_out_result_leaves_out_units_without_a_value() -> None:
    clusters = np.arange(40)
    scores = np.linspace(0, 1, 40)
    both = target(clusters=clusters, scored=clusters, scores=scores, pairs=np.zeros((0, 2), int))
    search, held_out = (both.of_rows(mask) for mask in (clusters % 2 == 0, clusters % 2 == 1))
    start = outcome(np.random.default_rng(0).random(40))
    best = outcome(np.where(clusters == 1, np.nan, scores))
    found = held_out_result("scores", search, held_out, start, best)
    first = found.objectives[0]
    assert (first.objective, first.units, first.left_out, found.prompts) == ("scores", 19, 1, 20)
    assert found.gain and first.best == pytest.approx(0.0, abs=1e-9)
    assert found.mcnemar.better > 0 == found.mcnemar.worse
    same = held_out_result("scores", search, held_out, start, start)
    assert not same.gain and same.objectives[0].difference.value == 0.0
