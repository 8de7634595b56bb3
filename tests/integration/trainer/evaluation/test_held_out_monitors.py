"""Monitors on held-out prompts: what an evaluation records of them, and the warning of a change."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.model.trainer.held_out import HELD_OUT, eval_config, evaluator
from tests.model.trainer.tiny import tiny_policy
from trainer.monitors.measures import measures


def test_evaluation_records_the_monitors_of_each_prompt() -> None:
    """Of its sampled completions alone, not of the greedy one."""
    found = evaluator(eval_config(steps=2)).evaluate(tiny_policy(), 0)
    monitors = found.line["monitors"]
    for place in range(len(HELD_OUT)):
        own = [one for one in found.completions if one.prompt == place and not one.greedy]
        assert monitors["completions/mean_length"][place] == pytest.approx(fmean(one.tokens for one in own))
        repeated = fmean(measures("", one.completion.text)["repetition"] for one in own)
        assert monitors["monitors/repetition"][place] == pytest.approx(repeated)
    assert {len(values) for values in monitors.values()} == {len(HELD_OUT)}
