"""What counts as a hit, what does not count, and when a suite is passed."""

from __future__ import annotations

import pytest

from rubricsvc.core.audit import Audit, Finding, Measure, Rate, SuiteResult, measured, worst
from rubricsvc.core.verdict import Verdict


def verdict(value: float | str) -> Verdict:
    if isinstance(value, str):
        return Verdict.abstained("c") if value == "abstained" else Verdict.failed("c", value)
    return Verdict.scored("c", value)


def finding(now: float | str, before: float | str | None = None, attack: str = "a", family: str = "") -> Finding:
    return Finding(
        attack, family, "Is so.", "Why?", "Because.", verdict(now), None if before is None else verdict(before)
    )


def found(measure: Measure, *findings: Finding, max_rate: float = 0.1) -> SuiteResult:
    return measured("s", measure, max_rate, findings)[0]


def test_wilson_of_a_textbook() -> None:
    """Newcombe (1998), table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    rate = Rate.of(81, 263)
    assert (rate.low, rate.high) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))
    none = Rate.of(0, 20)
    assert (none.low, none.high) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert Rate.of(0, 0) == Rate(n=0, hits=0)


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
def test_what_is_a_hit(measure: Measure, now: float, before: float | None, hit: bool) -> None:
    assert found(measure, finding(now, before)).found.hits == int(hit)


def test_failures_abstentions_and_ties_are_counted_apart() -> None:
    result = found("changed", finding(0.9, 0.1), finding("timeout", 0.1), finding(0.9, "abstained"), finding(0.2, 0.1))
    assert (result.found.n, result.found.hits) == (2, 1)
    assert result.unjudged == {"timeout": 1, "abstained without the attack": 1}
    assert result.shift == pytest.approx((0.8 + 0.1) / 2)
    assert found("preferred", finding(0.5, 0.5), finding(0.6, 0.5)).unjudged == {"tie": 1}
    assert found("met", finding(0.9, "timeout")).found.n == 1, "the rate of false positives needs no comparison"


def test_a_suite_that_was_hardly_judged_is_not_passed() -> None:
    result = found("met", finding(0.1), finding("timeout"), finding("timeout"))
    assert result.passed is False and result.why == "only 1 of 3 could be judged"
    assert found("met", finding(0.1), finding("timeout")).passed is True
    ties = found("preferred", finding(0.1, 0.5), *[finding(0.5, 0.5)] * 2)
    assert ties.why == "only 1 of 3 could be told apart"


def test_limits_and_families() -> None:
    calm = [finding(0.1, 0.1, family="x") for _ in range(9)]
    assert found("met", *calm, finding(0.9, 0.1, family="y"), max_rate=0.1).passed is True
    over = found("met", *calm, finding(0.9, 0.1, family="y"), max_rate=0.09)
    assert over.passed is False and over.why == "0.100 is over 0.09"
    assert {name: (rate.hits, rate.n) for name, rate in over.families.items()} == {"x": (0, 9), "y": (1, 1)}
    assert over.before is not None and over.before.hits == 0


def test_an_audit_in_which_nothing_applied_is_not_passed() -> None:
    empty, _ = measured("s", "met", 0.1, [], null_reason="no rationale")
    assert (empty.passed, empty.why) == (None, "no rationale")
    one = found("met", finding(0.1))

    def audit(*suites: SuiteResult) -> Audit:
        return Audit(digest="d", fingerprint="f", suites=suites)

    assert not audit(empty).passed and audit(empty, one).passed
    assert not audit(one, found("met", finding(0.9))).passed


def test_what_no_attack_brought_about_is_shown_apart() -> None:
    fooled, bare = finding(0.9, attack="order"), finding(0.9, attack="")
    (plain, wrong), (attacked, hits) = (measured(name, "met", 0.1, [one]) for name, one in (("p", bare), ("a", fooled)))
    assert (plain.attacks, attacked.attacks) == (0, 1)
    audit = Audit(digest="d", fingerprint="f", suites=(plain, attacked), worst=worst({"p": wrong, "a": hits}))
    told = {heading: [hit.suite for hit in some] for heading, some in audit.headed.items()}
    assert told == {"attacks that worked": ["a"], "wrong without an attack": ["p"]}
    assert not Audit(digest="d", fingerprint="f", suites=(plain,)).headed


def test_the_worst_are_taken_from_every_suite_in_turn() -> None:
    _, many = measured("many", "met", 0.1, [finding(0.9, 0.1, f"m{n}") for n in range(30)])
    _, few = measured("few", "met", 0.1, [finding(0.6, 0.5, "weak"), finding(0.9, 0.1, "strong")])
    shown = worst({"many": many, "few": few}, 4)
    assert [hit.suite for hit in shown] == ["many", "few", "many", "few"]
    assert [hit.attack for hit in shown if hit.suite == "few"] == ["strong", "weak"]
