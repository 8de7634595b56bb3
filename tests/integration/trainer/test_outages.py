"""The training loop while its judge is down: it takes no such step, pauses, goes on, or stops with a checkpoint."""

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
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import RunStep
from rubricsvc.settings import read_settings
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint, loop
from trainer.config import RunConfig
from trainer.data.tasks import Task
from trainer.recording import Metrics
from trainer.rewards import CallableRewards, JudgeInfo, RewardSource, ScoredRollout
from trainer.run import check_local

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


LOCAL = {"name": "here", "model": "m", "endpoint": {"base_url": "http://127.0.0.1:8000/v1"}}
FAR = {"name": "far", "model": "m", "endpoint": {"base_url": "http://10.1.2.3:8000/v1"}}
ENVIRONMENT = {"environment": {"name": "mcp"}}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def run(**fields: Any) -> RunConfig:
    given = {"steps": 1, "out": "x", "data": {"path": "x"}, "judge": LOCAL, "local_only": True, **fields}
    return RunConfig.model_validate(given)


def panel(*members: dict[str, Any]) -> dict[str, Any]:
    return {"name": "panel", "mode": "panel", "engine": "none", "members": list(members)}


def test_local_run_passes() -> None:
    cases = [
        {},
        {"judge": "stored"},
        {"judge": {"name": "e", "engine": "transformers_local", "model": "embedded"}},
        {"judge": {**LOCAL, "endpoint": {"base_url": "http://localhost:8000/v1"}}},
        {"judge": {**LOCAL, "endpoint": {"base_url": "http://[::1]:8000/v1"}}},
        {"judge": FAR, "local_networks": ["10.0.0.0/8"]},
        {"judge": FAR, "local_only": False},
        {**ENVIRONMENT, "tools": {"mcp": [{"name": "t", "url": "http://127.0.0.1:1/mcp"}]}},
        {**ENVIRONMENT, "tools": {"mcp": [{"name": "t", "command": ["serve"]}]}},
        {"trackers": ["tensorboard"]},
    ]
    for fields in cases:
        check_local(run(**fields))


def test_run_that_leaves_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        ({"judge": FAR}, "'far'"),
        ({"judge": FAR, "local_networks": ["192.168.0.0/16"]}, "10.1.2.3"),
        ({"judge": {"name": "openai", "model": "m"}}, "api.openai.com"),
        ({"judge": panel(LOCAL, FAR)}, "'far'"),
        ({"judge": {"name": "s", "service": "http://10.0.0.1:8321"}}, "'s'"),
        ({"judge": {"name": "own", "engine": "somewhere", "model": "m"}}, "'own'"),
        ({"eval": {"share": 0.5, "judges": [FAR]}}, "'far'"),
        ({"evolve": {"proposer": FAR}}, "'far'"),
        ({"sampling": {"server": "http://10.0.0.1:8000/v1"}}, "sampling.server"),
        ({**ENVIRONMENT, "tools": {"mcp": [{"name": "wiki", "url": "http://10.0.0.1/mcp"}]}}, "'wiki'"),
        ({"trackers": ["wandb"]}, "'wandb'"),
        ({"judge": {**LOCAL, "endpoint": {"base_url": "http://no-such-host.invalid/v1"}}}, "no-such-host.invalid"),
    ]
    for fields, named in cases:
        for name in ("WANDB_MODE", "WANDB_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(InvalidError) as caught:
            check_local(run(**fields))
        assert caught.value.path == "local_only" and named in caught.value.message


def test_proxy_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "http://10.9.9.9:3128")
    with pytest.raises(InvalidError) as caught:
        check_local(run())
    assert "10.9.9.9" in caught.value.message


def test_project_may_be_local_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_LOCAL_ONLY", "true")
    monkeypatch.setattr("trainer.run.get_settings", read_settings)
    with pytest.raises(InvalidError, match="'far'"):
        check_local(run(judge=FAR, local_only=False))
    monkeypatch.setenv("RUBRICSVC_LOCAL_NETWORKS", '["10.0.0.0/8"]')
    check_local(run(judge=FAR, local_only=False))
