"""Samples of the policy before training with their rewards, and what they look like: what `runs preflight` previews."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rubricsvc.core.prompt import Completion
from trainer.config import TrainConfig, stream_seed
from trainer.data.tasks import Task
from trainer.monitors.measures import MEASURES
from trainer.policies.policy import Policy
from trainer.rewards.leaks import score_sound
from trainer.rewards.source import RewardSource, ScoredRollout, of_evaluation, require_scored, validated

PREFLIGHT = "preflight"
_FEATURES = {name: measure for name, measure in MEASURES.items() if name != "shortness"}


@dataclass
class PreviewSamples:
    """Scored samples, by prompt: rewards, gold (empty without one), features by name, and values of criteria by key.

    The judge of the reward gave ``verdicts`` for these tokens and dollars; the reward took ``score_seconds``.
    """

    rewards: list[list[float]] = field(default_factory=list)
    gold: list[list[float]] = field(default_factory=list)
    features: dict[str, list[list[float]]] = field(default_factory=dict)
    criteria: dict[str, list[list[float | None]]] = field(default_factory=dict)
    completions: int = 0
    verdicts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    sample_seconds: float = 0.0
    score_seconds: float = 0.0


def sample_preview(
    policy: Policy,
    tasks: Sequence[Task],
    rewards: RewardSource,
    gold: RewardSource | None,
    config: TrainConfig,
    *,
    samples: int,
    on_prompt: Callable[[], None],
) -> PreviewSamples:
    """Sample completions of prompts as in training, and score them; prompts with fewer than two scores are left out.

    Raises:
        UnavailableError: More than ``max_unscored`` of the completions have no reward.
    """
    found = PreviewSamples(features={name: [] for name in _FEATURES})
    found.criteria = {criterion.key: [] for task in tasks for criterion in task.rubric.criteria}
    sources = [of_evaluation(rewards, PREFLIGHT), *([of_evaluation(gold, PREFLIGHT)] if gold is not None else [])]
    asked = [list[ScoredRollout]() for _ in sources]
    for place, task in enumerate(tasks):
        start = time.perf_counter()
        seed = stream_seed(config.seed, PREFLIGHT, place)
        rollouts = policy.sample([task.prompt], samples, config.sampling, seed)
        completions = rollouts.completions(policy.name, 0, config.sampling)
        found.sample_seconds += time.perf_counter() - start
        start = time.perf_counter()
        scored = [_scored(sources[0], task, completions, asked[0])]
        found.score_seconds += time.perf_counter() - start
        scored += [_scored(source, task, completions, asked[1]) for source in sources[1:]]
        found.completions += len(completions)
        _add(found, task, completions, scored)
        on_prompt()
    for results, whose in zip(asked, ("judge of the reward", "gold score"), strict=False):
        require_scored(results, config.max_unscored, f"run the preflight again: its {whose} failed")
    return found


def _scored(
    source: RewardSource, task: Task, completions: list[Completion], asked: list[ScoredRollout]
) -> list[ScoredRollout]:
    """Return the results of completions; ``asked`` gets those without a leak."""

    def score(tasks: list[Task], sound: list[Completion]) -> list[ScoredRollout]:
        results = validated(source.score(tasks, sound), sound)
        asked.extend(results)
        return results

    return score_sound(score, [task] * len(completions), completions)


def _add(
    found: PreviewSamples, task: Task, completions: Sequence[Completion], scored: Sequence[Sequence[ScoredRollout]]
) -> None:
    """Add what a prompt took, and its samples that have all scores."""
    judged = {criterion.key for criterion in task.rubric.criteria if criterion.check is None}
    for verdict in (one for each in scored[0] for one in each.verdicts if one.criterion in judged):
        found.verdicts += 1
        if (usage := verdict.usage) is not None:
            found.prompt_tokens += usage.prompt
            found.completion_tokens += usage.completion
            found.dollars += usage.cost
    known = [n for n in range(len(completions)) if all(each[n].reward.value is not None for each in scored)]
    if len(known) < 2:
        return
    for values, each in zip((found.rewards, found.gold), scored, strict=False):
        values.append([each[n].reward.value or 0.0 for n in known])
    for name, measure in _FEATURES.items():
        found.features[name].append([measure(task.prompt.text, completions[n].text) for n in known])
    verdicts = [{one.criterion: one.value for one in scored[0][n].verdicts} for n in known]
    for key, column in found.criteria.items():
        column.append([each.get(key) for each in verdicts])
