"""The training loop while its judge is down: it takes no such step, pauses, goes on, or stops with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.core.states import RunState
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.schemas.runs import RunStep
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint, loop
from trainer.data.tasks import Task
from trainer.recording import Metrics
from trainer.rewards import CallableRewards, JudgeInfo, RewardSource, ScoredRollout

WORKING = CallableRewards(share_of_a)


class Pauses:
    """A `Recorder` of the reasons of pauses, None where the run goes on."""

    def __init__(self, repair: Callable[[], None] = lambda: None) -> None:
        self.reasons: list[str | None] = []
        self.repair = repair

    def begin(self, config: Mapping[str, Any], judge: JudgeInfo | None, earlier: Sequence[Metrics]) -> None:
        assert not self.reasons

    def send(self, step: RunStep) -> None:
        assert step.metrics["unscored_fraction"] == 0.0

    def set_state(self, state: RunState, reason: str | None = None) -> None:
        if state in ("paused", "running"):
            self.reasons.append(reason)
            self.repair()


class Judge(RewardSource):
    """A judge that fails for ``reason`` in the calls ``down``, counted from 0."""

    def __init__(self, down: range, reason: Reason = Reason.UNAVAILABLE, stop: Event | None = None) -> None:
        self.down, self.reason, self.stop = down, reason, stop
        self.sizes: list[int] = []
        self.judge = JudgeInfo("judge", digest="a" * 64)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        self.sizes.append(len(completions))
        if len(self.sizes) - 1 not in self.down:
            return WORKING.score(tasks, completions)
        if self.stop and len(self.sizes) - 1 == self.down[-1]:
            self.stop.set()
        failed = Verdict.failed("good", self.reason)
        return [ScoredRollout(Reward(None, 0.0, "weighted_mean"), (failed,)) for _ in completions]


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.rewards.FIRST_PROBE_SECONDS", 0.01)


def test_train_pauses_and_goes_on_with_the_same_step() -> None:
    """The second step fails twice; of two probes, each of one group, the first fails."""
    policy, straight = tiny_policy(), tiny_policy()
    judge, pauses = Judge(range(1, 4)), Pauses()
    history = loop.train(policy, TASKS, judge, tiny_config(pause_after=2), recorder=pauses)
    assert judge.sizes[:6] == [8, 8, 8, 4, 4, 8]
    assert ["unavailable" in str(reason) for reason in pauses.reasons] == [True, False]
    assert [step["score_attempts"] for step in history.steps] == [1, 3, 1, 1, 1, 1]
    assert [step["paused_time"] > 0 for step in history.steps] == [False, True] + [False] * 4
    loop.train(straight, TASKS, WORKING, tiny_config())
    pairs = zip(policy.model.parameters(), straight.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("last_call", [2, 4])
def test_train_stops_in_a_pause_with_a_checkpoint(tmp_path: Path, last_call: int) -> None:
    """The stop is requested while the step is scored for the first time, or by a probe."""
    stop = Event()
    judge = Judge(range(2, last_call + 1), stop=stop)
    history = loop.train(tiny_policy(), TASKS, judge, tiny_config(out=tmp_path, pause_after=2), stop=stop)
    assert history.stopped
    assert (len(history.steps), checkpoint.steps(tmp_path), len(judge.sizes)) == (2, [2], last_call + 1)
