from __future__ import annotations

import pytest

from rubricsvc.core.evolution import (
    BufferedCriterion,
    BufferState,
    check_evolvable,
    evolved_rubric,
    frozen_entries,
    next_keys,
)
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.errors import InvalidError

BASE = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def entry(key: str, weight: float, state: BufferState) -> BufferedCriterion:
    return BufferedCriterion(criterion=Criterion(key=key, text=f"Says {key}.", weight=weight), state=state)


def test_evolved_rubric_adds_active_criteria_with_a_share_of_the_authored_weights() -> None:
    entries = [
        *frozen_entries(BASE),
        entry("evolved-1", 3.0, "retired"),
        entry("evolved-2", -50.0, "active"),
        entry("evolved-3", 0.1, "active"),
        entry("evolved-4", 1.0, "proposed"),
    ]
    rubric = evolved_rubric(BASE, entries, 0.1)
    assert [(one.key, one.weight) for one in rubric.criteria] == [
        ("dose", 6.0),
        ("rude", -4.0),
        ("evolved-2", -1.0),
        ("evolved-3", 1.0),
    ]
    assert rubric.criteria[:2] == BASE.criteria
    assert evolved_rubric(BASE, entries[:3], 0.1).digest == BASE.digest


def test_next_keys_are_new() -> None:
    entries = [entry("evolved-1", 1, "retired"), entry("evolved-3", 1, "active")]
    assert next_keys(entries, 3) == ["evolved-2", "evolved-4", "evolved-5"]
    assert next_keys([], 0) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"formula": "verifiers", "criteria": BASE.criteria[:1]},
        {"formula": "min", "criteria": BASE.criteria[:1]},
        {"formula": "calculate_output", "expression": "dose"},
        {"formula": "tree_pitfalls", "groups": (Group(path=("a",), weight=1),)},
    ],
)
def test_check_evolvable_refuses_what_does_not_sum_weights(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidError) as caught:
        check_evolvable(BASE.model_copy(update=fields))
    assert caught.value.path == "evolve"


@pytest.mark.parametrize("formula", ["weighted_mean", "healthbench", "rar_explicit", "ldc_raw"])
def test_check_evolvable_accepts_sums_of_weights(formula: str) -> None:
    check_evolvable(BASE.model_copy(update={"formula": formula}))
