"""What choosing the best of n samples by the rewards of judges gives, by a gold score that none of them has seen."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate


class JudgeCurves(Value):
    """The curves of one judge. Each has an estimate for each n of the result, in the unit of the gold but ``proxy``."""

    job_id: int
    judge: str
    rubrics: tuple[str, ...] = Field(description="Versions as name@version, of all that the job scored.")
    proxy: tuple[Estimate, ...] = Field(description="Reward of the best of n by the reward: what the judge promises.")
    gold: tuple[Estimate, ...] = Field(description="Gold of that completion: what it keeps.")
    weighted_vote: tuple[Estimate, ...] = Field(description="Gold of the answer with the largest sum of rewards.")
    gain: Estimate = Field(description="Gold at the largest n less that of one sample, paired by prompt.")
    oracle_share: Estimate = Field(description="That gain as a share of the oracle's, with Fieller's interval.")
    slope: Estimate = Field(description="Rise of the gold over the square root of the KL bound.")
    difference: Estimate | None = Field(description="Gold at the largest n less that of the first judge's choice.")

    @property
    def title(self) -> str:
        """The judge, its rubric where it is one, and the job."""
        rubric = f", {self.rubrics[0]}" if len(self.rubrics) == 1 else ""
        return f"{self.judge}{rubric} (job {self.job_id})"


class BestOfN(Value):
    """Best-of-n by each judge on the same samples. Estimates are over prompts, with 95 % t intervals."""

    gold_source: str = Field(description="Where the gold is from.")
    prompts: int
    samples: tuple[int, int] = Field(description="Fewest and most samples of a prompt.")
    left_out: dict[str, int] = Field(description="Completions that are not used, by reason.")
    n: tuple[int, ...]
    kl_bound: tuple[float, ...] = Field(description="Upper bound log n - (n - 1)/n of the KL divergence, in nats.")
    oracle: tuple[Estimate, ...] = Field(description="Gold of the best of n by the gold: a perfect judge.")
    worst: tuple[Estimate, ...] = Field(description="Gold of the worst of n by the gold.")
    vote: tuple[Estimate, ...] = Field(description="Gold of the most frequent answer, without a judge.")
    distinct: tuple[Estimate, ...] = Field(description="Effective number of distinct samples among n.")
    judges: tuple[JudgeCurves, ...]
