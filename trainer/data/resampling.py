"""Dynamic sampling: groups of completions with equal rewards are replaced by those of other prompts (DAPO, 2503.14476).

GRPO learns nothing from a group without a deviation. A replacement is kept if it has one. The number of rounds is
bounded, and what is left without a signal stays in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rubricsvc.core.prompt import Completion
from trainer.algorithms import grpo
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.policies.rollouts import Rollouts, join
from trainer.rewards.source import ScoredRollout


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
            batch = _joined([batch.select(left), fresh.select(better)] if left else [fresh.select(better)])
    return batch, {"resample/rounds": rounds, "resample/sampled_groups": sampled, "resample/kept_groups": kept}


def _joined(parts: Sequence[ScoredBatch]) -> ScoredBatch:
    return ScoredBatch(
        [task for part in parts for task in part.tasks],
        join([part.rollouts for part in parts]),
        [completion for part in parts for completion in part.completions],
        [scored for part in parts for scored in part.scored],
        torch.cat([part.rewards_GM for part in parts]),
    )
