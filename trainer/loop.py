"""The training loop: sample -> score -> advantages -> loss -> step -> record.

::

    config = load_config(Path("run.toml"))                    # trainer.config; or TrainConfig(steps=50, …)
    policy = Policy.load("embedded")                          # trainer.policy
    with JudgeRewards(judge) as rewards:                      # trainer.rewards; or CallableRewards(function)
        history = train(policy, tasks, rewards, config, on_step=print)

``history.steps`` has one dict of metrics for each step, the lines of ``out/metrics.jsonl``. ``policy`` is trained in
place. The random numbers of a step depend on the seed and the step's number alone, so that a resumed run equals the run
that was never interrupted.

Shapes in names: G prompts (groups) a step, M completions a group, B = G·M, T tokens.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from threading import Event
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rubricsvc.core.run import RolloutGroup
from rubricsvc.errors import InvalidError
from trainer import checkpoint, metrics
from trainer.algorithms import grpo, supervised
from trainer.config import TrainConfig
from trainer.metrics import History, Metrics
from trainer.optim import MasterAdamW
from trainer.outages import StepScorer, StopRequested
from trainer.policy import Policy
from trainer.recording import Recorder, recorded, rollout_groups
from trainer.rewards import RewardSource, ScoredRollout, Task, judge_of
from trainer.rollouts import Rollouts
from trainer.seeds import stream_seed
from trainer.tasks import check_apart

if TYPE_CHECKING:
    from trainer.evaluation.evaluation import Evaluation
    from trainer.evolution import OnlineEvolution


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
    evolution: OnlineEvolution | None = None,
    recorder: Recorder | None = None,
    evaluation: Evaluation | None = None,
) -> History:
    """Train ``policy`` and return the metrics of every step.

    Args:
        policy: the model that the run starts from, also when it is resumed.
        tasks: prompts with their rubrics.
        rewards: where rewards come from.
        config: settings; without ``config.out`` nothing is written.
        on_step: called with the metrics of each step.
        stop: when set, the run ends after the current step, or in a pause at once, with a checkpoint.
        resume: continue from the newest intact checkpoint in ``config.out``; without any, from the first step.
        record: plain data to write into ``config.json`` beside the configuration.
        evolution: what evolves the rubrics; needed with ``config.evolve``.
        recorder: records the run with its rollouts.
        evaluation: what evaluates the policy on held-out prompts; needed with ``config.eval``.

    Raises:
        UnavailableError: too few rewards, also after a pause, or a checkpoint cannot be written; resume the run.
        NotFoundError: ``resume`` is True and ``out`` holds no run.
        ConflictError: ``out`` holds a run and ``resume`` is False; or it had another configuration or judge.
        InvalidError: no tasks, a prompt too long for the policy, a wrong number of rewards, or a gradient not finite.
    """
    _check_start(policy, tasks, config, resume=resume, evolution=evolution, evaluation=evaluation)
    constants = metrics.judge_metrics(judge := judge_of(tasks, rewards), config.optim.std_floor)
    identity = checkpoint.identity(config, tasks, floor := constants["std_floor"], judge.digest if judge else None)
    scorer, state = StepScorer(rewards, config, stop, recorder), _begin(policy, config, floor, evolution)
    first = saved = done = _resume(state, identity) if resume else 0
    content = checkpoint.write_config(config.out, config, constants | metrics.judge_record(judge) | dict(record or {}))
    with closing(state.optimizer), recorded(recorder, content, judge, history := History(config.out, done)):
        try:
            _evaluate(evaluation, state, history, done, begin=True)
            while done < config.steps and not history.stopped:
                step, groups = _step(state, tasks, scorer, done)
                done += 1
                line = _record(history, recorder, {"step": done, **step, **constants}, groups)
                saved = _save_if_due(state, done, saved, identity)
                if on_step:
                    on_step(line)
                history.stopped = stop is not None and stop.is_set() and done < config.steps
                _evaluate(evaluation, state, history, done)
        except StopRequested:
            history.stopped = True
        finally:
            # An error or Ctrl-C while sampling or scoring costs no step; one within an update leaves no whole state.
            if done > saved and state.optimizer.updates == (done - first) * config.optim.updates_per_batch:
                _save(state, done, identity)
    return history


def _record(history: History, recorder: Recorder | None, step: Metrics, groups: Sequence[RolloutGroup]) -> Metrics:
    """Record a step, and return its metrics as recorded."""
    line = history.add(step)
    if recorder is not None:
        recorder.step(line, groups)
    return line


def _check_start(
    policy: Policy,
    tasks: Sequence[Task],
    config: TrainConfig,
    *,
    resume: bool,
    evolution: OnlineEvolution | None,
    evaluation: Evaluation | None,
) -> None:
    if not tasks:
        raise InvalidError("there are no tasks to train on", hint="give prompts with rubrics")
    pairs = (("evolve", config.evolve, "evolution", evolution), ("eval", config.eval, "evaluation", evaluation))
    for name, settings, argument, given in pairs:
        if (settings is None) != (given is None):
            hint = "give both, or neither"
            raise InvalidError(f"`config.{name}` and `{argument}` do not agree", hint=hint, path=name)
    if evolution is not None:
        evolution.check(tasks)
    if evaluation is not None:
        check_apart(tasks, evaluation.evaluator.tasks)
        evaluation.evaluator.check(policy)
    if config.out:
        checkpoint.check_folder(config.out, resume=resume)
    for task in tasks:
        policy.token_ids(task.prompt, config.sampling.max_new_tokens)


@dataclass(frozen=True)
class TrainState:
    """What a run trains, and how.

    ``reference`` is a copy of the starting policy, None where nothing needs it; ``evolution`` is None where rubrics
    stay.
    """

    policy: Policy
    reference: Policy | None
    optimizer: MasterAdamW
    config: TrainConfig
    std_floor: float
    evolution: OnlineEvolution | None = None

    @property
    def sampler(self) -> Policy:
        """The policy that completions are sampled from."""
        return self.policy if self.config.algorithm == "grpo" or self.reference is None else self.reference


def _begin(policy: Policy, config: TrainConfig, std_floor: float, evolution: OnlineEvolution | None) -> TrainState:
    optimizer = MasterAdamW(policy.model, config.optim)
    return TrainState(policy, _reference(policy, config), optimizer, config, std_floor, evolution)


def _reference(policy: Policy, config: TrainConfig) -> Policy | None:
    """Return a copy of the starting policy if its log-probabilities or its samples are needed."""
    needed = config.optim.kl_beta > 0 or config.optim.kl_every > 0 or config.algorithm != "grpo"
    return policy.frozen_copy() if needed else None


def _evaluate(
    evaluation: Evaluation | None, state: TrainState, history: History, done: int, *, begin: bool = False
) -> None:
    """Evaluate the policy after ``done`` steps if that is due, and at the beginning what a stopped run left out."""
    if evaluation is None or history.stopped:
        return
    start = state.policy if done == 0 else state.reference
    if begin:
        evaluation.begin(done)
        if start is not None:
            evaluation.run(start, 0, state.policy.name)
    evaluation.run(state.policy, done, state.policy.name)
    history.evaluations = evaluation.lines


def _resume(state: TrainState, identity: checkpoint.Identity) -> int:
    """Restore the newest intact checkpoint, with the rubric versions in use; return the number of steps done."""
    done = checkpoint.resume(state.config, state.optimizer, identity)
    if state.evolution is not None:
        state.evolution.restore(checkpoint.saved_versions(state.config, done))
    return done


def _save(state: TrainState, done: int, identity: checkpoint.Identity) -> None:
    versions = state.evolution.state() if state.evolution is not None else None
    checkpoint.save(state.config, done, state.policy, state.optimizer, identity, versions=versions)


def _save_if_due(state: TrainState, done: int, saved: int, identity: checkpoint.Identity) -> int:
    """Save the state if a checkpoint is due; return the number of steps that are saved."""
    every = state.config.checkpoint_every
    if not every or done % every:
        return saved
    _save(state, done, identity)
    return done


def _step(
    state: TrainState, tasks: Sequence[Task], scorer: StepScorer, step: int
) -> tuple[Metrics, tuple[RolloutGroup, ...]]:
    """Take a step (from 0), and return its metrics and its rollouts."""
    start = time.perf_counter()
    step_tasks, rollouts = sample_step(state.sampler, tasks, state.config, step)
    sampled = time.perf_counter()
    completions = rollouts.completions(state.policy.name, step, state.config.sampling)
    prompts = rollouts.prompt_of_B.tolist()
    used = state.evolution.tasks(step, step_tasks) if state.evolution is not None else step_tasks
    task_of_B = [used[prompt] for prompt in prompts]
    scored, how_scored = scorer.score(task_of_B, completions)
    rewards_GM = _rewards(scored, state.config)
    scored_at = time.perf_counter()
    evolved: Metrics = {}
    if state.evolution is not None:
        authored_of_B = [step_tasks[prompt] for prompt in prompts]
        evolved = state.evolution.evolve(step, authored_of_B, task_of_B, completions, scored)
        evolved["evolve_time"] = time.perf_counter() - scored_at
    train_start = time.perf_counter()
    updated = update(state, rollouts, rewards_GM, step)
    end = time.perf_counter()
    groups = rollout_groups(
        task_of_B,
        completions,
        scored,
        advantages=updated.advantages_B.tolist(),
        tokens=rollouts.lengths.tolist(),
        logprob_sums=updated.logprob_sums_B.tolist(),
    )
    return {
        **metrics.reward_metrics(rewards_GM, state.std_floor),
        **metrics.rollout_metrics(rollouts),
        **metrics.verdict_metrics(scored, state.config.criterion_metrics),
        **updated.metrics,
        **evolved,
        **how_scored,
        "sample_time": sampled - start,
        "score_time": scored_at - sampled,
        "train_time": end - train_start,
        "step_time": end - start,
    }, groups


def sample_step(policy: Policy, tasks: Sequence[Task], config: TrainConfig, step: int) -> tuple[list[Task], Rollouts]:
    """Return the tasks of a step (from 0) and the completions that the policy samples for them."""
    step_tasks = tasks_of_step(tasks, step, config)
    seed = stream_seed(config.seed, "sample", step)
    prompts = [task.prompt for task in step_tasks]
    return step_tasks, policy.sample(prompts, config.sampling.group_size, config.sampling, seed)


@dataclass(frozen=True)
class Update:
    """What an update of the policy was: its metrics, and for each completion [B] the advantage and the log-probability.

    The log-probability is the sum over tokens under the policy that sampled; NaN without a reward.
    """

    metrics: Metrics
    advantages_B: Tensor
    logprob_sums_B: Tensor


def update(state: TrainState, rollouts: Rollouts, rewards_GM: Tensor, step: int) -> Update:
    """Update the policy on one batch of scored completions.

    The first update needs no second forward pass for the old log-probabilities: the policy has not moved yet.

    ``rewards_GM`` are the rewards of the rollouts, NaN where there is none; ``step`` counts from 0.
    """
    optim, temperature = state.config.optim, state.config.sampling.temperature
    rows_N = learned_rows(state.config, rewards_GM).to(state.policy.device)
    advantages_B = grpo.advantages(rewards_GM, state.std_floor).flatten().float().to(state.policy.device)
    micro_batches = torch.split(rows_N, optim.micro_batch or len(rows_N)) if len(rows_N) else ()
    tokens = int(rollouts.lengths[rows_N].sum())
    lr = state.optimizer.learning_rate(step)
    reference = state.reference if _measures_kl(state.config, step) else None
    old_logp: list[Tensor] = []
    logprob_sums_B = torch.full_like(advantages_B, math.nan)
    ref_logp: list[Tensor | None] = []
    sums: dict[str, float] = defaultdict(float)
    for epoch in range(optim.updates_per_batch):
        for index, rows in enumerate(micro_batches):
            part = rollouts.select(rows)
            logp_BT, entropy_BT = state.policy.logprobs(part, temperature)
            if epoch == 0:
                old_logp.append(logp_BT.detach())
                logprob_sums_B[rows] = old_logp[index].float().sum(-1)
                ref_logp.append(ref := reference.logprobs(part, temperature)[0] if reference else None)
                sums["entropy"] += float(entropy_BT.sum())
                if ref is not None:
                    sums["kl_start"] += float(torch.where(part.mask_BT, grpo.k3(old_logp[index], ref), 0.0).sum())
            batch = Batch(part, advantages_B[rows], old_logp[index], ref_logp[index])
            loss = _loss(state.config, logp_BT, batch, tokens)
            torch.autograd.backward(loss.value)
            for name, value in (("loss", loss.value), ("clipped", loss.clipped), ("kl", loss.kl)):
                sums[name] += value.item()
        sums["grad_norm"] += state.optimizer.step(lr)
    update_metrics = metrics.update_metrics(sums, tokens, optim) | {"learning_rate": lr}
    return Update(update_metrics, advantages_B, logprob_sums_B)


def learned_rows(config: TrainConfig, rewards_GM: Tensor) -> Tensor:
    """Return the rows of B that the update learns from: all scored completions, or the best of each group."""
    if config.algorithm == "grpo":
        return (~rewards_GM.isnan()).flatten().nonzero().flatten()
    return supervised.best_rows(rewards_GM)


def _measures_kl(config: TrainConfig, step: int) -> bool:
    """Return whether the divergence from the starting policy is measured; samples of another policy do not have it."""
    optim = config.optim
    due = optim.kl_every > 0 and (step + 1) % optim.kl_every == 0
    return config.algorithm == "grpo" and (due or optim.kl_beta > 0)


@dataclass(frozen=True)
class Batch:
    """A micro-batch of rollouts, their advantages, and log-probabilities of the sampling and the starting policy."""

    rollouts: Rollouts
    advantages_B: Tensor
    old_logp_BT: Tensor
    ref_logp_BT: Tensor | None


def _loss(config: TrainConfig, logp_BT: Tensor, batch: Batch, tokens: int) -> grpo.Loss:
    if config.algorithm != "grpo":
        return supervised.loss(logp_BT, batch.rollouts.mask_BT, tokens=tokens)
    return grpo.loss(
        logp_BT,
        batch.old_logp_BT,
        batch.advantages_B,
        batch.rollouts.mask_BT,
        tokens=tokens,
        clip_low=config.optim.clip_low,
        clip_high=config.optim.clip_high,
        kl_beta=config.optim.kl_beta,
        ref_logp_BT=batch.ref_logp_BT if config.optim.kl_beta else None,
    )


def _rewards(scored: Sequence[ScoredRollout], config: TrainConfig) -> Tensor:
    """Return rewards [G, M], NaN for None."""
    values = [math.nan if result.reward.value is None else result.reward.value for result in scored]
    return torch.tensor(values, dtype=torch.float64).view(-1, config.sampling.group_size)


def tasks_of_step(tasks: Sequence[Task], step: int, config: TrainConfig) -> list[Task]:
    """Return the step's tasks: every task comes once, in a random order, before any comes again."""
    size = config.sampling.prompts_per_step
    places = (divmod(step * size + i, len(tasks)) for i in range(size))
    return [tasks[_order(len(tasks), config.seed, epoch)[at]] for epoch, at in places]


@lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(stream_seed(seed, "order", epoch))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order
