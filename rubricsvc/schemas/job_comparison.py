"""Two jobs compared on what both scored: judges, rubric versions, or policies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate

PairedBy = Literal["completion", "prompt"]
Difference = Literal["judge", "rubrics", "min_coverage", "policies", "completions"]


class ComparedJob(Value):
    """One of the two jobs. ``mean_reward`` is the mean over what is paired."""

    job_id: int
    name: str
    judge: str
    judge_digest: str
    rubrics: tuple[str, ...] = Field(description="Versions as name@version, of what both jobs scored.")
    policies: tuple[str, ...]
    completions: int = Field(description="Items of the job.")
    rewards: int = Field(description="Items with a reward.")
    mean_reward: float | None


class LeftOut(Value):
    """How many completions (or prompts) are not paired, because of what these jobs lack."""

    job_ids: tuple[int, ...]
    reason: Literal["not_in_job", "unfinished", "no_reward"]
    count: int


class CriterionComparison(Value):
    """One criterion on both sides. A mean value over the samples of a prompt counts as met from 0.5 on.

    ``key_b`` differs from ``key_a`` where a criterion of the same wording has another key; ``reworded`` are criteria
    of the same key with other words.
    """

    rubric: str
    key_a: str
    key_b: str
    reworded: bool
    paired: int = Field(description="Completions or prompts with a value on both sides.")
    mean_a: float
    mean_b: float
    to_met: int = Field(description="Below 0.5 in A, 0.5 or above in B.")
    to_unmet: int = Field(description="0.5 or above in A, below 0.5 in B.")

    @property
    def flips(self) -> int:
        """Verdicts that cross 0.5, in either direction."""
        return self.to_met + self.to_unmet


class CriterionChange(Value):
    """What a criterion changed in a reward: its contribution in B less that in A, before veto and clip."""

    criterion: str
    change: float


class Moved(Value):
    """A completion (or prompt) whose reward differs, with the criteria that changed it most."""

    completion_id: int | None = Field(description="Null where prompts are paired.")
    completion_external_id: str | None = Field(description="The id that the completion came with, if any.")
    prompt_id: int
    prompt_external_id: str | None = Field(description="The id that the prompt came with, if any.")
    policies: tuple[str, ...]
    prompt: str = Field(description="The beginning of the prompt.")
    rubric: str
    reward_a: float
    reward_b: float
    difference: float
    criteria: tuple[CriterionChange, ...]


class JobComparison(Value):
    """Job B compared with job A: differences are B less A.

    Where no completion is in both jobs, prompts are paired, and a prompt's reward is the mean over its completions.
    """

    a: ComparedJob
    b: ComparedJob
    paired_by: PairedBy
    differs: tuple[Difference, ...] = Field(description="What differs between the jobs.")
    paired: int = Field(description="Completions or prompts with a reward on both sides.")
    prompts: int
    left_out: tuple[LeftOut, ...]
    mean_difference: Estimate = Field(description="With the t interval over prompts, from 5 prompts on.")
    kendall_tau: Estimate = Field(description="Tau-b over all; the interval draws whole prompts.")
    spearman: Estimate
    kendall_tau_within_prompts: Estimate = Field(description="Tau-b over the completions of one prompt.")
    criteria: tuple[CriterionComparison, ...] = Field(description="By falling number of flips.")
    moved: tuple[Moved, ...] = Field(description="Those whose reward differs most.")
