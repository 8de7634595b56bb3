"""Monitors on held-out prompts: what an evaluation records of them, and the warning of a change."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.stats.run_alarms import monitor_alarms
from tests.integration.trainer.evaluation.test_evaluation import REWARDS, run
from tests.model.trainer.held_out import HELD_OUT, eval_config, length
from tests.model.trainer.tiny import RUBRIC
from trainer.data.tasks import Task
from trainer.evaluation.evaluation import LINES, Evaluation
from trainer.evaluation.evaluator import Evaluator
from trainer.history import read as read_metrics
from trainer.monitors.measures import repetition
from trainer.rewards.source import CallableRewards


def test_evaluation_records_the_monitors_of_each_prompt(tmp_path: Path) -> None:
    """Of its sampled completions alone, not of the greedy one."""
    run(eval_config(tmp_path, steps=2))
    monitors = read_metrics(tmp_path, LINES)[0]["monitors"]
    rows = [json.loads(line) for line in (tmp_path / "eval" / "step-000000.jsonl").read_text().splitlines()]
    for place, task in enumerate(HELD_OUT):
        own = [row for row in rows if row["prompt_digest"] == task.prompt.digest and not row["greedy"]]
        assert monitors["completions/mean_length"][place] == pytest.approx(sum(row["tokens"] for row in own) / len(own))
        repeated = sum(repetition("", row["text"]) for row in own) / len(own)
        assert monitors["monitors/repetition"][place] == pytest.approx(repeated)
    assert {len(values) for values in monitors.values()} == {len(HELD_OUT)}


def test_train_warns_of_a_change_on_held_out_prompts(caplog: pytest.LogCaptureFixture) -> None:
    """The policy writes one letter after a few steps; by windows of steps no alarm is possible before step 16."""
    tasks = [Task(Prompt.of(f"say {letter}"), RUBRIC, letter) for letter in "bcdefghi"]
    sampling = {"prompts_per_step": 2, "group_size": 8, "max_new_tokens": 12}
    config = eval_config(steps=14, samples=4, greedy=False, optim={"lr": 3e-2}, sampling=sampling)
    given = Evaluator(config, tasks, {"reward": REWARDS, "gold": CallableRewards(length)})
    with caplog.at_level(logging.WARNING):
        history = run(config, Evaluation(given, None, config.steps))
    raised = [one for one in monitor_alarms(history.steps, history.evaluations) if one.metric == "monitors/self_bleu"]
    assert len(raised) == 1 and (raised[0].step or 0) <= 14
    assert caplog.text.count(raised[0].text) == 1
