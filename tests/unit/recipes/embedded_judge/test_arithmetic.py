"""Word problems: numbers, labels and balance."""

from __future__ import annotations

import re

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
