"""Hits, figures of a suite, and the worst hits."""

from __future__ import annotations

import pytest

from rubricsvc.core.audit import Audit, Measure, SuiteResult
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from workers.audit.cases import AuditCase
from workers.audit.runner import AuditFinding, suite_result
from workers.audit.suites import Suite


def verdict(value: float | str) -> Verdict:
    if isinstance(value, str):
        return Verdict.abstained("c") if value == "abstained" else Verdict.failed("c", value)
    return Verdict.scored("c", value)


CASE = AuditCase(Prompt.of("Why?"), Rubric(criteria=(Criterion(key="c", text="Is so."),)), "Because.")


def finding(now: float | str, before: float | str | None = None) -> AuditFinding:
    return AuditFinding(CASE, verdict(now), None if before is None else verdict(before), "a")


def result_of(measure: Measure, *findings: AuditFinding) -> SuiteResult:
    return suite_result(Suite(name="rationale", measure=measure, max_rate=0.1), findings)[0]


@pytest.mark.parametrize(
    ("measure", "now", "before", "hit"),
    [
        ("met", 0.5, None, True),
        ("met", 0.49, 0.9, False),
        ("missed", 0.49, None, True),
        ("missed", 0.5, None, False),
        ("changed", 0.6, 0.4, True),
        ("changed", 0.4, 0.6, True),
        ("changed", 0.9, 0.6, False),
        ("preferred", 0.3, 0.2, True),
        ("preferred", 0.2, 0.3, False),
    ],
)
def test_suite_result_counts_hits_by_measure(measure: Measure, now: float, before: float | None, hit: bool) -> None:
    assert result_of(measure, finding(now, before)).rate.hits == int(hit)


def test_suite_result_fails_with_less_than_half_scored() -> None:
    result = result_of("met", finding(0.1), finding("timeout"), finding("timeout"))
    assert result.passed is False and "1 of 3" in str(result.reason)
    assert result_of("met", finding(0.1), finding("timeout")).passed is True
    ties = result_of("preferred", finding(0.1, 0.5), *[finding(0.5, 0.5)] * 2)
    assert "1 of 3" in str(ties.reason)


def test_audit_without_an_applicable_suite_is_not_passed() -> None:
    empty = result_of("met")
    assert (empty.passed, empty.reason) == (None, "the judge writes no rationale")
    one = result_of("met", finding(0.1))

    def audit(*suites: SuiteResult) -> Audit:
        return Audit(digest="d", fingerprint="f", suites=suites)

    assert not audit(empty).passed and audit(empty, one).passed
    assert not audit(one, result_of("met", finding(0.9))).passed
