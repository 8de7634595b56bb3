"""Monitors in the training loop: a collapse is found while it happens, and a policy that learns nothing raises none."""

from __future__ import annotations

import logging

import pytest

from rubricsvc.stats.run_alarms import monitor_alarms
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import TrainConfig
from trainer.loop import train
from trainer.rewards.source import CallableRewards


def long_config() -> TrainConfig:
    return tiny_config(steps=30, sampling={"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 16})


def test_train_warns_of_a_collapse_in_the_step_that_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), long_config())
    raised = monitor_alarms(history.steps)
    assert {"self-BLEU" in one.text for one in raised} == {True, False}, "and others: the policy writes one letter"
    assert all(f"step {one.step}: {one.text}" in caplog.text for one in raised)
    assert all(16 <= (one.step or 0) < 30 for one in raised)
