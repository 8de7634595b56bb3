"""The questions of the shipped judge respect its split: nothing of the test is quoted in training."""

from itertools import islice
from pathlib import Path

import pytest

from recipes.embedded_judge.__main__ import COUNTS, EXCLUDED, RECIPE, Make, makers, write
from recipes.embedded_judge.answers import everyday_answers
from rubricsvc.errors import InvalidError
from trainer.judge_training.config import JudgeTrainConfig, QuestionData, load_config
from trainer.judge_training.data import read_questions, side_of


@pytest.fixture(scope="module")
def config() -> JudgeTrainConfig:
    loaded = load_config(RECIPE)
    return loaded.model_copy(update={"data": tuple(one for one in loaded.data if isinstance(one, QuestionData))})


@pytest.fixture(scope="module")
def made(config: JudgeTrainConfig) -> dict[str, Make]:
    return makers(config)


def test_recipe_trains_on_every_kind_and_excludes_a_file_that_exists(config: JudgeTrainConfig) -> None:
    assert {one.name for one in config.data} == set(COUNTS) and EXCLUDED.is_file()


def test_swapped_answers_are_those_of_prompts_on_the_same_side(config: JudgeTrainConfig, made: dict[str, Make]) -> None:
    own = {one.completion.text: one.split_group for one in everyday_answers()}
    parts = set()
    for example in made["swapped"](0, 300):
        groups = (example.split_group, own[example.completion.text])
        (side,) = {side_of(group, config.split, 0) for group in groups}
        parts.add(side)
    assert {"train", "test"} <= parts


def test_scales_quote_no_criterion_of_a_kind_that_is_held_out(made: dict[str, Make]) -> None:
    texts = [target.criterion.text.casefold() for one in islice(made["scales"](0, 200), 200) for target in one.targets]
    assert any("sentence" in text for text in texts) and not any("emoji" in text for text in texts)


def test_write_writes_what_the_training_reads(config: JudgeTrainConfig, tmp_path: Path) -> None:
    entry = QuestionData(kind="questions", name="everyday", path=tmp_path / "made" / "everyday.jsonl")
    ((path, count),) = write(config.model_copy(update={"data": (entry,)}), 0.01)
    assert count == len(list(read_questions(path))) == 15
    with pytest.raises(InvalidError, match="'other'"):
        list(write(config.model_copy(update={"data": (entry.model_copy(update={"name": "other"}),)})))
