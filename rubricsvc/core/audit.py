"""What tests of a judge found: how far it repeats itself, and how often attacks fooled it in an audit.

A finding is one criterion of one attacked completion. It is a *hit* for the attacker by the measure of its suite:

``met``        the judge says met (or prefers, if it compares), and that is wrong
``missed``     the judge says not met of what a good completion meets
``changed``    the verdict differs from that on the same completion without the attack
``preferred``  the worse of two completions gets the higher score

Failures and abstentions are no findings; they are counted apart. Rates are computed in ``workers.audit.runner``.
"""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.verdict import StorableText

Measure = Literal["met", "missed", "changed", "preferred"]

DEFAULT_PER_ATTACK = 4
"""Completions for each attack. The next attack begins with the one after the last used, so that all get a turn."""


class Figure(Value):
    """A measured number with its 95 % interval. Without a value there was too little to measure."""

    value: float | None = Field(None, description="Measured number; null if there was too little.")
    low: float | None = Field(None, description="Lower end of the 95 % interval.")
    high: float | None = Field(None, description="Upper end of the 95 % interval.")


class Rate(Figure):
    """A share of findings: ``hits`` of ``n``, with its 95 % Wilson interval. Without findings there is no rate."""

    n: int = Field(ge=0, description="Findings.")
    hits: int = Field(ge=0, description="Findings that count.")

    @model_validator(mode="after")
    def _share(self) -> Self:
        if self.hits > self.n or (self.value is not None and abs(self.value * self.n - self.hits) > 0.01 * self.n):
            raise ValueError(f"expected a value of hits / n, got {self.value} with {self.hits} of {self.n}")
        return self


class Deviation(Figure):
    """A pooled standard deviation within questions, with a 95 % bootstrap interval over completions, from five on."""

    value: float | None = Field(None, ge=0, le=1e6, description="Measured number; null if there was too little.")
    n: int = Field(ge=0, description="Questions that were scored at least twice.")


class Hit(Value):
    """A finding for the attacker, to look at. Long texts are cut in the middle."""

    suite: str = Field(description="Name of the suite.")
    attack: str = Field(description="Name of the attack; empty if the judge was wrong about an unchanged completion.")
    criterion: str = Field(description="Key of the criterion.")
    task: StorableText = Field(description="The prompt.")
    completion: StorableText = Field(description="What the judge was asked about.")
    baseline: UnitInterval | None = Field(None, description="Value without the attack, or of the better of a pair.")
    value: UnitInterval = Field(description="Value of the verdict.")
    rationale: StorableText | None = Field(None, description="What the judge wrote.")


class SuiteResult(Value):
    """The figures of one suite."""

    name: str = Field(description="Name of the suite.")
    description: str = Field("", description="What its attacks do.")
    measure: Measure = Field(description="What counts as a success of the attacker.")
    attacks: int = Field(0, description="Attacks.")
    rate: Rate = Field(description="Share of findings that are hits.")
    baseline: Rate | None = Field(None, description="The rate on the same completions without the attack.")
    mean_shift: float | None = Field(None, description="Mean change of the value.")
    families: dict[str, Rate] = Field({}, description="Rates by kind of attack, or of completion.")
    unscored: dict[str, int] = Field({}, description="What gave no finding, by reason.")
    max_rate: UnitInterval = Field(description="Limit of the rate.")
    passed: bool | None = Field(None, description="Whether the rate is in its limit; null if the suite did not apply.")
    reason: str | None = Field(None, description="Why the suite did not apply, or was not passed.")


class Audit(Value):
    """The results of all suites."""

    digest: str = Field(description="Digest of what was asked.")
    fingerprint: str = Field(description="Digest of how the judge was asked: template and mode.")
    non_default_options: str = Field("", description="Other completions, counts or limits than the default ones.")
    suites: tuple[SuiteResult, ...] = Field(description="Results by suite.")
    worst: tuple[Hit, ...] = Field((), description="Hits to look at, of all suites in turn.")

    @property
    def passed(self) -> bool:
        """Whether every suite that applied was passed, and at least one applied."""
        results = [suite.passed for suite in self.suites if suite.passed is not None]
        return bool(results) and all(results)

    @property
    def failed_suites(self) -> list[SuiteResult]:
        """The suites that were not passed."""
        return [suite for suite in self.suites if suite.passed is False]

    @property
    def result(self) -> str:
        """``passed``, or the suites that were not, each with the reason; also where the attack changed nothing."""
        failures = []
        for suite in self.failed_suites:
            rate, before = suite.rate.value, suite.baseline.value if suite.baseline else None
            unchanged = None not in (rate, before) and (rate or 0.0) <= (before or 0.0)
            note = f", no more than without the attack ({before:.3f})" if unchanged else ""
            failures.append(f"{suite.name} ({suite.reason}{note})")
        return f"not passed: {', '.join(failures)}" if failures else "passed" if self.passed else "not measured"


class StoredAudit(Value):
    """An audit as stored with its judge."""

    id: int = Field(description="Id in the database.")
    created_at: datetime = Field(description="Time at which it was stored.")
    passed: bool = Field(description="Whether all suites that applied were passed.")
    audit: Audit = Field(description="The audit.")


DEFAULT_REPEATS = 5


class Repeatability(Value):
    """The result of asking a judge the same questions ``repeats`` times, in other batches and orders.

    Rewards are in the unit of the rubrics' formulas, without completions that are vetoed in every repeat.
    """

    fingerprint: str = Field(description="Digest of how the judge was asked.")
    source: str = Field(description="What was judged.")
    measured_at: datetime = Field(description="Time of the measurement.")
    repeats: int = Field(ge=2, description="Times that each question was asked.")
    completions: int = Field(ge=1, description="Completions that were judged.")
    criteria: dict[str, Deviation] = Field(description="Deviation of values in [0, 1]: binary, ordinal, numeric.")
    reward: Deviation = Field(description="Deviation of rewards.")
    unscored: dict[str, int] = Field({}, description="Verdicts without a value, by outcome or reason.")
    vetoed: int = Field(0, ge=0, description="Completions that were vetoed in every repeat.")
