"""The arithmetic of ``calculate_output`` and that it is nothing but arithmetic; estimates, shingles, comparisons."""

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.fingerprint import BANDS, NEAR, containment, copy_groups, shingles, sketch
from rubricsvc.core.reward import contributions
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.templates import ExpressionError
from rubricsvc.core.templates import check_expression as check
from rubricsvc.stats.estimates import mean_estimate, t_quantile, t_tail
from tests.unit.rubricsvc.core.test_reward import rubric, verdicts

NAMES = {"a": 0.25, "b": 2.0, "part_1": -1.5}


def evaluate(text: str, values: dict[str, float]) -> float:
    return check(text, values)(values)


def test_evaluate_computes_arithmetic() -> None:
    for text, value in [
        ("a", 0.25), ("0.5 * a + 0.5 * b", 1.125), ("b ^ 3", 8.0), ("b ** -1", 0.5), ("-b ^ 2", -4.0),
        ("2 ^ 3 ^ 0", 2.0), ("(a + b) / 2", 1.125), ("min(a, b, 3) + max(a, b)", 2.25), ("abs(part_1)", 1.5),
        ("floor(1.7) + ceil(1.2)", 3.0), ("exp(0) + sqrt(16) + log(exp(1))", 6.0), (" 1e1 - .5\n- 1. ", 8.5),
    ]:  # fmt: skip
        check(text, NAMES)
        assert evaluate(text, NAMES) == pytest.approx(value)


def test_check_rejects_all_but_arithmetic() -> None:
    for text, named in [
        ("", "''"), ("a +", "a +"), ("c", "'c'.*a, b, part_1"), ("sum(a, b)", "'sum'"), ("abs(a, b)", "abs.*2"),
        ("min()", "min.*0"), ("min", "'min'"), ("a.real", r"a\.real"), ("a[0]", r"a\[0\]"),
        ("__import__('os')", "__import__"), ("'a'", "'a'"), ("a if b else b", "a if b else b"), ("a or b", "a or b"),
        ("not a", "not a"), ("True", "True"), ("(a, b)", "(a, b)"), ("a // b", "a // b"), ("a % b", "% b"),
        ("min(*a)", "a"), ("lambda: a", ": a"), ("1e999", "1e309"), ("1or a", "1 ?or a"),
        ("(" * 900 + "a" + ")" * 900, "[(][(]"), ("-" * 900 + "a", "200"), ("a + " * 2000 + "a", "4000"),
    ]:  # fmt: skip
        with pytest.raises(ExpressionError, match=named):
            check(text, NAMES)
        with pytest.raises(ExpressionError):
            evaluate(text, NAMES)


def test_evaluate_raises_where_there_is_no_value_or_a_part_is_not_finite() -> None:
    for text in [
        *("1 / (a - a)", "log(0)", "sqrt(-1)", "exp(1000)", "9^9^9^9", "0 ^ -1", "(-1) ^ 0.5"),
        *("1e308 * 10", "min(1, 1e308 * 10)", "min(1, 1e308 * 10 - 1e308 * 10)"),
        *("1 / (1e308 * 10)", "max(0, -1e308 * 10)"),
    ]:
        check(text, NAMES)
        with pytest.raises((ArithmeticError, ValueError)):
            evaluate(text, NAMES)


@given(st.text(alphabet="ab()+-*/^,. 019emlinx_"))
def test_evaluate_gives_a_finite_number_or_an_error(text: str) -> None:
    with suppress(ArithmeticError, ValueError):
        assert math.isfinite(evaluate(text, NAMES))


@pytest.mark.parametrize("prompts", [5, 6, 12, 60])
@pytest.mark.parametrize("samples", [1, 4])
def test_mean_estimate_of_equal_prompts_is_scipys_t_interval_of_their_means(prompts: int, samples: int) -> None:
    values = np.random.default_rng(prompts).uniform(size=(prompts, samples))
    found = mean_estimate(values.ravel().tolist(), np.repeat(np.arange(prompts), samples).tolist())
    expected = stats.ttest_1samp(values.mean(1), 0.0).confidence_interval()
    assert found.value == pytest.approx(values.mean()) and found.low is not None and found.high is not None
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=4e-4)


def test_mean_estimate_covers_the_true_mean_where_prompts_differ() -> None:
    """Shared noise of a prompt: an interval that took completions as independent would cover far less than 95 %."""
    random, covered = np.random.default_rng(0), 0
    prompts = np.repeat(np.arange(20), 8)
    for _ in range(400):
        values = 0.1 + random.normal(0, 0.2, 20)[prompts] + random.normal(0, 0.1, 160)
        found = mean_estimate(values.tolist(), prompts.tolist())
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("prompts", range(1, MIN_CLUSTERS))
def test_mean_estimate_of_few_prompts_has_no_interval(prompts: int) -> None:
    found = mean_estimate([0.0, 1.0] * prompts, [n // 2 for n in range(2 * prompts)])
    assert (found.value, found.low, found.high) == (0.5, None, None) and found.null_reason


def test_t_tail_and_t_quantile_equal_those_of_scipy() -> None:
    for freedom in (1, 2, 3, 4, 7, 24, 25, 300):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-11)
        for t in (-3.0, 0.0, 0.5, 2.0, 5.0):
            assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-13, rel=1e-9)
    assert t_quantile(10**9) == pytest.approx(stats.norm.ppf(0.975), rel=2e-4)


WORDS = [f"word{number}" for number in range(200)]
SECTION, REST = " ".join(WORDS[:60]), " ".join(WORDS[60:])


def test_containment_is_the_share_of_the_different_runs_of_words() -> None:
    for text, count in [("", 0), ("one", 1), ("one two", 1), (SECTION, 56), ("a a a a a a a", 1)]:
        assert len(shingles(text)) == count
    assert containment(shingles(SECTION), shingles(f"{REST} {SECTION}")) == 1.0
    assert containment(shingles(f"{SECTION} {REST}"), shingles(SECTION)) == pytest.approx(56 / 196)
    assert containment(shingles(""), shingles(SECTION)) == 0.0


def test_copy_groups_names_the_first_of_texts_that_repeat_one_another() -> None:
    longer = f"{SECTION} {WORDS[60]}"  # 56 of its 57 shingles are the section's
    texts = [SECTION, "short", f"{SECTION.upper()}!", longer, f"{SECTION} {REST}", "short", "*", "!"]
    assert copy_groups(texts) == [0, 1, 0, 0, 4, 1, 6, 7]


def test_sketches_of_near_copies_share_bands_in_any_language() -> None:
    text = "States that the vaccines must not be used before the manufacturer has decided."
    cases = [
        (text, f"  {text.upper()}\u200b ", BANDS, BANDS),
        (text, text.replace("States", "Says").replace("decided", "answered"), NEAR, BANDS - 1),
        (text, "Names the temperature range from two to eight degrees that the fridge must keep.", 0, 0),
        ("Объясняет, что вакцины нельзя использовать.", "Пишет, что вакцины нельзя использовать.", NEAR, BANDS - 1),
        ("说明瑞利散射是天空呈蓝色的原因。", "说明瑞利散射是天空为蓝色的原因。", NEAR, BANDS - 1),
        ("Is short.", "Is concise.", 0, 0),
    ]
    for one, other, least, most in cases:
        assert least <= len({*sketch(one)} & {*sketch(other)}) <= most, other


def gains(rubric: Rubric, *values: float | str | None) -> list[float | None]:
    return [part.gain for part in contributions(rubric, verdicts(*values))]


def test_contributions_of_a_weighted_sum_are_the_weighted_shortfalls() -> None:
    own = rubric(5, 10, -8)
    assert gains(own, 0.5, 0.0, 1.0) == pytest.approx([2.5 / 15, 10 / 15, 8 / 15])  # unclipped: the reward is 0
    parts = contributions(own, verdicts(0.5, 0.0, 1.0))
    assert [part.contribution for part in parts] == pytest.approx([2.5 / 15, 0.0, -8 / 15])


def test_contributions_use_the_formula_itself() -> None:
    assert gains(rubric(1, 1, 1, formula="min"), 0.2, 0.5, 0.9) == pytest.approx([0.3, 0.0, 0.0])
    assert gains(rubric(1, 1, formula="geometric_mean"), 0.25, 1.0) == pytest.approx([0.5, 0.0])
    one_left = rubric(1, 1, formula="multichallenge_all")
    assert gains(one_left, 1.0, 0.3) == [0.0, 1.0]
    assert gains(one_left, 0.3, 0.3) == [0.0, 0.0]  # neither alone would do


def test_contributions_of_a_part_that_was_not_judged_are_unknown() -> None:
    partly = rubric(1, 1, min_coverage=0.5)
    assert gains(partly, 0.0, "timeout") == [1.0, None]
    lenient = contributions(rubric(1, 1), verdicts(0.0, "timeout"), min_coverage=0.5)
    assert [part.gain for part in lenient] == [1.0, None]
    parts = contributions(rubric(1, 1), verdicts(0.0, None))
    assert [(part.gain, part.contribution) for part in parts] == [(None, None), (None, None)]
    assert [part.verdict and part.verdict.outcome for part in parts] == ["scored", "abstained"]
    assert contributions(rubric(1), [])[0].verdict is None
