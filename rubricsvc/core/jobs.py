"""Progress and results of a job."""

from pydantic import Field

from rubricsvc.core.base import Value


class JobProgress(Value):
    """Items by state, and verdicts so far. ``failed`` items have at least one failed verdict."""

    total: int = Field(description="All items.")
    pending: int = Field(description="Items that wait for a worker.")
    leased: int = Field(description="Items that a worker scores.")
    done: int = Field(description="Items without a failed verdict.")
    failed: int = Field(description="Items with a failed verdict.")
    cancelled: int = Field(description="Items of a cancelled job.")
    verdicts: int = Field(description="Verdicts that did not fail.")
    failed_verdicts: int = Field(description="Verdicts that failed.")

    @property
    def finished(self) -> int:
        """Items that are done, failed or cancelled."""
        return self.done + self.failed + self.cancelled


class ReservedBudget(Value):
    """US dollars of a job's budget that are reserved."""

    held: float = Field(description="Reserved by workers for calls in progress.")
    lost: float = Field(description="Reserved by killed workers; counted as spent.")


class GenerationSummary(Value):
    """Results of a job that generates rubrics, so far."""

    prompts: int = Field(description="Prompts of the job.")
    rubrics: int = Field(description="Prompts that have a rubric.")
    drafts: int = Field(description="Rubrics that are drafts: refused by the gate, or not reviewed yet.")
    refused_by: dict[str, int] = Field(description="Rubrics that the gate refused, by reason.")
    reasons: dict[str, int] = Field(description="Prompts without a rubric, by reason.")
    cost: float | None = Field(description="US dollars; null if the judge has no price.")
    asked_again: int = Field(description="Questions that were asked again although a reply had been stored.")


class JobSummary(Value):
    """Results of a job so far. ``voting`` is for panels, cascades and pairwise judges."""

    rewards: int = Field(description="Items with a reward.")
    mean_reward: float | None = Field(description="Mean of these rewards.")
    reasons: dict[str, int] = Field(description="Failed verdicts by reason.")
    vetoed: dict[str, int] = Field(description="Vetoed rewards by required criterion.")
    cached_share: float | None = Field(description="Share of counted prompt tokens from the prefix cache; null: none.")
    quotes: int | None = Field(description="Quotes in the verdicts; null if no judge quoted.")
    quotes_not_found: int | None = Field(description="Quotes that are not in the completion.")
    voting: dict[str, float] = Field(description="Figures of panels, cascades and pairwise judges, by name.")
    reserved: ReservedBudget = Field(description="Budget that is reserved.")
    generation: GenerationSummary | None = Field(None, description="Results of a job that generates rubrics.")
