"""What tests of a judge found: how far it repeats itself, and how often attacks fooled it in an audit.

A finding is one criterion of one attacked completion. It is a *hit* for the attacker by the measure of its suite:

``met``        the judge says met (or prefers, if it compares), and that is wrong
``missed``     the judge says not met of what a good completion meets
``changed``    the verdict differs from that on the same completion without the attack
``preferred``  the worse of two completions gets the higher score

Failures and abstentions are no findings; they are counted apart. Rates are computed in ``workers.audit.runner``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.verdict import StorableText

Measure = Literal["met", "missed", "changed", "preferred"]

DEFAULT_PER_ATTACK = 4
"""Completions for each attack. The next attack begins with the one after the last used, so that all get a turn."""
DEFAULT_LIMIT = 100
"""Pairs or completions of one data set."""


class Figure(Value):
    """A measured number with its 95 % interval. Without a value there was too little to measure."""

    value: float | None = Field(None, description="Measured number; null if there was too little.")
    low: float | None = Field(None, description="Lower end of the 95 % interval.")
    high: float | None = Field(None, description="Upper end of the 95 % interval.")


class Rate(Figure):
    """A share of findings: ``hits`` of ``n``, with its 95 % Wilson interval. Without findings there is no rate."""

    n: int = Field(ge=0, description="Findings.")
    hits: int = Field(ge=0, description="Findings that count.")


class Deviation(Figure):
    """A pooled standard deviation within questions, with a 95 % bootstrap interval over completions, from five on."""

    n: int = Field(ge=0, description="Questions that were scored at least twice.")


class Hit(Value):
    """A finding for the attacker, to look at. Long texts are cut in the middle.

    ``attack`` is empty if the judge was wrong about an unchanged completion. ``baseline`` is the value without the
    attack, or that of the better completion of a pair.
    """

    suite: str
    attack: str
    criterion: str
    task: StorableText
    completion: StorableText
    baseline: UnitInterval | None = None
    value: UnitInterval
    rationale: StorableText | None = None


class SuiteResult(Value):
    """The figures of one suite.

    ``baseline`` is the rate on the same completions without the attack, ``mean_shift`` the mean change of the value.
    ``unscored`` counts what gave no finding, by reason. ``passed`` is None if the suite did not apply; ``reason`` says
    why it did not apply or was not passed.
    """

    name: str
    description: str = ""
    measure: Measure
    attacks: int = 0
    rate: Rate
    baseline: Rate | None = None
    mean_shift: float | None = None
    families: dict[str, Rate] = Field(default_factory=dict)
    unscored: dict[str, int] = Field(default_factory=dict)
    max_rate: UnitInterval
    passed: bool | None = None
    reason: str | None = None


class Audit(Value):
    """The results of all suites.

    ``digest`` names what was asked, ``fingerprint`` how the judge was asked (template and mode).
    ``non_default_options`` lists other completions, counts or limits than the default ones.
    """

    digest: str
    fingerprint: str
    non_default_options: str = ""
    suites: tuple[SuiteResult, ...]
    worst: tuple[Hit, ...] = ()

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

    id: int
    created_at: datetime
    passed: bool
    audit: Audit


DEFAULT_REPEATS = 5


class Repeatability(Value):
    """The result of asking a judge the same questions ``repeats`` times, in other batches and orders.

    ``criteria`` holds the deviation of verdict values in [0, 1] by kind of scale (binary, ordinal, numeric), ``reward``
    that of rewards, in the unit of the rubrics' formulas, without completions that are vetoed in every repeat.
    """

    fingerprint: str = Field(description="Digest of how the judge was asked.")
    source: str = Field(description="What was judged.")
    measured_at: datetime = Field(description="Time of the measurement.")
    repeats: int = Field(ge=2, description="Times that each question was asked.")
    completions: int = Field(ge=1, description="Completions that were judged.")
    criteria: dict[str, Deviation] = Field(description="Deviation of verdict values, by kind of scale.")
    reward: Deviation = Field(description="Deviation of rewards.")
    unscored: dict[str, int] = Field({}, description="Verdicts without a value, by outcome or reason.")
    vetoed: int = Field(0, ge=0, description="Completions that were vetoed in every repeat.")
