"""Samples of the untouched policy before a run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Usage, Verdict
from rubricsvc.errors import UnavailableError
from tests.model.trainer.tiny import TASKS, tiny_config, tiny_policy
from trainer.data.tasks import Task
from trainer.preflight import PreviewSamples, sample_preview
from trainer.rewards.source import CallableRewards, RewardSource, ScoredRollout


def sampled(rewards: RewardSource, tasks: list[Task] = TASKS) -> PreviewSamples:
    config = tiny_config(max_unscored=0.25)
    return sample_preview(tiny_policy(), tasks, rewards, None, config, samples=2, on_prompt=lambda: None)


def unscored(*prompts: Prompt) -> RewardSource:
    return CallableRewards(lambda prompt, text: None if prompt in prompts else float(len(text)))


def test_max_unscored_is_the_share_of_all_samples() -> None:
    first, second = (task.prompt for task in TASKS[:2])
    found = sampled(unscored(first))
    assert (len(found.rewards), found.completions) == (3, 8)
    with pytest.raises(UnavailableError):
        sampled(unscored(first, second))


class PricedRewards:
    """Gives a verdict on each of two criteria, of which one is checked."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        usage = Usage(prompt=10, completion=1, cost=0.5)
        verdicts = (Verdict.scored("good", 1.0).model_copy(update={"usage": usage}), Verdict.scored("long", 0.0))
        return [ScoredRollout(Reward(0.5, 1.0, "f"), verdicts) for _ in completions]


def test_samples_count_the_verdicts_tokens_and_dollars_of_the_judge() -> None:
    checked = Criterion(key="long", text="Is long.", check={"name": "words", "args": {"min": 4}})
    rubric = Rubric(criteria=(Criterion(key="good", text="It is good."), checked))
    found = sampled(PricedRewards(), [Task(TASKS[0].prompt, rubric)])
    assert (found.verdicts, found.prompt_tokens, found.completion_tokens, found.dollars) == (2, 20, 2, 1.0)
    assert found.criteria == {"good": [[1.0, 1.0]], "long": [[0.0, 0.0]]}
