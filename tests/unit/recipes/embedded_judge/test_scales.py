"""Ordinal and numeric questions by construction."""

from __future__ import annotations

from collections import Counter

from recipes.embedded_judge.scales import scales
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.rubric import Criterion, Numeric, Ordinal
from trainer.judge_training.examples import Example, Target


def example(*values: float) -> Example:
    targets = tuple(
        Target(Criterion(key=f"c{number}", text=f"Says number {number}."), value) for number, value in enumerate(values)
    )
    prompt = Prompt(messages=(Message(role="user", content="Say numbers."),))
    return Example(prompt, Completion(text="One and two."), targets, "made", group="g")


def test_scales_value_is_the_share_of_criteria_that_are_met() -> None:
    made = list(scales([example(1, 0, 1, 0)], 0, 200))
    for one in made:
        target = one.targets[0]
        joined = target.criterion.text.count("Says number")
        met = sum(text in target.criterion.text for text in ("Says number 0", "Says number 2"))
        assert target.value == met / joined
        assert len(one.targets) == 1 + 4 - joined
        assert one.group == "g"
    kinds = Counter(type(one.targets[0].criterion.scale) for one in made)
    assert kinds[Numeric] > 40
    assert kinds[Ordinal] > 80
