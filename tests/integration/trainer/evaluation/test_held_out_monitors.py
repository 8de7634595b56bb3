"""Monitors on held-out prompts: what an evaluation records of them, and the warning of a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.trainer.evaluation.test_evaluation import run
from tests.model.trainer.held_out import HELD_OUT, eval_config
from trainer.evaluation import LINES
from trainer.monitors.measures import measures
from trainer.recording import read as read_metrics


def test_evaluation_records_the_monitors_of_each_prompt(tmp_path: Path) -> None:
    """Of its sampled completions alone, not of the greedy one."""
    run(eval_config(tmp_path, steps=2))
    monitors = read_metrics(tmp_path, LINES)[0]["monitors"]
    rows = [json.loads(line) for line in (tmp_path / "eval" / "step-000000.jsonl").read_text().splitlines()]
    for place, task in enumerate(HELD_OUT):
        own = [row for row in rows if row["prompt_digest"] == task.prompt.digest and not row["greedy"]]
        assert monitors["completions/mean_length"][place] == pytest.approx(sum(row["tokens"] for row in own) / len(own))
        repeated = sum(measures("", row["text"])["repetition"] for row in own) / len(own)
        assert monitors["monitors/repetition"][place] == pytest.approx(repeated)
    assert {len(values) for values in monitors.values()} == {len(HELD_OUT)}
