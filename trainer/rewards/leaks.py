"""Completions to which a tool leaked the answer: no judge is asked about them, and they have no reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from trainer.data.tasks import Task
from trainer.environments.leaks import LEAK, leaks_of
from trainer.rewards.source import ScoredRollout

NOT_SCORED = ScoredRollout(Reward(None, coverage=0.0, formula=LEAK, null_reason=LEAK))
"""The result of a completion with a leak."""


def score_sound(
    score: Callable[[list[Task], list[Completion]], Sequence[ScoredRollout]],
    tasks: Sequence[Task],
    completions: Sequence[Completion],
) -> list[ScoredRollout]:
    """Return the results of completions; ``score`` is called with those without leaks, if there are any."""
    sound = [place for place, one in enumerate(completions) if not leaks_of(one)]
    results = [NOT_SCORED] * len(completions)
    scored = score([tasks[place] for place in sound], [completions[place] for place in sound]) if sound else ()
    for place, result in zip(sound, scored, strict=True):
        results[place] = result
    return results
