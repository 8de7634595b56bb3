"""Control rewards: what a run makes of rewards that say nothing about its completions.

``random``    a number drawn for each completion, uniform in [0, 1]; no judge is asked
``shuffled``  the rewards of the judge, in a random order among the completions of the same prompt
``frozen``    the same number for all: nothing but a tool bonus or a penalty is learned

A policy that scores as high with one of them did not learn from the judge (arXiv 2506.10947). The random numbers depend
on the seed and on the scored completions alone, so that a resumed run equals the run that was never interrupted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from trainer.config import ControlName, TrainConfig
from trainer.data.tasks import Task
from trainer.rewards.source import RewardSource, ScoredRollout, items_at, places_by_task, scored_by


def controlled(rewards: RewardSource, config: TrainConfig) -> RewardSource:
    """Return the rewards that a run is trained on: the control's, if it is one."""
    return rewards if config.control is None else ControlRewards(rewards, config.control.reward, config.seed)


class ControlRewards:
    """Rewards that say nothing about completions, in place of those of a source.

    Args:
        rewards: The source that they replace.
        name: The control.
        seed: The seed of the run.
    """

    def __init__(self, rewards: RewardSource, name: ControlName, seed: int) -> None:
        self._rewards, self._name, self._seed = rewards, name, seed
        if name == "shuffled":
            self.scored_by, self.items_at = scored_by(rewards), items_at(rewards)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return a reward for each completion, as `RewardSource.score` does."""
        asked = [[task.prompt.digest, one.digest] for task, one in zip(tasks, completions, strict=True)]
        draw = random.Random(digest("control", self._seed, asked))
        if self._name == "shuffled":
            return _shuffled(tasks, self._rewards.score(tasks, completions), draw)
        values = [draw.random() if self._name == "random" else 0.0 for _ in completions]
        return [ScoredRollout(Reward(value, coverage=1.0, formula=f"control_{self._name}")) for value in values]


def _shuffled(tasks: Sequence[Task], scored: Sequence[ScoredRollout], draw: random.Random) -> list[ScoredRollout]:
    """Return results whose rewards are exchanged within each prompt; those without a reward stay without one."""
    results = list(scored)
    for group in places_by_task(tasks):
        places = [place for place in group if scored[place].reward.value is not None]
        for place, other in zip(places, draw.sample(places, len(places)), strict=True):
            results[place] = replace(scored[place], reward=scored[other].reward)
    return results
