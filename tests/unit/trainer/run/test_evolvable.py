"""Which rubrics may be given criteria while a policy trains."""

from __future__ import annotations

import pytest

from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.errors import InvalidError
from trainer.evolution import check_evolvable

BASE = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def test_check_evolvable_takes_what_sums_weights() -> None:
    for formula in ("weighted_mean", "healthbench", "rar_explicit", "ldc_raw"):
        check_evolvable(BASE.model_copy(update={"formula": formula}))
    refused: list[dict[str, object]] = [
        {"formula": "verifiers", "criteria": BASE.criteria[:1]},
        {"formula": "min", "criteria": BASE.criteria[:1]},
        {"formula": "calculate_output", "expression": "dose"},
        {"formula": "tree_pitfalls", "groups": (Group(path=("a",), weight=1),)},
    ]
    for fields in refused:
        with pytest.raises(InvalidError) as caught:
            check_evolvable(BASE.model_copy(update=fields))
        assert caught.value.path == "evolve", fields
