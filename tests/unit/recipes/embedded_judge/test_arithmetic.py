"""Word problems: numbers, labels and balance."""

from __future__ import annotations

import re
from collections import Counter

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.arithmetic import RIGHT, arithmetic


def test_arithmetic_labels_agree_with_the_numbers_of_completion_and_reference() -> None:
    for example in arithmetic(0, 600, negated=0.5):
        [given], [reached] = (
            set(re.findall(r"\d+", text.replace("*", " "))[-1:])
            for text in (example.prompt.reference or "", example.completion.text)
        )
        right, stated = sorted(example.targets, key=lambda one: one.family)
        negated = right.criterion.text.rstrip(".") in RIGHT.unmet
        assert right.value == float((given == reached) != negated)
        assert stated.value == float(re.findall(r"\d+", stated.criterion.text) == [reached])


def test_arithmetic_has_as_many_right_as_wrong_solutions_of_each_problem() -> None:
    examples = list(arithmetic(1, 400, negated=0.15))
    variants = Counter((one.prompt.text, one.targets[0].variant) for one in examples)
    assert {variant for _, variant in variants} == {"right", "wrong"}
    assert all(variants[text, "right"] == variants[text, "wrong"] for text, _ in variants)


def test_arithmetic_numbers_are_positive_in_every_problem() -> None:
    examples = list(arithmetic(2, 3000, negated=0.15))
    assert {example.group for example in examples} == {problem["question"] for problem in load_yaml("arithmetic.yaml")}
    assert not [one.prompt for one in examples if re.search(r"-\d|= -| 0 ", one.prompt.reference or "")]


def test_arithmetic_depends_on_the_seed_only() -> None:
    assert list(arithmetic(3, 20, negated=0.15)) == list(arithmetic(3, 20, negated=0.15))
    assert list(arithmetic(3, 20, negated=0.15)) != list(arithmetic(4, 20, negated=0.15))
