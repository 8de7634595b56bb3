"""Questions by construction respect the split: nothing of the test is quoted in training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import Judge
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data.everyday import everyday_answers
from trainer.judge_training.examples import Example
from trainer.judge_training.ingredients import load_ingredients
from trainer.judge_training.preparation import prepare
from trainer.judge_training.splits import side_of

JUDGE = Judge(name="j", engine="transformers_local", model="embedded")


def no_store() -> Any:
    raise AssertionError("no ingredient is in the database")


def made(kind: str, count: int, **split: Any) -> list[Example]:
    config = JudgeTrainConfig.model_validate(
        {"judge": JUDGE, "out": Path("out"), "data": [{"kind": kind, "name": kind, "count": count}], "split": split}
    )
    return load_ingredients(config, no_store)[kind].examples


@pytest.mark.parametrize("pairs", [False, True])
def test_hard_negatives_are_not_made_of_labels_that_only_compare(tmp_path: Path, pairs: bool) -> None:
    lines = [
        {"input": f"Name colour {n}.", "output_1": f"Red {n}.", "output_2": f"A dog {n}.", "label": 1}
        for n in range(50)
    ]
    (tmp_path / "pairs.json").write_text(json.dumps(lines))
    data = [
        {"kind": "file", "name": "people", "path": tmp_path / "pairs.json", "format": "llmbar", "pairs": pairs},
        {"kind": "hard_negatives", "name": "hard", "count": 400},
    ]
    config = JudgeTrainConfig.model_validate({"judge": JUDGE, "out": Path("out"), "data": data})
    hard = load_ingredients(config, no_store)["hard"].examples
    assert any(one.prompt.text.startswith("Name colour") for one in hard) is not pairs


@pytest.mark.parametrize(
    "split",
    [
        {"by": "prompt"},
        {"by": "source", "held_out": ["said"]},
        {"by": "criterion", "held_out": ["does_not_say"], "test": 0.4},
        {"by": "prompt", "held_out": ["says_that"]},
    ],
)
def test_prepare_keeps_the_test_out_of_statement_preferences(split: dict[str, Any]) -> None:
    kinds = {"said": "statements", "pairs": "statement_preferences", "checked": "checks"}
    data = [{"kind": kind, "name": name, "count": 300} for name, kind in kinds.items()]
    config = JudgeTrainConfig.model_validate({"judge": JUDGE, "out": Path("out"), "data": data, "split": split})
    prepared = prepare(config, load_ingredients(config, no_store))
    parts, pairs = prepared.split, prepared.preferences["pairs"]
    for others, own in (
        ([*parts.validation, *parts.test], pairs),
        ([*parts.train, *parts.test], prepared.validation_preferences["pairs"]),
    ):
        assert {one.split_group for one in others}.isdisjoint(pair.split_group for pair in own)
    assert bool(pairs) is ("says_that" not in split.get("held_out", ()))


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
