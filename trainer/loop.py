"""THE loop: sample -> score -> advantages -> loss -> step -> record.

::

    config = load_config(Path("run.toml"))                    # trainer.config; or TrainConfig(steps=50, …)
    policy = Policy.load("embedded")                          # trainer.policy
    with JudgeRewards(judge) as rewards:                      # trainer.rewards; or CallableRewards(function)
        history = train(policy, tasks, rewards, config, on_step=print)

``history.steps`` has one dict of metrics for each step, the lines of ``out/metrics.jsonl``. ``policy`` is trained in
place. What is drawn in a step depends on the seed and the step's number alone, so that a run that is resumed is the run
that was never interrupted.

Shapes in names: G prompts (groups) a step, M completions a group, B = G·M, T tokens.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Event
from typing import Any

import torch
from torch import Tensor

from rubricsvc.core.prompt import Completion
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from trainer import checkpoint, metrics
from trainer.algorithms import grpo
from trainer.config import TrainConfig
from trainer.metrics import History, Journal, Metrics, Stopwatch
from trainer.optim import MasterAdamW
from trainer.policy import Policy
from trainer.rewards import RewardSource, Scored, Task
from trainer.rollouts import Rollouts

log = logging.getLogger(__name__)


def train(
    policy: Policy,
    tasks: Sequence[Task],
    rewards: RewardSource,
    config: TrainConfig,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    resume: bool = False,
    record: Mapping[str, Any] | None = None,
) -> History:
    """Train ``policy``, which is the model that the run starts from, also where it is resumed.

    ``on_step`` sees each step's metrics as soon as it is done. When ``stop`` is set the run ends after the step that is
    under way, with a checkpoint. ``record`` is written into ``config.json`` beside the configuration. Without
    ``config.out`` nothing is written.

    Raises:
        UnavailableError: more than ``max_unscored`` of a step's completions have no reward. The run can be resumed.
        ConflictError: ``out`` holds a run and ``resume`` is False; or the run there was configured otherwise.
        InvalidError: there are no tasks, a prompt is too long for the policy, or the gradient is not finite.
    """
    if not tasks:
        raise InvalidError("there is nothing to train on", hint="give prompts with rubrics")
    if config.out and not resume and checkpoint.steps(config.out):
        hint = "resume it (--resume), or choose another `out`"
        raise ConflictError(f"{config.out} holds a training run already", hint=hint)
    identity = checkpoint.identity(config, tasks)
    reference = policy.frozen_copy() if config.optim.kl_beta else None
    optimizer = MasterAdamW(policy.model, config.optim)
    learner = Learner(policy, reference, optimizer, config)
    done = checkpoint.resume(config, optimizer, identity) if resume else 0
    checkpoint.begin(config, record)
    journal = Journal(config.out, done)
    trust = _trust(tasks, rewards)
    history = History(journal.steps)
    first = saved = done
    try:
        while done < config.steps and not history.stopped:
            measured = _step(learner, tasks, rewards, done)
            done += 1
            kept = journal.add({"step": done, **measured, **trust})
            if config.checkpoint_every and done % config.checkpoint_every == 0:
                checkpoint.save(config, saved := done, policy, optimizer, identity)
            if on_step:
                on_step(kept)
            history.stopped = stop is not None and stop.is_set() and done < config.steps
    finally:
        # An error or Ctrl-C while sampling or scoring costs no step; one within an update leaves no whole state.
        if done > saved and optimizer.updates == (done - first) * config.optim.updates_per_batch:
            checkpoint.save(config, done, policy, optimizer, identity)
        optimizer.close()
    return history


_CALIBRATED = "the rewards are probabilities of a readout that was calibrated on people's labels"
_RAW = (
    "the rewards are probabilities of an uncalibrated readout: they may mean little; "
    "`rubricsvc judges agreement` and `judges calibrate` hold a judge against people's labels"
)


def _trust(tasks: Sequence[Task], rewards: RewardSource) -> Metrics:
    """``judge_calibrated``, where a readout's probabilities are among the rewards; said aloud either way."""
    judged = any(criterion.check is None for task in tasks for criterion in task.rubric.criteria)
    calibrated = getattr(rewards, "calibrated", None) if judged else None
    if calibrated is None:
        return {}
    log.warning(_CALIBRATED if calibrated else _RAW)  # a command shows no lesser lines
    return {"judge_calibrated": calibrated}


@dataclass(frozen=True)
class Learner:
    """What a run trains, and how. ``reference`` is there when the loss has a KL penalty."""

    policy: Policy
    reference: Policy | None
    optimizer: MasterAdamW
    config: TrainConfig

    @torch.no_grad()
    def reference_logprobs(self, rollouts: Rollouts) -> Tensor | None:
        return self.reference.logprobs(rollouts, self.config.sampling.temperature)[0] if self.reference else None


def _step(learner: Learner, tasks: Sequence[Task], rewards: RewardSource, step: int) -> Metrics:
    policy, config, watch = learner.policy, learner.config, Stopwatch()
    chosen = tasks_of_step(tasks, step, config)
    generator = torch.Generator(policy.device).manual_seed(_seed(config.seed, "sample", step))
    with watch("sample"):
        prompts = [task.prompt for task in chosen]
        rollouts = policy.sample(prompts, config.sampling.group_size, config.sampling, generator)
    with watch("score"):
        asked = [chosen[prompt] for prompt in rollouts.prompt_of_B.tolist()]
        scored = rewards.score(asked, completions(rollouts, policy, step))
        rewards_GM = _rewards(scored, config)
    with watch("train"):
        learned = learn(learner, rollouts, rewards_GM, step)
    return {
        **metrics.of_rewards(rewards_GM),
        **metrics.of_rollouts(rollouts),
        **metrics.of_verdicts(scored, config.criterion_metrics),
        **learned,
        **watch.seconds(),
    }


def learn(learner: Learner, rollouts: Rollouts, rewards_GM: Tensor, step: int) -> Metrics:
    """The updates of one batch, from the completions that were scored.

    The first update needs no second forward pass for the old log-probabilities: the policy has not moved yet.
    """
    optim, temperature = learner.config.optim, learner.config.sampling.temperature
    advantages_B = grpo.advantages(rewards_GM).flatten().float().to(learner.policy.device)
    scored = (~rewards_GM.isnan()).flatten().nonzero().flatten().to(learner.policy.device)
    parts = torch.split(scored, optim.micro_batch or len(scored)) if len(scored) else ()
    tokens = int(rollouts.lengths[scored].sum())
    lr = learner.optimizer.learning_rate(step)
    old: list[Tensor] = []
    sums: dict[str, float] = defaultdict(float)
    for update in range(optim.updates_per_batch):
        for at, rows in enumerate(parts):
            part = rollouts.rows(rows)
            logp_BT, entropy_BT = learner.policy.logprobs(part, temperature)
            if update == 0:
                old.append(logp_BT.detach())
                sums["entropy"] += float(entropy_BT.sum())
            loss = grpo.loss(
                logp_BT,
                old[at],
                advantages_B[rows],
                part.mask_BT,
                tokens=tokens,
                clip_low=optim.clip_low,
                clip_high=optim.clip_high,
                kl_beta=optim.kl_beta,
                ref_logp_BT=learner.reference_logprobs(part),
            )
            torch.autograd.backward(loss.value)
            for name, value in (("loss", loss.value), ("clipped", loss.clipped), ("kl", loss.kl)):
                sums[name] += value.item()
        sums["grad_norm"] += learner.optimizer.step(lr)
    return metrics.of_updates(sums, tokens, learner.config.optim) | {"learning_rate": lr}


def completions(rollouts: Rollouts, policy: Policy, step: int) -> list[Completion]:
    """What was written, with who wrote it: the policy after ``step`` steps."""
    cut = rollouts.truncated_B.tolist()
    return [
        Completion(text=text, policy=policy.name, step=step, sampling={"truncated": truncated})
        for text, truncated in zip(rollouts.texts, cut, strict=True)
    ]


def _rewards(scored: Sequence[Scored], config: TrainConfig) -> Tensor:
    """Rewards [G, M], NaN for None."""
    missing = [item for item in scored if item.reward.value is None]
    if len(missing) > config.max_unscored * len(scored):
        failed = Counter(str(v.reason) for item in missing for v in item.verdicts if v.outcome == "failed")
        why = ", ".join(f"{count} verdicts failed: {reason}" for reason, count in failed.most_common(3))
        raise UnavailableError(
            f"{len(missing)} of {len(scored)} completions have no reward ({why or missing[0].reward.null_reason})",
            hint="mend the judge and resume; max_unscored is the share that may be missing",
        )
    values = [math.nan if item.reward.value is None else item.reward.value for item in scored]
    return torch.tensor(values, dtype=torch.float64).view(-1, config.sampling.group_size)


def tasks_of_step(tasks: Sequence[Task], step: int, config: TrainConfig) -> list[Task]:
    """The step's tasks: all are seen once, in an order drawn anew, before any is seen again."""
    size = config.sampling.prompts_per_step
    places = (divmod(step * size + i, len(tasks)) for i in range(size))
    return [tasks[_order(len(tasks), config.seed, epoch)[at]] for epoch, at in places]


@lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(_seed(seed, "order", epoch))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


def _seed(seed: int, purpose: str, number: int) -> int:
    """Independent streams of random numbers: neighbouring seeds and steps share nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:7])
