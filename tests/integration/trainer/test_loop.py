"""The training loop with rewards of this process."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint, loop
from trainer.alarms import monitor_alarms
from trainer.algorithms.advantages import GroupRewards, advantages
from trainer.algorithms.custom import Algorithm
from trainer.algorithms.losses import loss as built_in
from trainer.config import LoraConfig
from trainer.data.tasks import Task, tasks_of_step
from trainer.loop import TrainState, train, update
from trainer.optim import MasterAdamW, NonFiniteError
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts
from trainer.preflight import check_sizes
from trainer.recording import Metrics
from trainer.recording import read as read_metrics
from trainer.rewards import CallableRewards, JudgeInfo, RewardSource, ScoredRollout
from workers.engines.local.models import open_merged
from workers.engines.local.weights import ModelWeights

REWARDS = CallableRewards(share_of_a)
TIMES = {"step_time", "sample_time", "score_time", "train_time", "monitor_time"}


def weights(policy: Policy) -> list[torch.Tensor]:
    return [param.detach().clone() for param in policy.model.parameters()]


def timeless(steps: Sequence[Metrics]) -> list[Metrics]:
    return [{name: value for name, value in step.items() if name not in TIMES} for step in steps]


@pytest.mark.parametrize(
    ("dtype", "optim"),
    [(torch.float32, {}), (torch.bfloat16, {"updates_per_batch": 2, "micro_tokens": 80, "kl_beta": 0.05})],
)
def test_train_resumed_equals_uninterrupted(tmp_path: Path, dtype: torch.dtype, optim: dict[str, Any]) -> None:
    optim = {"lr": 1e-2, "warmup_steps": 4, **optim}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    straight = tiny_policy(dtype=dtype)
    history = loop.train(straight, TASKS, REWARDS, tiny_config(out=whole, optim=optim))
    loop.train(tiny_policy(dtype=dtype), TASKS, REWARDS, tiny_config(out=cut, optim=optim, steps=3))
    resumed = tiny_policy(dtype=dtype)
    again = loop.train(resumed, TASKS, REWARDS, tiny_config(out=cut, optim=optim), resume=True)
    assert all(torch.equal(a, b) for a, b in zip(weights(straight), weights(resumed), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(weights(straight), weights(tiny_policy(dtype=dtype)), strict=True))
    assert timeless(again.steps) == timeless(history.steps) == timeless(read_metrics(cut))
    names = ("model/model.safetensors", "optimizer.safetensors")
    assert all((checkpoint.folder(a, 6) / n).read_bytes() == (checkpoint.folder(b, 6) / n).read_bytes()
               for a, b in [(whole, cut)] for n in names)  # fmt: skip


class FailingRewards(RewardSource):
    """Rewards that raise at one call."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return REWARDS.score(tasks, completions)


def test_train_interrupted_keeps_finished_steps(tmp_path: Path) -> None:
    config = tiny_config(out=tmp_path / "cut", checkpoint_every=0)
    with pytest.raises(KeyboardInterrupt):
        loop.train(tiny_policy(), TASKS, FailingRewards(4, KeyboardInterrupt()), config)
    assert checkpoint.steps(tmp_path / "cut") == [3]
    resumed = loop.train(tiny_policy(), TASKS, REWARDS, config, resume=True)
    straight = loop.train(tiny_policy(), TASKS, REWARDS, tiny_config())
    assert timeless(resumed.steps) == timeless(straight.steps)


def test_train_drops_interrupted_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optim = {"updates_per_batch": 2}
    config = tiny_config(out=tmp_path, checkpoint_every=1, optim=optim)
    step, calls = MasterAdamW.step, []

    def interrupted(self: MasterAdamW, lr: float) -> float:
        calls.append(lr)
        if len(calls) == 6:  # the second update of the third step
            raise KeyboardInterrupt
        return step(self, lr)

    monkeypatch.setattr(MasterAdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.train(tiny_policy(), TASKS, REWARDS, config)
    assert checkpoint.steps(tmp_path) == [1, 2]


def test_train_stops_at_a_non_finite_gradient(tmp_path: Path) -> None:
    config = tiny_config(out=tmp_path, optim={"lr": 1e38, "warmup_steps": 0}, checkpoint_every=0)
    with pytest.raises(NonFiniteError):
        loop.train(tiny_policy(), TASKS, REWARDS, config)
    assert checkpoint.steps(tmp_path) == [1]


def gradient_norms(**optim: object) -> list[float]:
    config = tiny_config(steps=2, optim={"lr": 1e-2, **optim})
    return [step["grad_norm"] for step in loop.train(tiny_policy(), TASKS, REWARDS, config).steps]


@pytest.mark.parametrize("micro_tokens", [1, 50])
def test_update_micro_batches_give_same_gradient(micro_tokens: int) -> None:
    assert gradient_norms(micro_tokens=micro_tokens) == pytest.approx(gradient_norms(), rel=1e-5)


def test_update_ignores_unscored_completions() -> None:
    """The completions without a reward must not change the gradient of the others, whatever they say."""

    def only_long(prompt: Prompt, text: str) -> float | None:
        return share_of_a(prompt, text) if len(text) > 6 else None

    config = tiny_config(steps=1, max_unscored=1.0)
    policy, other = tiny_policy(), tiny_policy()
    history = loop.train(policy, TASKS, CallableRewards(only_long), config)
    assert 0 < history.steps[0]["unscored_fraction"] < 1 and history.steps[0]["grad_norm"] > 0

    state = TrainState(other, None, MasterAdamW(other.model, config.optim), config, 0.0)
    chosen = tasks_of_step(TASKS, 0, config)
    rollouts = loop.sample_tasks(other, chosen, config, 0)
    values = [only_long(chosen[0].prompt, text) for text in rollouts.texts]
    rewards = torch.tensor([math.nan if v is None else v for v in values], dtype=torch.float64).view(2, 4)
    garbled = rollouts.ids_BT.clone()
    garbled[rewards.flatten().isnan()] = 5
    update(state, replace(rollouts, ids_BT=garbled), GroupRewards(rewards), 0)
    assert all(torch.equal(a, b) for a, b in zip(weights(policy), weights(other), strict=True))


def test_update_computes_no_completion_without_an_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are those of an update that computes all; the distance to the start is over all where it is due."""
    logprobs, computed = Policy.logprobs, list[int]()

    def counted(policy: Policy, rollouts: Rollouts, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        computed.append(len(rollouts.texts) * torch.is_grad_enabled())
        return logprobs(policy, rollouts, temperature)

    monkeypatch.setattr(Policy, "logprobs", counted)
    rewards = torch.tensor([[0.0, 0.5, 1.0, torch.nan], [0.3, 0.3, 0.3, 0.3]], dtype=torch.float64)
    ends, results = [], []
    for kl_every, whole in ((0, True), (0, False), (1, True), (1, False)):
        config = tiny_config(steps=1, optim={"lr": 1e-2, "kl_every": kl_every})
        policy, start = tiny_policy(dtype=torch.float64), tiny_policy(seed=1, dtype=torch.float64)
        start.model.requires_grad_(False)
        loss = partial(built_in) if whole else built_in  # a loss of one's own may learn from all
        state = TrainState(
            policy, start, MasterAdamW(policy.model, config.optim), config, 0.0, None, Algorithm(loss=loss)
        )
        rollouts = loop.sample_tasks(policy, tasks_of_step(TASKS, 0, config), config, 0)
        computed.clear()
        updated = update(state, rollouts, GroupRewards(rewards), 0)
        ends.append(weights(policy))
        results.append((sum(computed), updated.logprob_sums_B.isnan().sum(), updated.metrics.get("kl/start")))
    for ended in ends[1:]:
        torch.testing.assert_close(ended, ends[0], rtol=1e-6, atol=1e-8)
    assert [(count, int(unknown)) for count, unknown, _ in results] == [(7, 1), (2, 6), (7, 1), (2, 1)]
    assert results[2][2] == pytest.approx(results[3][2]) and results[2][2] > 0


@pytest.mark.parametrize("overlong", ["keep", "mask", "mask_loss", "zero", "soft"])
def test_train_counts_what_is_cut_off_as_its_setting_says(overlong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the advantages, and with `mask_loss` in the loss; what was not scored stays so."""
    steps = list[tuple[Rollouts, loop.Update]]()

    def observed(state: TrainState, rollouts: Rollouts, rewards: GroupRewards, step: int) -> loop.Update:
        steps.append((rollouts, update(state, rollouts, rewards, step)))
        return steps[-1][1]

    def letters(_: Prompt, text: str) -> float:
        return len(set(text)) / 20 if "q" not in text else math.nan

    monkeypatch.setattr(loop, "update", observed)
    sampling = {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 20}
    config = tiny_config(steps=1, overlong=overlong, sampling=sampling, max_unscored=1.0)
    loop.train(tiny_policy(), TASKS, CallableRewards(letters), config)
    ((rollouts, updated),) = steps
    long, over = rollouts.truncated_B, ((rollouts.lengths - 16) / 4).clamp(0, 1)
    raw = torch.tensor([letters(TASKS[0].prompt, text) for text in rollouts.texts], dtype=torch.float64)
    assert {True, False} == {*long.tolist()} == {*raw.isnan()[long].tolist()} and {0.25, 0.5, 0.75} & {*over.tolist()}
    counted = {
        "mask": raw.masked_fill(long, math.nan),
        "zero": raw.masked_fill(long & ~raw.isnan(), 0.0),
        "soft": raw - over.masked_fill(long, 1.0),
    }.get(overlong, raw)
    expected = advantages(GroupRewards(counted.view(4, 8)), config.optim).flatten()
    torch.testing.assert_close(updated.advantages_B, expected.float())
    learned = (expected != 0) & ~(long & (overlong == "mask_loss"))
    assert torch.equal(~updated.logprob_sums_B.isnan(), learned)


class PartlyFailingRewards(RewardSource):
    """A judge that times out for three of the completions."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        failed = ScoredRollout(Reward(None, 0.0, "weighted_mean"), (Verdict.failed("good", "timeout"),))
        return [failed if i < 3 else scored for i, scored in enumerate(REWARDS.score(tasks, completions))]


def test_train_stops_at_too_many_unscored(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"\b3\b.*\b8\b.*timeout") as caught:
        loop.train(tiny_policy(), TASKS, PartlyFailingRewards(), tiny_config(out=tmp_path, max_pause_s=0))
    assert "--resume" in caught.value.hint
    assert read_metrics(tmp_path) == []
    trained = loop.train(tiny_policy(), TASKS, PartlyFailingRewards(), tiny_config(steps=1, max_unscored=0.4))
    assert trained.steps[0]["unscored_fraction"] == 3 / 8 and trained.steps[0]["failed_verdicts"] == 3


def test_update_clips_second_update_against_sampling_policy() -> None:
    config = tiny_config(steps=2, optim={"lr": 3e-2, "updates_per_batch": 4})
    history = loop.train(tiny_policy(), TASKS, REWARDS, config)
    assert history.steps[0]["clip_ratio"] > 0


def test_train_std_floor_shrinks_updates_of_noise() -> None:
    """Rewards that differ by hundredths move the policy less, the larger the floor."""

    def noise(_: Prompt, text: str) -> float:
        return 0.5 + 0.001 * (len(text) + text.count("a"))

    def norm(std_floor: float) -> float:
        config = tiny_config(steps=1, optim={"std_floor": std_floor})
        return float(loop.train(tiny_policy(), TASKS, CallableRewards(noise), config).steps[0]["grad_norm"])

    assert norm(0.1) < 0.1 * norm(0.0)


def test_floor_of_an_unmeasured_judge_ends_the_run_where_it_is_asked_for() -> None:
    rewards = CallableRewards(share_of_a)
    rewards.judge = JudgeInfo("unmeasured")
    history = loop.train(tiny_policy(), TASKS, rewards, tiny_config(steps=1))
    assert history.steps[0]["std_floor_origin"] == "unmeasured"
    with pytest.raises(InvalidError, match="repeatability was not measured"):
        loop.train(tiny_policy(), TASKS, rewards, tiny_config(steps=1, optim={"std_floor": "judge"}))


@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_train_with_top_p_starts_at_ratio_one_and_stays_finite(top_p: float) -> None:
    sampling = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8, "top_p": top_p}
    optim = {"lr": 3e-2, "updates_per_batch": 2, "micro_tokens": 80, "kl_beta": 0.01}
    history = loop.train(tiny_policy(), TASKS, REWARDS, tiny_config(steps=3, sampling=sampling, optim=optim))
    assert all(math.isfinite(step[name]) for step in history.steps for name in ("loss", "kl", "grad_norm", "entropy"))
    once = tiny_config(steps=1, sampling=sampling, optim={"aggregate": "completions"})  # their advantages sum to 0
    first = loop.train(tiny_policy(), TASKS, REWARDS, once).steps[0]
    assert (first["clip_ratio"], first["loss"]) == (0, pytest.approx(0.0, abs=1e-6))


def test_train_warns_of_a_collapse_in_the_step_that_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    config = tiny_config(steps=30, sampling={"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 16})
    with caplog.at_level(logging.WARNING):
        history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), config)
    raised = monitor_alarms(history.steps)
    assert {"self-BLEU" in one.text for one in raised} == {True, False}, "and others: the policy writes one letter"
    assert all(f"step {one.step}: {one.text}" in caplog.text for one in raised)
    assert all(16 <= (one.step or 0) < 30 for one in raised)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_train_with_an_adapter(tmp_path: Path, dtype: str) -> None:
    """The base stays and is the start; a checkpoint is the merged model and the adapter, and only of this base."""
    tiny_policy(dtype=getattr(torch, dtype)).save(base := tmp_path / "base")
    how: dict[str, Any] = {"dtype": dtype, "device": "cpu", "lora": LoraConfig(rank=4, first_layer=1)}
    optim = {"lr": 3e-2, "kl_every": 1}

    def trained(out: Path, steps: int, seed: int = 0, *, resume: bool = False) -> tuple[Policy, list[Metrics]]:
        policy, config = Policy.load(str(base), seed=seed, **how), tiny_config(out=out, steps=steps, optim=optim)
        return policy, loop.train(policy, TASKS, REWARDS, config, resume=resume).steps

    policy, steps = trained(tmp_path / "whole", 6)
    assert steps[0]["kl/start"] == 0 and steps[-1]["kl/start"] > 0
    trained(tmp_path / "cut", 3)
    again, resumed = trained(tmp_path / "cut", 6, seed=1, resume=True)
    assert timeless(resumed) == timeless(steps)
    saved = checkpoint.folder(tmp_path / "whole", 6)
    assert (saved / "optimizer.safetensors").stat().st_size < (base / "model.safetensors").stat().st_size
    changed = {name for name, param in policy.model.named_parameters() if param.requires_grad}
    assert changed and all(".layers.1." in name and ".lora_" in name for name in changed)
    untouched, merged = Policy.load(str(base), **how), Policy.load(str(saved / "model"), dtype=dtype, device="cpu")
    rollouts = untouched.sample([task.prompt for task in TASKS], 2, tiny_config().sampling, 1)
    with torch.no_grad():
        now, there, start, before = (
            one.logprobs(rollouts, 1.0)[0] for one in (policy, merged, again.start(), untouched)
        )
    near = {"atol": 1e-4 if dtype == "float32" else 0.1, "rtol": 0.0}
    torch.testing.assert_close(there, now, **near)
    assert torch.equal(start, before) and not torch.allclose(now, before, **near)
    own = ModelWeights(str(base), adapter=str(saved / "model/adapter"))
    for mine, read in zip(weights(merged), open_merged(own, getattr(torch, dtype))[0].parameters(), strict=True):
        torch.testing.assert_close(read, mine)  # by the reader of judges
    tiny_policy(seed=7, dtype=getattr(torch, dtype)).save(base)
    with pytest.raises(ConflictError) as caught:
        trained(tmp_path / "cut", 8, resume=True)
    assert caught.value.path == "policy.base_sha256"
    with pytest.raises(InvalidError) as of_base:
        open_merged(own, getattr(torch, dtype))
    assert "trained on" in of_base.value.message
    missing = LoraConfig(first_layer=2)
    config = tiny_config(policy={"model": str(base), "dtype": dtype, "lora": missing})
    for check in (partial(Policy.load, str(base), **how | {"lora": missing}), partial(check_sizes, config, TASKS)):
        with pytest.raises(InvalidError) as no_layer:
            check()
        assert no_layer.value.path == "lora.first_layer"
