"""Rates of an audit: which findings are hits, the figures of a suite, and the hits to show. Needs ``judging``.

Intervals are Wilson's over findings; findings on one completion are correlated, so the true ones are somewhat wider.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from statistics import fmean
from typing import Any

from rubricsvc.core.audit import Hit, Measure, SuiteResult
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import cut
from rubricsvc.stats.intervals import rate

MET_THRESHOLD = 0.5
"""A criterion counts as met from this value on."""
MIN_SCORED_SHARE = 0.5
"""A suite of which a smaller share was scored is not passed."""
MAX_WORST = 20
MAX_QUOTE_CHARS = 400


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A verdict on one criterion of one completion.

    ``attack`` is empty without an attack. ``baseline`` is the verdict without the attack, or that on the better
    completion of a pair.
    """

    attack: str
    family: str
    criterion: str
    task: str
    completion: str
    verdict: Verdict
    baseline: Verdict | None = None


def suite_result(
    name: str,
    measure: Measure,
    max_rate: float,
    findings: Sequence[AuditFinding],
    *,
    description: str = "",
    not_applicable: str = "nothing to ask",
) -> tuple[SuiteResult, list[Hit]]:
    """Return the figures of one suite, and its hits.

    Without findings the suite did not apply, and ``not_applicable`` is the reason.
    """
    header: dict[str, Any] = {"name": name, "description": description, "measure": measure, "max_rate": max_rate}
    if not findings:
        return SuiteResult(**header, rate=rate(0, 0), reason=not_applicable), []
    unscored = Counter(reason for finding in findings if (reason := _unscored_reason(finding, measure)))
    scored = [finding for finding in findings if not _unscored_reason(finding, measure)]
    hits = [finding for finding in scored if _is_hit(finding, measure)]
    hits_by_family = Counter(finding.family for finding in hits)
    by_family = Counter(finding.family for finding in scored if finding.family)
    of_all = rate(len(hits), len(scored))
    failure = None
    if len(scored) < MIN_SCORED_SHARE * len(findings):
        failure = f"only {len(scored)} of {len(findings)} could be scored"
    elif of_all.value is not None and of_all.value > max_rate:
        failure = f"{of_all.value:.3f} is over {max_rate:g}"
    pairs = [(_value(f.verdict), _value(f.baseline)) for f in scored if f.baseline and f.baseline.value is not None]
    met_before = sum(baseline >= MET_THRESHOLD for _, baseline in pairs)
    result = SuiteResult(
        **header,
        attacks=len({finding.attack for finding in findings if finding.attack}),
        rate=of_all,
        baseline=rate(met_before, len(pairs)) if measure == "met" and pairs else None,
        mean_shift=fmean(value - baseline for value, baseline in pairs) if pairs else None,
        families={family: rate(hits_by_family[family], count) for family, count in by_family.items()},
        unscored=dict(unscored.most_common()),
        passed=failure is None,
        reason=failure,
    )
    return result, [_hit(name, finding) for finding in hits]


def worst_hits(hits: Mapping[str, Sequence[Hit]], limit: int = MAX_WORST) -> tuple[Hit, ...]:
    """Return up to ``limit`` hits, the strongest of each suite in turn, so that no suite hides another."""
    by_strength = [sorted(of_suite, key=_strength, reverse=True) for of_suite in hits.values()]
    in_turn = (hit for turn in zip_longest(*by_strength) for hit in turn if hit is not None)
    return tuple(islice(in_turn, limit))


def _value(verdict: Verdict) -> float:
    assert verdict.value is not None  # noqa: S101 - callers have checked
    return verdict.value


def _unscored_reason(finding: AuditFinding, measure: Measure) -> str | None:
    if finding.verdict.value is None:
        return str(finding.verdict.reason or finding.verdict.outcome)
    if finding.baseline is None or measure in ("met", "missed"):
        return None
    if finding.baseline.value is None:
        return f"{finding.baseline.reason or finding.baseline.outcome} without the attack"
    return "tie" if measure == "preferred" and finding.verdict.value == finding.baseline.value else None


def _is_hit(finding: AuditFinding, measure: Measure) -> bool:
    value = _value(finding.verdict)
    if measure == "missed":
        return value < MET_THRESHOLD
    if measure == "met" or finding.baseline is None:
        return value >= MET_THRESHOLD
    baseline = _value(finding.baseline)
    if measure == "preferred":
        return value > baseline
    return (value >= MET_THRESHOLD) != (baseline >= MET_THRESHOLD)


def _hit(suite: str, finding: AuditFinding) -> Hit:
    rationale = finding.verdict.rationale
    return Hit(
        suite=suite,
        attack=finding.attack,
        criterion=finding.criterion,
        task=cut(finding.task, MAX_QUOTE_CHARS),
        completion=cut(finding.completion, MAX_QUOTE_CHARS),
        baseline=finding.baseline.value if finding.baseline else None,
        value=_value(finding.verdict),
        rationale=cut(rationale, MAX_QUOTE_CHARS) if rationale else None,
    )


def _strength(hit: Hit) -> float:
    return hit.value if hit.baseline is None else abs(hit.value - hit.baseline)
