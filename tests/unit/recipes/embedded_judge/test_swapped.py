from __future__ import annotations

from statistics import mean

import pytest

from recipes.embedded_judge.everyday import everyday_answers
from recipes.embedded_judge.swapped import ON_TOPIC, swapped
from trainer.judge_training.examples import Example, questions


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(swapped(everyday_answers(), 0, 400, negated=0.5))


def test_swapped_labels_follow_from_whose_completion_it_is(examples: list[Example]) -> None:
    own = {answer.prompt.text: answer.completion.text for answer in everyday_answers()}
    for example, target in questions(examples):
        answers = own[example.prompt.text] == example.completion.text
        assert target.variant == "own" if answers else target.variant in ("near", "far")
        negated = target.criterion.text.rstrip(".") in ON_TOPIC.unmet
        assert target.value == float(answers != negated)


def test_swapped_is_met_half_of_the_time_by_each_completion(examples: list[Example]) -> None:
    pairs = zip(examples[::2], examples[1::2], strict=True)  # a completion with its own prompt, and with another one
    assert {sum(target.value for example in pair for target in example.targets) for pair in pairs} == {2.0}
    met = [target.variant == "own" for _, target in questions(examples)]
    assert mean(met) == 0.5
    for text in (*ON_TOPIC.met, *ON_TOPIC.unmet):
        values = [target.value for _, target in questions(examples) if target.criterion.text.rstrip(".") == text]
        assert 0.2 < mean(values) < 0.8, text
