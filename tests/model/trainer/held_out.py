"""Held-out prompts of the tiny policy, and what scores them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rubricsvc.core.prompt import Completion, Prompt
from tests.model.trainer.tiny import RUBRIC, share_of_a, tiny_config
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.evaluation import Evaluation, Evaluator
from trainer.recording import RunRecorder
from trainer.rewards import CallableRewards, RewardSource, ScoredRollout

HELD_OUT = [Task(Prompt.of(text), RUBRIC, text) for text in ("say b", "sing", "a word", "spell it", "hi", "more")]
NAMES = ("every", "samples", "greedy", "gold", "stop_on_divergence")
EVAL = {"share": 0.5, "every": 2, "samples": 3, "judges": ["gold"]}


def length(_: Prompt, text: str) -> float:
    """Return a score that the reward does not lead to."""
    return len(text) / 8


class CountingRewards(CallableRewards):
    """Rewards of a function that remember how often they were asked."""

    def __init__(self, function: Callable[[Prompt, str], float | None]) -> None:
        super().__init__(function)
        self.calls: list[tuple[int | None, int]] = []

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        self.calls.append((completions[0].step, len(completions)))
        return super().score(tasks, completions)


def eval_config(out: Path | None = None, **fields: object) -> TrainConfig:
    settings = EVAL | {name: fields.pop(name) for name in NAMES if name in fields}
    return tiny_config(out=out, eval=settings, **fields)


def evaluator(config: TrainConfig, gold: RewardSource | None = None) -> Evaluator:
    scorers: dict[str, RewardSource] = {"reward": CallableRewards(share_of_a), "gold": gold or CallableRewards(length)}
    return Evaluator(config, HELD_OUT, scorers)


def evaluation(
    config: TrainConfig, gold: RewardSource | None = None, recorder: RunRecorder | None = None
) -> Evaluation:
    return Evaluation(evaluator(config, gold), config.out, config.steps, recorder)
