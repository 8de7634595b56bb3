"""The arithmetic of ``calculate_output``: its values, and that it is nothing but arithmetic."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.templates import ExpressionError
from rubricsvc.core.templates import check_expression as check

NAMES = {"a": 0.25, "b": 2.0, "part_1": -1.5}


def evaluate(text: str, values: dict[str, float]) -> float:
    return check(text, values)(values)


def test_evaluate_computes_arithmetic() -> None:
    for text, value in [
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
    ]:
        check(text, NAMES)
        assert evaluate(text, NAMES) == pytest.approx(value)


def test_check_rejects_all_but_arithmetic() -> None:
    for text, named in [
        ("", "''"),
        ("a +", "a +"),
        ("c", "'c'.*a, b, part_1"),
        ("sum(a, b)", "'sum'"),
        ("abs(a, b)", "abs.*2"),
        ("min()", "min.*0"),
        ("min", "'min'"),
        ("a.real", r"a\.real"),
        ("a[0]", r"a\[0\]"),
        ("__import__('os')", "__import__"),
        ("'a'", "'a'"),
        ("a if b else b", "a if b else b"),
        ("a or b", "a or b"),
        ("not a", "not a"),
        ("True", "True"),
        ("(a, b)", "(a, b)"),
        ("a // b", "a // b"),
        ("a % b", "% b"),
        ("min(*a)", "a"),
        ("lambda: a", ": a"),
        ("1e999", "1e309"),
        ("1or a", "1 ?or a"),
        ("(" * 900 + "a" + ")" * 900, "[(][(]"),
        ("-" * 900 + "a", "200"),
        ("a + " * 2000 + "a", "4000"),
    ]:
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
