"""Metrics of a step, and the file that they are recorded in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from rubricsvc.core.reward import Reward
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from trainer import history, metrics
from trainer.history import History
from trainer.rewards.source import ScoredRollout

NAN = math.nan


def test_reward_metrics_average_over_scored() -> None:
    rewards = torch.tensor([[0.0, 1.0, NAN], [0.5, 0.5, 0.5], [NAN, NAN, 1.0]], dtype=torch.float64)
    assert metrics.reward_metrics(rewards, std_floor=0.8) == pytest.approx(
        {
            "reward": 3.5 / 6,
            "reward_std": (math.sqrt(0.5) + 0.0) / 2,
            "frac_reward_zero_std": 2 / 3,
            "frac_reward_std_floored": 1 / 3,
            "unscored_fraction": 1 / 3,
        }
    )


def test_verdict_metrics_count_failures_and_leave_them_out_of_means() -> None:
    nothing, vetoed = Reward(None, 0.0, "weighted_mean"), Reward(0.0, 1.0, "weighted_mean", vetoed_by="a")
    scored = [
        ScoredRollout(nothing, (Verdict.scored("a", 1.0), Verdict.failed("b", "timeout"))),
        ScoredRollout(vetoed, (Verdict.scored("a", 0.5), Verdict.scored("b", 0.25), Verdict.abstained("c"))),
    ]
    counts = {"verdicts": 4, "failed_verdicts": 1, "judge/failed/timeout": 1, "vetoed_fraction": 0.5}
    assert metrics.verdict_metrics(scored, by_criterion=False) == counts
    assert metrics.verdict_metrics(scored, by_criterion=True) == {
        **counts,
        **{"rewards/a/mean": 0.75, "rewards/b/mean": 0.25},
    }


def test_history_continues_after_checkpoint(tmp_path: Path) -> None:
    log = History(tmp_path)
    assert log.add({"step": 1, "reward": NAN, "lr": 0.5}) == {"step": 1, "reward": None, "lr": 0.5}
    for step in (2, 3):
        log.add({"step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # killed while writing
    assert [step["step"] for step in history.read(tmp_path)] == [1, 2, 3]
    again = History(tmp_path, last_step=2)
    again.add({"step": 3, "second": True})
    assert history.read(tmp_path) == [{"step": 1, "reward": None, "lr": 0.5}, {"step": 2}, {"step": 3, "second": True}]


@pytest.mark.parametrize("line", ["garbage", "{}", "[]", '{"step": "1"}', "\udcff"])
def test_read_names_damaged_line(tmp_path: Path, line: str) -> None:
    History(tmp_path).add({"step": 1})
    with (tmp_path / "metrics.jsonl").open("a", errors="surrogateescape") as file:
        file.write(f"{line}\n")
    with pytest.raises(InvalidError, match=r"metrics.jsonl, line 2"):
        history.read(tmp_path)
