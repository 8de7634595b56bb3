"""The arithmetic of ``calculate_output``: what it gives, and that it is arithmetic and nothing else."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.expressions import ExpressionError, UndefinedError, check, evaluate

NAMES = {"a": 0.25, "b": 2.0, "part_1": -1.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 0.25),
        ("0.5 * a + 0.5 * b", 1.125),
        ("b ^ 3", 8.0),
        ("b ** -1", 0.5),
        ("-b ^ 2", -4.0),
        ("2 ^ 3 ^ 0", 2.0),
        ("(a + b) / 2", 1.125),
        ("min(a, b, 3) + max(a, b)", 2.25),
        ("abs(part_1)", 1.5),
        ("floor(1.7) + ceil(1.2)", 3.0),
        ("exp(0) + sqrt(16) + log(exp(1))", 6.0),
        (" 1e1 - .5\n- 1. ", 8.5),
    ],
)
def test_it_is_arithmetic(text: str, value: float) -> None:
    check(text, NAMES)
    assert evaluate(text, NAMES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no expression"),
        ("a +", "no expression"),
        ("c", "no part is named 'c'; there are a, b, part_1"),
        ("sum(a, b)", "no function is named 'sum'"),
        ("abs(a, b)", "abs takes one number, found 2"),
        ("min()", "min takes numbers, found 0"),
        ("min", "no part is named 'min'"),
        ("a.real", "no expression from '.real'"),
        ("a[0]", "no expression from '\\[0\\]'"),
        ("__import__('os')", "no expression from"),
        ("a if b else b", "no arithmetic"),
        ("a or b", "no arithmetic"),
        ("not a", "no arithmetic"),
        ("True", "no arithmetic"),
        ("(a, b)", "no arithmetic"),
        ("a // b", "no expression"),
        ("a % b", "no expression from"),
        ("min(*a)", "no expression|no arithmetic"),
        ("lambda: a", "no expression"),
        ("1e999", "no arithmetic"),
        ("0x10", "no expression"),
        ("1or a", "no arithmetic"),
        ("(" * 900 + "a" + ")" * 900, "no expression"),
        ("-" * 900 + "a", "nested too deep"),
        ("a + " * 2000 + "a", "longer than 4000"),
    ],
)
def test_nothing_else_is_read(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        check(text, NAMES)
    with pytest.raises(ExpressionError):
        evaluate(text, NAMES)


@pytest.mark.parametrize("text", ["1 / (a - a)", "log(0)", "sqrt(-1)", "exp(1000)", "9^9^9^9", "0 ^ -1", "(-1) ^ 0.5"])
def test_where_it_has_no_value_it_has_none(text: str) -> None:
    check(text, NAMES)
    with pytest.raises(UndefinedError, match="has no"):
        evaluate(text, NAMES)


@pytest.mark.parametrize(
    "text",
    ["1e308 * 10", "min(1, 1e308 * 10)", "min(1, 1e308 * 10 - 1e308 * 10)", "1 / (1e308 * 10)", "max(0, -1e308 * 10)"],
)
def test_a_part_without_a_finite_value_leaves_none(text: str) -> None:
    check(text, NAMES)
    with pytest.raises(UndefinedError, match="a part of it is not finite"):
        evaluate(text, NAMES)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_name_without_a_finite_value_leaves_none(value: float) -> None:
    with pytest.raises(UndefinedError, match="not finite"):
        evaluate("min(1, a)", {"a": value})


@given(st.text(alphabet="ab()+-*/^,. 019emlinx_"))
def test_whatever_stands_there_it_is_a_number_or_an_error(text: str) -> None:
    with suppress(ExpressionError, UndefinedError):
        assert math.isfinite(evaluate(text, NAMES))
