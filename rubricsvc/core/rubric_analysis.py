"""What was measured of a rubric, with stored verdicts and labels, and by its own tests; weights fitted to people.

What the judge could not be asked about in a test is *not measured* (``passed`` or ``caught`` is None): it neither
passes nor fails.
"""

from typing import Literal

from pydantic import Field

from rubricsvc.core.audit import Rate
from rubricsvc.core.base import MAX_ID, UnitInterval, Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import NumberRange, Rubric
from rubricsvc.core.verdict import StorableText

Action = Literal["retire", "reweigh", "sharpen", "check"]

MIN_VERDICTS = 30  # verdicts of a criterion from which there is advice on it


class CriterionStatistics(Value):
    """One criterion over the completions that a judge scored. Shares and correlations are null without the data."""

    key: str
    text: str
    weight: float
    kind: Literal["judged", "checked"]
    required: bool
    n: int = Field(description="Scored verdicts.")
    failed: float = Field(description="Share of the completions whose verdict failed.")
    abstained: float = Field(description="Share of the completions on which the judge abstained.")
    mean: Estimate = Field(description="Mean value, with the cluster-robust t interval over prompts.")
    met: Estimate = Field(description="Share of values of 0.5 or more, with Wilson's interval over prompts.")
    saturated: Literal["met", "not met"] | None = Field(description="Whether 95 % of its values are met, or not met.")
    variance_within: float | None = Field(description="Variance among the completions of one prompt, pooled.")
    varying_groups: float | None = Field(description="Share of the groups in which the value varies.")
    variance_share: float | None = Field(description="Share of the reward's variance within groups; they sum to 1.")
    length_correlation: float | None = Field(description="Correlation with the logarithm of the length, within groups.")
    labels: int = Field(0, description="Labels beside a verdict.")
    agreement: dict[str, Estimate] = Field(default_factory=dict, description="Agreement with the labels, by metric.")
    edge: Estimate | None = Field(None, description="Mean difference, preferred less other completion.")


class RedundantPair(Value):
    """Two criteria whose values are nearly the same, or nearly opposite."""

    a: str
    b: str
    correlation: float
    n: int


class Advice(Value):
    """What to do about a criterion, and the figures that suggest it."""

    action: Action
    criterion: str
    evidence: str


class RewardSpread(Value):
    """The variance of the rewards, and what of it a policy can learn from: groups of completions that differ."""

    n: int
    mean: Estimate
    variance_within: float | None
    varying_groups: float | None


class RubricAnalysis(Value):
    """One rubric version as one judge applied it, or those of a job with their criteria pooled, without advice."""

    rubric_id: int | None
    rubric: str
    job_id: int | None
    judge: str
    completions: int
    prompts: int
    groups: int = Field(description="Prompts with two or more completions.")
    reward: RewardSpread
    criteria: tuple[CriterionStatistics, ...]
    redundant: tuple[RedundantPair, ...]
    advice: tuple[Advice, ...]


class ComparedRubric(Value):
    """A rubric version, stored or in a file."""

    ref: str = Field(description="What it is called.")
    name: str = Field(description="Name of all its versions.")
    rubric: Rubric = Field(description="Its content.")
    prompt_id: int | None = Field(None, description="The prompt that it belongs to, if any.")


class RewardComparison(Value):
    """Two rubric versions, and the job on whose completions they are compared."""

    job_id: int = Field(ge=1, le=MAX_ID, description="Id of the job.")
    old: ComparedRubric = Field(description="The version before.")
    new: ComparedRubric = Field(description="The version after.")


class RewardChange(Value):
    """One completion under both versions. Ranks are among the job's completions of the prompt, 1 for the best."""

    completion_id: int
    completion_external_id: str | None = Field(description="The id that the completion came with.")
    prompt_id: int
    old_reward: float | None
    new_reward: float | None
    old_rank: int | None
    new_rank: int | None
    change: float | None = Field(description="The new reward less the old one, to 12 decimals.")


class PairedMetric(Value):
    """A metric of the old and the new rewards, and new less old with its paired interval over prompts."""

    name: Literal["preference_accuracy"] = "preference_accuracy"
    n: int
    old: Estimate
    new: Estimate
    difference: Estimate


class RewardChanges(Value):
    """All completions of a job under two versions."""

    completions: int
    mean_change: float | None = Field(description="Of the completions that have both rewards.")
    changed_ranks: int | None = Field(description="How many of those that have both ranks have another one.")
    kendall_tau_within_prompts: float | None = Field(description="Tau-b of both rankings, within prompts.")
    old_missing_verdicts: int = Field(description="Verdicts of the old version that are not stored.")
    new_missing_verdicts: int = Field(description="Verdicts of the new version that are not stored.")
    people: tuple[PairedMetric, ...] = Field(description="Agreement with people's overall scores, where there are any.")
    by_completion: tuple[RewardChange, ...]


FitTo = Literal["labels", "preferences"]
Signs = Literal["keep", "free"]


class FittedWeight(Value):
    """One criterion's weight before and after; the interval is of a bootstrap over prompts."""

    key: str
    old: float
    new: float
    low: float | None
    high: float | None
    kept: bool = Field(description="Whether its value never varies, so that the old weight stays.")


class HeldOut(Value):
    """How well one weighting predicts people on prompts that it was not fitted to.

    ``equal`` has the signs of the weights only. Scores are Σ weight · value, before veto and clip.
    """

    weights: Literal["fitted", "current", "equal"]
    metrics: dict[str, Estimate]


class WeightFit(Value):
    """Fitted weights, scaled to the same sum of absolute values as the current ones."""

    rubric: str
    job_id: int | None
    judge: str
    to: FitTo
    signs: Signs
    n: int = Field(description="Scores, or pairs.")
    left_out: int = Field(description="Scores or pairs with a missing value.")
    people: int
    prompts: int = Field(description="Prompts; completions where all have one prompt. Folds and draws take whole ones.")
    folds: int
    penalty: float = Field(description="Of the squared weights, chosen within the training folds, and then on all.")
    weights: tuple[FittedWeight, ...]
    held_out: tuple[HeldOut, ...]
    gain: dict[str, Estimate] = Field(description="Fitted less current, on the same held-out rows.")
    saved: str | None = Field(None, description="The new version, if it was stored.")


TestOutcome = Literal["passed", "failed", "unmeasured"]


class VerdictTest(Value):
    """One verdict of an example beside the expected one."""

    criterion: str = Field(description="Key of the criterion.")
    expected: NumberRange = Field(description="Values that pass.")
    found: UnitInterval | None = Field(None, description="Value of the verdict; null if there is none.")
    passed: bool | None = Field(description="Whether it is as expected; null if it was not measured.")
    reason: StorableText | None = Field(None, description="Why there is no value.")
    rationale: StorableText | None = Field(None, description="The judge's reason.")
    quotes: tuple[StorableText, ...] = Field((), description="The judge's quotes.")


class ExampleTest(Value):
    """One example: its verdicts and its reward beside the expected ones."""

    example: str = Field(description="Key of the example.")
    verdicts: tuple[VerdictTest, ...] = Field((), description="Expected verdicts, beside those found.")
    expected_reward: NumberRange | None = Field(None, description="Rewards that pass; null: any.")
    reward: float | None = Field(None, description="Reward; null if there is none, or none is expected.")
    null_reason: StorableText | None = Field(None, description="Why there is no reward.")
    reward_passed: bool | None = Field(None, description="Whether it is as expected; null if not measured.")

    @property
    def passed(self) -> bool | None:
        """Whether all of it is as expected; None if something was not measured, and nothing failed."""
        parts = {one.passed for one in self.verdicts}
        if self.expected_reward is not None:
            parts.add(self.reward_passed)
        return False if False in parts else None if None in parts else True


class FaultTest(Value):
    """A good completion with one fault, under the criterion that should notice it."""

    example: str = Field(description="Key of the example into which it was planted.")
    criterion: str = Field(description="Key of the criterion.")
    kind: str = Field(description="How it was made: deleted, negated, number, name, …, planted, check, written.")
    text: StorableText = Field(description="Text with the fault.")
    found: UnitInterval | None = Field(None, description="Value of the verdict; null if there is none.")
    caught: bool | None = Field(description="Whether the verdict is worse than expected; null if not measured.")
    reason: StorableText | None = Field(None, description="Why there is no value.")


class CriterionFaults(Value):
    """How many of the faults against one criterion were caught, and how often it sees one where there is none."""

    criterion: str = Field(description="Key of the criterion.")
    caught: Rate = Field(description="Faults that were caught.")
    noticed: Rate = Field(description="Of those planted where the judge saw no fault before, the caught ones.")
    false_alarms: Rate = Field(description="Good completions without a fault in which the judge saw one.")
    unmeasured: int = Field(0, description="Verdicts that failed.")
    skipped: str | None = Field(None, description="Why no fault was planted.")


class FaultReport(Value):
    """Planted faults by criterion, and all of them together."""

    criteria: tuple[CriterionFaults, ...] = Field(description="Figures of each criterion.")
    caught: Rate = Field(description="Faults that were caught, of all criteria.")
    noticed: Rate = Field(description="Of those planted where the judge saw no fault before, the caught ones.")
    false_alarms: Rate = Field(description="False alarms, of all criteria.")
    faults: tuple[FaultTest, ...] = Field(description="Every fault.")
    min_catch: UnitInterval | None = Field(None, description="Least catch rate of each criterion that passes.")

    @property
    def passed(self) -> bool | None:
        """Whether each criterion reaches ``min_catch``; None if some fault was not measured. Without it, True."""
        if self.min_catch is None:
            return True
        rates = [one.caught.value for one in self.criteria]
        if any(rate is not None and rate < self.min_catch for rate in rates):
            return False
        return None if any(one.unmeasured for one in self.criteria) or not self.caught.n else True


class RubricTest(Value):
    """The tests of one rubric version by one judge."""

    judge: str = Field(description="Name of the judge.")
    judge_digest: str = Field(description="SHA-256 of the judge.")
    rubric_digest: str = Field(description="SHA-256 of the rubric.")
    examples: tuple[ExampleTest, ...] = Field(description="Examples, in their order.")
    faults: FaultReport | None = Field(None, description="Planted faults; null: none were planted.")

    @property
    def outcome(self) -> TestOutcome:
        """Whether all of it passed; failed if anything did; else unmeasured if anything was not measured."""
        parts = {one.passed for one in self.examples} | ({self.faults.passed} if self.faults else set())
        return "failed" if False in parts else "unmeasured" if None in parts else "passed"
