"""Samples of the untouched policy before a run."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import UnavailableError
from tests.model.trainer.tiny import TASKS, tiny_config, tiny_policy
from trainer.data.tasks import Task
from trainer.preflight import PreviewSamples, sample_preview
from trainer.rewards.source import CallableRewards, RewardSource


def sampled(rewards: RewardSource, tasks: list[Task] = TASKS) -> PreviewSamples:
    config = tiny_config(max_unscored=0.25)
    return sample_preview(tiny_policy(), tasks, rewards, None, config, samples=2, on_prompt=lambda: None)


def unscored(*prompts: Prompt) -> RewardSource:
    return CallableRewards(lambda prompt, text: None if prompt in prompts else float(len(text)))


def test_max_unscored_is_the_share_of_all_samples() -> None:
    first, second = (task.prompt for task in TASKS[:2])
    found = sampled(unscored(first))
    assert (len(found.rewards), found.completions) == (3, 8)
    with pytest.raises(UnavailableError):
        sampled(unscored(first, second))
