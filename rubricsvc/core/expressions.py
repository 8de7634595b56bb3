"""Arithmetic over named numbers, as in the ``calculate_output`` of OpenAI's multi graders: ``0.7 * a + 0.3 * b ^ 2``.

There are ``+ - * / ^`` (``**`` too), parentheses, ``min max abs floor ceil exp sqrt log`` and the names that are given.
All of it is done in floating point, so that no power can fill the memory; nothing is looked up anywhere else.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping

from rubricsvc.errors import cut

LONGEST = 4000
"""Characters."""

_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[-+*/^(),]))", re.ASCII
)
_BINARY: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_UNARY: dict[type[ast.AST], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_ONE: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_SOME: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max}


class ExpressionError(ValueError):
    """The text is no such expression."""


class UndefinedError(ValueError):
    """The expression has no value here: it divides by zero, say."""


def check(text: str, names: Collection[str]) -> None:
    """See that ``text`` is an expression over ``names``.

    Raises:
        ExpressionError: it is not; the message says what is wrong.
    """
    _see(_parse(text), names)


def evaluate(text: str, values: Mapping[str, float]) -> float:
    """The value of the expression.

    Raises:
        ExpressionError: it is no expression over these names.
        UndefinedError: it, or a part of it, has no finite value here.
    """
    tree = _parse(text)
    _see(tree, values)
    try:
        return _value(tree, values)
    except (ArithmeticError, ValueError) as error:
        raise UndefinedError(f"{text!r} has no value here: {error}") from None


def _parse(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise ExpressionError(f"the expression is longer than {LONGEST} characters")
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ExpressionError(f"no expression from {text[at : at + 20]!r} on; {_KNOWN}")
        tokens.append("**" if found[3] == "^" else found[0].strip())
        at = found.end()
    try:
        return ast.parse(" ".join(tokens), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"no expression: {text[:80]!r}; {_KNOWN}") from None


_KNOWN = f"there are + - * / ^ ( ) {' '.join((*_SOME, *_ONE))}, numbers, and the names of the parts"
_DEEPEST = 400


def _there(names: Collection[str]) -> str:
    return cut(f"there are {', '.join(names)}", 200)


def _see(node: ast.expr, names: Collection[str], depth: int = 0) -> None:
    """Raises ExpressionError for anything that is not arithmetic."""
    if depth > _DEEPEST:
        raise ExpressionError("the expression is nested too deep")
    inside: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            inside = [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            inside = [operand]
        case ast.Constant(value=int() | float() as number) if type(number) is not bool and math.isfinite(
            _number(number)
        ):
            pass
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionError(f"no part is named {name!r}; {_there(names)}")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in _ONE and name not in _SOME:
                raise ExpressionError(f"no function is named {name!r}; {_KNOWN}")
            if len(args) != 1 and (name in _ONE or not args):
                raise ExpressionError(f"{name} takes {'one number' if name in _ONE else 'numbers'}, found {len(args)}")
            inside = args
        case _:
            raise ExpressionError(f"no arithmetic: {ast.unparse(node)[:80]!r}; {_KNOWN}")
    for part in inside:
        _see(part, names, depth + 1)


def _number(constant: float) -> float:
    try:
        return float(constant)
    except OverflowError:
        return math.inf


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    """Raises OverflowError where any part is not finite: ``min(1, nan)`` and ``1 / inf`` would look like values."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            value = _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=op, operand=operand):
            value = _UNARY[type(op)](_value(operand, values))
        case ast.Constant(value=int() | float() as number):
            value = float(number)
        case ast.Name(id=name):
            value = float(values[name])
        case ast.Call(func=ast.Name(id=name), args=args):
            given = [_value(arg, values) for arg in args]
            value = _ONE[name](given[0]) if name in _ONE else _SOME[name](given)
        case _:
            raise ExpressionError(f"no arithmetic: {ast.unparse(node)[:80]!r}")
    if not math.isfinite(value):
        raise OverflowError("a part of it is not finite")
    return value
