"""The update of the policy on the scored completions of a step.

Shapes in names: G prompts (groups), M completions a group, B = G·M, N of B that are learned, T tokens.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rubricsvc.core.prompt import Completion
from trainer import metrics
from trainer.algorithms import grpo, supervised
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.optim import MasterAdamW
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts, join
from trainer.recording import Metrics
from trainer.rewards import ScoredRollout

if TYPE_CHECKING:
    from trainer.evolution import OnlineEvolution


@dataclass(frozen=True)
class ScoredBatch:
    """Scored completions of a step: ``tasks`` [G] of its groups, ``completions`` and ``scored`` [B], ``rewards_GM``."""

    tasks: list[Task]
    rollouts: Rollouts
    completions: list[Completion]
    scored: list[ScoredRollout]
    rewards_GM: Tensor

    @property
    def task_of_B(self) -> list[Task]:  # noqa: N802 - shape in the name
        """The task of each completion."""
        return [self.tasks[prompt] for prompt in self.rollouts.prompt_of_B.tolist()]

    def groups(self, *, signal: bool) -> list[int]:
        """Return the groups whose rewards deviate, or those that teach nothing."""
        _, std_G1 = grpo.group_statistics(self.rewards_GM)
        return ((std_G1.squeeze(-1) > 0) == signal).nonzero().flatten().tolist()

    def select(self, groups: Sequence[int]) -> ScoredBatch:
        """Return some of the groups."""
        size = self.rewards_GM.shape[-1]
        rows = [group * size + member for group in groups for member in range(size)]
        chosen = self.rollouts.select(torch.tensor(rows, device=self.rollouts.ids_BT.device))
        return ScoredBatch(
            [self.tasks[group] for group in groups],
            chosen,
            [self.completions[row] for row in rows],
            [self.scored[row] for row in rows],
            self.rewards_GM[list(groups)],
        )


Sample = Callable[[int, list[Task], int], ScoredBatch | None]
"""Samples and scores groups of other prompts, given the number of the round (from 1), the tasks that the step had so
far, and how many are wanted; None where there are no others."""


def with_signal(batch: ScoredBatch, sample: Sample, max_rounds: int) -> tuple[ScoredBatch, Metrics]:
    """Return the batch with as many groups as before, and how many were sampled and kept beside the first ones."""
    used, sampled, kept, rounds = list(batch.tasks), 0, 0, 0
    for number in range(1, max_rounds + 1):
        without = batch.groups(signal=False)
        fresh = sample(number, used, len(without)) if without else None
        if fresh is None:
            break
        rounds, sampled, used = number, sampled + len(fresh.tasks), used + fresh.tasks
        better = fresh.groups(signal=True)
        kept += len(better)
        if better:
            left = sorted({*range(len(batch.tasks))} - set(without[: len(better)]))
            parts = [batch.select(left), fresh.select(better)] if left else [fresh.select(better)]
            batch = ScoredBatch(
                [task for part in parts for task in part.tasks],
                join([part.rollouts for part in parts]),
                [completion for part in parts for completion in part.completions],
                [scored for part in parts for scored in part.scored],
                torch.cat([part.rewards_GM for part in parts]),
            )
    return batch, {"resample/rounds": rounds, "resample/sampled_groups": sampled, "resample/kept_groups": kept}


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


@dataclass(frozen=True)
class Update:
    """What an update of the policy was: its metrics, and for each completion [B] the advantage and the log-probability.

    The log-probability is the sum over tokens under the policy that sampled; NaN without a reward.
    """

    metrics: Metrics
    advantages_B: Tensor
    logprob_sums_B: Tensor


def update(
    state: TrainState, rollouts: Rollouts, rewards_GM: Tensor, step: int, pool_of_G: Tensor | None = None
) -> Update:
    """Update the policy on one batch of scored completions.

    The first update needs no second forward pass for the old log-probabilities: the policy has not moved yet.

    ``rewards_GM`` are the rewards of the rollouts, NaN where there is none; ``step`` counts from 0; ``pool_of_G`` as in
    `grpo.advantages`.
    """
    optim, temperature = state.config.optim, state.config.sampling.temperature
    if is_grpo := state.config.algorithm == "grpo":  # all scored completions are learned, else the best of each group
        learned_N = (~rewards_GM.isnan()).flatten().nonzero().flatten()
    else:
        learned_N = supervised.best_rows(rewards_GM)
    rows_N = by_length(rollouts, learned_N.to(state.policy.device))
    advantages_B = grpo.advantages(rewards_GM, state.std_floor, pool_of_G).flatten().float().to(state.policy.device)
    micro_batches = torch.split(rows_N, optim.micro_batch or len(rows_N)) if len(rows_N) else ()
    tokens = int(rollouts.lengths[rows_N].sum())
    lr = state.optimizer.learning_rate(step)
    due = optim.kl_beta > 0 or (optim.kl_every > 0 and (step + 1) % optim.kl_every == 0)
    reference = state.reference if is_grpo and due else None
    old_logp: list[Tensor] = []
    logprob_sums_B = torch.full_like(advantages_B, math.nan)
    ref_logp: list[Tensor | None] = []
    sums: dict[str, float] = defaultdict(float)
    gaps: list[Tensor] = []
    for epoch in range(optim.updates_per_batch):
        for index, rows in enumerate(micro_batches):
            part = rollouts.select(rows)
            logp_BT, entropy_BT = state.policy.logprobs(part, temperature)
            if epoch == 0:
                old_logp.append(logp_BT.detach())
                logprob_sums_B[rows] = old_logp[index].float().sum(-1)
                ref_logp.append(ref := reference.logprobs(part, temperature)[0] if reference else None)
                sums["entropy"] += float(entropy_BT.sum())
                if part.sampled_logp_BT is not None:
                    gaps.append((old_logp[index] - part.sampled_logp_BT)[part.written_BT])
                if ref is not None:
                    sums["kl_start"] += float(torch.where(part.written_BT, grpo.k3(old_logp[index], ref), 0.0).sum())
            if is_grpo:
                loss = grpo.loss(
                    logp_BT,
                    old_logp[index],
                    advantages_B[rows],
                    part.written_BT,
                    tokens=tokens,
                    clip_low=optim.clip_low,
                    clip_high=optim.clip_high,
                    kl_beta=optim.kl_beta,
                    ref_logp_BT=ref_logp[index] if optim.kl_beta else None,
                    sampled_logp_BT=part.sampled_logp_BT,
                )
            else:
                loss = supervised.loss(logp_BT, part.written_BT, tokens=tokens)
            torch.autograd.backward(loss.value)
            for name, value in (("loss", loss.value), ("clipped", loss.clipped), ("kl", loss.kl)):
                sums[name] += value.item()
        sums["grad_norm"] += state.optimizer.step(lr)
    update_metrics = metrics.update_metrics(sums, tokens, optim) | metrics.server_metrics(gaps)
    update_metrics |= {"learning_rate": lr}
    return Update(update_metrics, advantages_B, logprob_sums_B)


def by_length(rollouts: Rollouts, rows_N: Tensor) -> Tensor:
    """Return the rows with those of a prompt together, by length: micro-batches of them have the least padding."""
    tokens_B = rollouts.mask_BT.sum(-1)
    return rows_N[(rollouts.prompt_of_B * (tokens_B.max() + 1) + tokens_B)[rows_N].argsort(stable=True)]
