"""Which rubrics may be given criteria while a policy trains."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.errors import InvalidError
from trainer.data.tasks import Task
from trainer.evolution import OnlineEvolution

BASE = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def check(**fields: object) -> None:
    OnlineEvolution.check([Task(Prompt.of("Why?"), BASE.model_copy(update=fields))])


def test_check_takes_what_sums_weights() -> None:
    for formula in ("weighted_mean", "healthbench", "rar_explicit", "ldc_raw"):
        check(formula=formula)
    refused: list[dict[str, object]] = [
        {"formula": "verifiers", "criteria": BASE.criteria[:1]},
        {"formula": "min", "criteria": BASE.criteria[:1]},
        {"formula": "calculate_output", "expression": "dose"},
        {"formula": "tree_pitfalls", "groups": (Group(path=("a",), weight=1),)},
    ]
    for fields in refused:
        with pytest.raises(InvalidError) as caught:
            check(**fields)
        assert caught.value.path == "evolve", fields
