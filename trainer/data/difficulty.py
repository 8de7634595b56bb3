"""How hard prompts are for a policy: the pass rate and the spread of its rewards, and which prompts are trained on.

A prompt whose completions all get the same reward has no signal for GRPO. The file has a line for each prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from trainer.config import DataConfig, TrainConfig, stream_seed
from trainer.data.tasks import Task
from trainer.history import line_of, replace_text
from trainer.policies.policy import Policy
from trainer.rewards.leaks import score_sound
from trainer.rewards.source import RewardSource, ScoredRollout, require_scored, validated

Selection = Literal["kept", "too_easy", "too_hard", "unmeasured"]
Key = tuple[str, str]
"""Digests of a prompt and its rubric."""


@dataclass(frozen=True, slots=True)
class PromptDifficulty:
    """Rewards of completions of one prompt. ``passed`` have at least ``pass_reward``; without any scored all are None.

    ``source`` says whether the completions were sampled for this, or are stored ones.
    """

    prompt: str
    prompt_digest: str
    rubric_digest: str
    policy: str
    source: Literal["sampled", "stored"]
    pass_reward: float
    samples: int
    pass_rate: float | None
    mean: float | None
    std: float | None

    @property
    def key(self) -> Key:
        """What it is of."""
        return self.prompt_digest, self.rubric_digest


_DIFFICULTY = TypeAdapter(PromptDifficulty)


def key_of(task: Task) -> Key:
    """Return the digests of a task."""
    return task.prompt.digest, task.rubric.digest


def difficulty_of(
    task: Task,
    rewards: Iterable[float | None],
    *,
    pass_reward: float,
    policy: str,
    source: Literal["sampled", "stored"],
) -> PromptDifficulty:
    """Return the difficulty of a prompt from the rewards of its completions; None is one that was not scored."""
    known = [reward for reward in rewards if reward is not None]
    return PromptDifficulty(
        prompt=task.name or task.prompt.digest[:12],
        prompt_digest=task.prompt.digest,
        rubric_digest=task.rubric.digest,
        policy=policy,
        source=source,
        pass_reward=pass_reward,
        samples=len(known),
        pass_rate=fmean(reward >= pass_reward for reward in known) if known else None,
        mean=fmean(known) if known else None,
        std=stdev(known) if len(known) > 1 else None,
    )


def measure(
    policy: Policy,
    tasks: Sequence[Task],
    rewards: RewardSource,
    config: TrainConfig,
    *,
    samples: int,
    pass_reward: float,
) -> Iterator[list[PromptDifficulty]]:
    """Yield the difficulties of batches of prompts: ``samples`` completions of each, sampled as in training.

    Raises:
        UnavailableError: More than ``max_unscored`` of the completions have no reward.
    """

    def scored_enough(tasks: list[Task], completions: list[Completion]) -> list[ScoredRollout]:
        scored = validated(rewards.score(tasks, completions), completions)
        require_scored(scored, config.max_unscored)
        return scored

    sampling = config.sampling
    size = max(1, sampling.prompts_per_step * sampling.group_size // samples)
    for first in range(0, len(tasks), size):
        batch = tasks[first : first + size]
        seed = stream_seed(config.seed, f"difficulty/{batch[0].prompt.digest}", 0)
        rollouts = policy.sample([task.prompt for task in batch], samples, sampling, seed)
        completions = rollouts.completions(policy.name, 0, sampling)
        of_each = [batch[prompt] for prompt in rollouts.prompt_of_B.tolist()]
        scored = score_sound(scored_enough, of_each, completions)
        values = [one.reward.value for one in scored]
        yield [
            difficulty_of(
                task,
                values[place * samples : (place + 1) * samples],
                pass_reward=pass_reward,
                policy=policy.name,
                source="sampled",
            )
            for place, task in enumerate(batch)
        ]


def selection(found: PromptDifficulty | None, data: DataConfig) -> Selection:
    """Return whether a prompt is trained on: of a pass rate or a deviation that the settings keep, or not measured."""
    if found is None or found.pass_rate is None:
        return "unmeasured"
    if data.keep_std is not None and found.std is not None and found.std >= data.keep_std:
        return "kept"
    if found.pass_rate < data.min_pass_rate:
        return "too_hard"
    return "too_easy" if found.pass_rate > data.max_pass_rate else "kept"


def select(
    tasks: Sequence[Task], found: Mapping[Key, PromptDifficulty], data: DataConfig
) -> tuple[list[Task], Counter[Selection]]:
    """Return the tasks that are trained on, with their pass rates, and how many there are of each kind.

    Raises:
        InvalidError: None is left.
    """
    kept: list[Task] = []
    counts: Counter[Selection] = Counter()
    for task in tasks:
        known = found.get(key_of(task))
        counts[kind := selection(known, data)] += 1
        if kind in ("kept", "unmeasured"):
            kept.append(replace(task, pass_rate=known.pass_rate if known else None))
    if not kept:
        message = (
            f"all prompts are left out by data.difficulty: {counts['too_hard']} too hard, {counts['too_easy']} too easy"
        )
        hint = "lower data.min_pass_rate, raise data.max_pass_rate, or measure with another --pass-reward"
        raise InvalidError(message, hint=hint, path="data.difficulty")
    return kept, counts


def read_difficulties(path: Path) -> dict[Key, PromptDifficulty]:
    """Return the difficulties of a file; empty where there is none.

    Raises:
        InvalidError: A line is not a difficulty.
    """
    if not path.is_file():
        return {}
    found: dict[Key, PromptDifficulty] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            one = _DIFFICULTY.validate_json(line)
        except ValidationError as error:
            message = f"{path}, line {number}: not the difficulty of a prompt"
            raise InvalidError(
                message, hint="write the file with `rubricsvc runs difficulty`", path=str(path)
            ) from error
        found[one.key] = one
    return found


def write_difficulties(path: Path, found: Iterable[PromptDifficulty]) -> None:
    """Write the difficulties, whole or not at all."""
    replace_text(path, "".join(line_of(asdict(one)) for one in found))
