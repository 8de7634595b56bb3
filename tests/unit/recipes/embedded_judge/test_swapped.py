from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from recipes.embedded_judge.everyday import everyday_answers
from recipes.embedded_judge.swapped import ON_TOPIC, _shared_words, swapped
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
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


def test_swapped_uses_the_given_share_of_negations() -> None:
    made = swapped(everyday_answers(), 0, 400, negated=0.1)
    negated = [target.criterion.text.rstrip(".") in ON_TOPIC.unmet for _, target in questions(made)]
    assert 0.05 < mean(negated) < 0.15


def test_swapped_near_prompts_share_more_words_than_far_ones(examples: list[Example]) -> None:
    shares = {
        variant: mean(
            _shared_words(e.prompt.text, e.completion.text) for e in examples if e.targets[0].variant == variant
        )
        for variant in ("near", "far")
    }
    assert shares["near"] > 1.5 * shares["far"]


def test_swapped_is_deterministic(examples: list[Example]) -> None:
    assert list(swapped(everyday_answers()[::-1], 0, 50, negated=0.5)) == examples[:50]


def test_swapped_of_one_prompt_is_an_error() -> None:
    with pytest.raises(InvalidError):
        next(swapped(everyday_answers()[:1], 0, 1, negated=0.5))


def test_swapped_of_completions_that_are_all_alike_is_an_error() -> None:
    answer = everyday_answers()[0]
    alike = [replace(answer, prompt=Prompt.of(text)) for text in ("How long are shoes worn?", "Who mends roofs?")]
    with pytest.raises(InvalidError):
        list(swapped(alike, 0, 8, negated=0.5))
