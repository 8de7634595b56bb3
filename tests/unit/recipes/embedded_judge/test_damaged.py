from __future__ import annotations

from statistics import mean

from recipes.embedded_judge.damaged import COMPLETE, CONCISE, READABLE, damaged
from recipes.embedded_judge.everyday import everyday_answers
from trainer.judge_training.examples import questions

WORDINGS = (COMPLETE, READABLE, CONCISE)


def test_damaged_asks_about_the_damage_in_both_ways() -> None:
    negated = {text for wordings in WORDINGS for text in wordings.unmet}
    own = {answer.completion.text for answer in everyday_answers()}
    examples = list(damaged(everyday_answers(), 0, 300, negated=0.5))
    for _, target in questions(examples):
        whole = target.value == float(target.criterion.text.rstrip(".") not in negated)
        assert target.variant == ("whole" if whole else "damaged")
    for example in examples:
        if example.completion.text in own:
            assert {target.variant for target in example.targets} == {"whole"}
    assert 0.4 < mean(target.value for _, target in questions(examples)) < 0.6
    for wordings in WORDINGS:
        values = [target.variant == "whole" for _, target in questions(examples) if target.family == wordings.family]
        assert 0.4 < mean(values) < 0.6
