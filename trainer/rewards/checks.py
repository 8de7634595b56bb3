"""Rewards of a rubric's checks alone: a score that no judge gives, and no text can persuade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import rubric_of_checks
from rubricsvc.errors import InvalidError
from trainer.config import CHECKS
from trainer.data.tasks import Task, names_of
from trainer.rewards.source import JudgeRewards, ScoredRollout


class CheckRewards:
    """The weighted mean of the checked criteria of each rubric; its judged criteria do not count.

    Raises:
        InvalidError: The rubrics of some of ``tasks`` have no check with a positive weight.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        checked = ((task.rubric.digest, rubric_of_checks(task.rubric)) for task in tasks)
        self._rubrics = {digest: rubric for digest, rubric in checked if rubric is not None}
        if without := [task for task in tasks if task.rubric.digest not in self._rubrics]:
            raise InvalidError(
                f"the rubrics of {len(without)} of {len(tasks)} held-out prompts have no check with a positive weight: "
                f"{names_of(without)}",
                hint="add checks to their rubrics (docs/checks.md), or remove eval.checks",
                path="eval.checks",
            )
        self._rewards = JudgeRewards(Judge(name=CHECKS, engine="none", model="none"))

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score by the checks."""
        checked = [Task(task.prompt, self._rubrics[task.rubric.digest], task.name) for task in tasks]
        return self._rewards.score(checked, completions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rewards.__exit__(*error)
