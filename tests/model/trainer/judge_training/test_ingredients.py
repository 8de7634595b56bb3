"""Questions by construction respect the split: nothing of the test is quoted in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import Judge
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data.everyday import everyday_answers
from trainer.judge_training.examples import Example
from trainer.judge_training.ingredients import load_ingredients
from trainer.judge_training.splits import side_of

JUDGE = Judge(name="j", engine="transformers_local", model="embedded")


def made(kind: str, count: int, **split: Any) -> list[Example]:
    config = JudgeTrainConfig.model_validate(
        {"judge": JUDGE, "out": Path("out"), "data": [{"kind": kind, "name": kind, "count": count}], "split": split}
    )

    def no_store() -> Any:
        raise AssertionError("no ingredient is in the database")

    return load_ingredients(config, no_store)[kind].examples


def test_swapped_answers_are_those_of_prompts_on_the_same_side() -> None:
    own = {one.completion.text: one.split_group for one in everyday_answers()}
    parts = set()
    for example in made("swapped", 300, test=0.4):
        sides = {
            side_of(group, test=0.4, validation=0.05, seed=0)
            for group in (example.split_group, own[example.completion.text])
        }
        assert len(sides) == 1
        parts |= sides
    assert {"train", "test"} <= parts


@pytest.mark.parametrize("held_out", [(), ("emoji", "plain")])
def test_scales_quote_no_criterion_of_a_kind_that_is_held_out(held_out: tuple[str, ...]) -> None:
    texts = [
        target.criterion.text.casefold()
        for example in made("scales", 300, held_out=held_out)
        for target in example.targets
        if target.family.startswith("scale_")
    ]
    assert any("emoji" in text for text in texts) == (not held_out)
