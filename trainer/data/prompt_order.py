"""Which prompts a step has: a function of the data, the settings, the seed and the step's number alone.

So a resumed run has the same steps as one that was never interrupted, and nothing of it is in a checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil

import torch

from trainer.config import TrainConfig
from trainer.data.config import PromptsConfig
from trainer.data.tasks import Task
from trainer.seeds import stream_seed

DEFAULT = PromptsConfig()


def tasks_of_step(tasks: Sequence[Task], step: int, config: TrainConfig) -> list[Task]:
    """Return the step's tasks: every task comes once, in a random order, before any comes again.

    In a mixture that holds for the tasks of each domain, and the step has as many tasks of each as its weight says, to
    within rounding over the steps so far. In stages it holds for the tasks of a stage.
    """
    settings, size = config.prompts or DEFAULT, config.sampling.prompts_per_step
    stage, first = _stage(settings, step)
    pools = pools_of(tasks, settings, stage)
    weights = {domain: settings.weights[domain] for domain in pools} if settings.weights else {"": 1.0}
    chosen: list[Task] = []
    before, after = (allocated(weights, (step - first + n) * size) for n in (0, 1))
    for domain in weights:
        pool = pools[domain]
        name = "/".join(filter(None, ("order", domain, str(stage or ""))))
        for slot in range(before[domain], after[domain]):
            epoch, at = divmod(slot, len(pool))
            chosen.append(pool[_order(len(pool), config.seed, name, epoch)[at]])
    return chosen


def other_tasks(
    tasks: Sequence[Task], step: int, attempt: int, used: Sequence[Task], config: TrainConfig
) -> list[Task]:
    """Return the tasks that take the place of those in a step whose groups have no signal, in the order of trying.

    They are the others of the stage, of the domain of any in ``used``; empty where the step has all of them.
    """
    settings = config.prompts or DEFAULT
    pools = pools_of(tasks, settings, _stage(settings, step)[0])
    taken = {id(task) for task in used}
    left = [task for pool in pools.values() for task in pool if id(task) not in taken]
    order = _order(len(left), config.seed, f"resample/{step}", attempt)
    return [left[at] for at in order]


def pools_of(tasks: Sequence[Task], settings: PromptsConfig, stage: int) -> dict[str, list[Task]]:
    """Return the tasks of a stage, by domain where domains have weights; a task without a pass rate is in the last."""
    pools: dict[str, list[Task]] = {}
    for task in tasks:
        if not settings.weights or task.domain in settings.weights:
            pools.setdefault(task.domain if settings.weights else "", []).append(task)
    if not settings.stages or settings.stages[stage] == 1.0:
        return pools
    share = settings.stages[stage]
    return {domain: _easiest(pool, ceil(share * len(pool))) for domain, pool in pools.items()}


def _easiest(pool: Sequence[Task], count: int) -> list[Task]:
    """Return the easiest tasks, in the order of the data."""
    ranks = sorted(range(len(pool)), key=lambda at: -1.0 if (rate := pool[at].pass_rate) is None else rate)
    chosen = set(ranks[len(pool) - count :])
    return [task for at, task in enumerate(pool) if at in chosen]


def _stage(settings: PromptsConfig, step: int) -> tuple[int, int]:
    """Return the stage of a step, and the step that it begins with."""
    stage = min(step // settings.stage_steps, max(0, len(settings.stages) - 1))
    return stage, stage * settings.stage_steps


def allocated(weights: Mapping[str, float], slots: int) -> Counter[str]:
    """Return how many of the first slots each domain has (Webster's method: more slots never take one away)."""
    counts = Counter(dict.fromkeys(weights, 0))
    total = sum(weights.values())
    for domain, weight in weights.items():  # what each has at least, so that few slots are left to divide one by one
        counts[domain] = max(0, int(slots * weight / total) - len(weights))
    for _ in range(slots - counts.total()):
        counts[max(weights, key=lambda domain: weights[domain] / (2 * counts[domain] + 1))] += 1
    return counts


@lru_cache(maxsize=16)
def _order(count: int, seed: int, name: str, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(stream_seed(seed, name, epoch))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order
