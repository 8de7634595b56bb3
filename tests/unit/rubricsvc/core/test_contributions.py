"""What each criterion added to a reward, and how much more it could add."""

from __future__ import annotations

import pytest

from rubricsvc.core.contributions import by_gain, contributions
from rubricsvc.core.rubric import Rubric
from tests.unit.rubricsvc.core.test_reward import rubric, verdicts


def gains(rubric: Rubric, *values: float | str | None) -> list[float | None]:
    return [part.gain for part in contributions(rubric, verdicts(*values))]


def test_contributions_of_a_weighted_sum_are_the_weighted_shortfalls() -> None:
    own = rubric(5, 10, -8)
    assert gains(own, 0.5, 0.0, 1.0) == pytest.approx([2.5 / 15, 10 / 15, 8 / 15])  # unclipped: the reward is 0
    parts = contributions(own, verdicts(0.5, 0.0, 1.0))
    assert [part.contribution for part in parts] == pytest.approx([2.5 / 15, 0.0, -8 / 15])
    assert [part.criterion.key for part in by_gain(parts)][:2] == ["c1", "c2"]
    assert by_gain(contributions(own, verdicts(1.0, 1.0, 0.0))) == []


def test_contributions_use_the_formula_itself() -> None:
    assert gains(rubric(1, 1, 1, formula="min"), 0.2, 0.5, 0.9) == pytest.approx([0.3, 0.0, 0.0])
    assert gains(rubric(1, 1, formula="geometric_mean"), 0.25, 1.0) == pytest.approx([0.5, 0.0])
    one_left = rubric(1, 1, formula="multichallenge_all")
    assert gains(one_left, 1.0, 0.3) == [0.0, 1.0]
    assert gains(one_left, 0.3, 0.3) == [0.0, 0.0]  # neither alone would do


def test_contributions_of_a_part_that_was_not_judged_are_unknown() -> None:
    partly = rubric(1, 1, min_coverage=0.5)
    assert gains(partly, 0.0, "timeout") == [1.0, None]
    lenient = contributions(rubric(1, 1), verdicts(0.0, "timeout"), min_coverage=0.5)
    assert [part.gain for part in lenient] == [1.0, None]
    parts = contributions(rubric(1, 1), verdicts(0.0, None))
    assert [(part.gain, part.contribution) for part in parts] == [(None, None), (None, None)]
    assert [part.verdict and part.verdict.outcome for part in parts] == ["scored", "abstained"]
    assert contributions(rubric(1), [])[0].verdict is None
