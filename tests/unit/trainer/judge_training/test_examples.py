"""Splits of examples, the refusal of too small ones, and mixtures."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.config import SplitConfig
from trainer.judge_training.examples import Example, Target, content_key, questions, split
from trainer.judge_training.training import mix

SHARES = SplitConfig(test=0.2, validation=0.2)


def example(prompt: str, completion: str, *criteria: str, value: float = 1.0, group: str = "") -> Example:
    targets = tuple(Target(Criterion(key=text, text=text), value) for text in criteria or ("a",))
    return Example(Prompt.of(prompt), Completion(text=completion), targets, "s", group)


def answers(prompts: int, each: int = 5) -> list[Example]:
    return [example(f"question {p}", f"answer {p}.{c}", value=c % 2) for p in range(prompts) for c in range(each)]


def families(examples: list[Example]) -> set[str]:
    return {target.family_name for _, target in questions(examples)}


def test_split_keeps_the_answers_of_a_prompt_together_and_is_stable() -> None:
    few, many = split(answers(100), SHARES, 1), split(answers(200), SHARES, 1)
    groups = [{one.split_group for one in part} for part in many.parts.values()]
    assert sum(map(len, groups)) == 200 and many.left_out == 0
    assert list(map(len, groups)) == pytest.approx([120, 40, 40], abs=20)
    for name, part in few.parts.items():
        assert {content_key(one) for one in part} <= {content_key(one) for one in many.parts[name]}
    assert {one.split_group for one in split(answers(200), SHARES, 2).test} != groups[2]


def test_split_holds_families_out_of_train_and_validation() -> None:
    made = [example(f"q{n}", "x", "a", "b", value=n // 2 % 2) for n in range(400)]
    parts = split(made, SplitConfig(test=0.2, validation=0.1, held_out=("b",)))
    assert families(parts.train) == families(parts.validation) == {"a"}
    assert families(parts.test) == {"a", "b"}
    assert parts.left_out == len(parts.train) + len(parts.validation)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (SplitConfig(test=0.6, validation=0.4), "split.test"),
        (SplitConfig(held_out=("b",)), "split.held_out"),
    ],
)
def test_split_rejects_unknown_names_and_shares(config: SplitConfig, path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        split(answers(3), config)
    assert caught.value.path == path


def test_split_names_every_part_and_class_that_is_too_small() -> None:
    with pytest.raises(InvalidError) as caught:
        split([example(f"q{n}", "x") for n in range(400)], SHARES)
    assert caught.value.path == "split"
    assert [part.endswith("at least 10 of each are needed") for part in caught.value.message.split("; ")] == [True] * 3
    with pytest.raises(InvalidError) as caught:
        split(answers(200), SplitConfig(test=0.2, validation=0.001))
    assert "split.validation (now 0.001)" in caught.value.hint and "split.test" not in caught.value.hint


SOURCES = {"a": range(10), "b": range(100, 105), "unused": range(3)}
WEIGHTS = {"a": 3.0, "b": 1.0, "unused": 0.0}


def test_mix_draws_by_weight_and_every_example_once_an_epoch() -> None:
    drawn = list(islice(mix(SOURCES, WEIGHTS, 0), 40))
    for start in range(0, 40, 8):
        assert sum(one >= 100 for one in drawn[start : start + 8]) == 2
    assert Counter(one for one in drawn if one < 100) == dict.fromkeys(range(10), 3)
