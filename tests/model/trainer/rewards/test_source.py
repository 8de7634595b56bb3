"""Rewards of a function and of a judge in this process."""

import math
from collections.abc import Sequence

import pytest
import torch

from rubricsvc.core.reward import Reward
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from tests.instant_engine import InstantEngine
from tests.model.trainer.scored import COMPARES, COMPLETIONS, JUDGE, MIXED, by_length, faulty, score
from tests.preference_engine import Tasteful, answers_in
from trainer.rewards import JudgeRewards, ScoredRollout, validated


def results(values: Sequence[float | None]) -> list[ScoredRollout]:
    return [ScoredRollout(Reward(value, 1.0, "function")) for value in values]


def test_judge_rewards_score_each_rubric() -> None:
    with JudgeRewards(JUDGE, InstantEngine()) as rewards:
        scored, again = score(rewards), score(rewards)
    assert [result.reward.value for result in scored] == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert [[v.criterion for v in result.verdicts] for result in scored] == [["a", "b"], ["a", "b"], ["c"], ["c"]]
    assert [result.reward for result in again] == [result.reward for result in scored]


def test_judge_rewards_failed_verdict_is_no_reward() -> None:
    with JudgeRewards(JUDGE, InstantEngine(faulty)) as rewards:
        scored = score(rewards)
    assert [result.reward.value for result in scored] == [None, None, 1.0, 1.0]
    assert scored[0].verdicts[1].reason == Reason.TIMEOUT


def test_judge_rewards_show_comparative_judge_the_group_of_each_task() -> None:
    engine = Tasteful(by_length)
    with JudgeRewards(COMPARES, engine) as rewards:
        scored = rewards.score(MIXED, COMPLETIONS)
    shown = sorted(sorted(answers_in(request.shared).values()) for request in engine.requests)
    assert shown == [["eleven", "two"], ["one", "seven"]]
    assert [result.reward.value for result in scored] == pytest.approx([0.3, 0.2, 0.5, 0.4])


def test_validated_makes_non_finite_rewards_null() -> None:
    checked = validated(results([math.nan, math.inf, None, 0.5]), COMPLETIONS)
    assert [result.reward.value for result in checked] == [None, None, None, 0.5]
    assert [bool(result.reward.null_reason) for result in checked] == [True, True, False, False]


def test_validated_refuses_rewards_that_are_no_numbers() -> None:
    for value in ["0.5", [0.5], {"reward": 1.0}, torch.tensor(0.5), 1j]:
        with pytest.raises(InvalidError, match=type(value).__name__):
            validated(results([0.5, None, value, 0.5]), COMPLETIONS)
        with pytest.raises(InvalidError, match=type(value).__name__):
            validated([*results([0.5, None, 0.5]), value], COMPLETIONS)


def test_validated_refuses_anything_but_one_result_each() -> None:
    cases = [None, 0.5, {0: 0.5}, [], results([0.5] * 3), (one for one in results([0.5] * 4))]
    for returned in cases:
        with pytest.raises(InvalidError):
            validated(returned, COMPLETIONS)
