"""Arithmetic over named numbers, as in the ``calculate_output`` of OpenAI's multi graders: ``0.7 * a + 0.3 * b ^ 2``.

Expressions have ``+ - * / ^`` (also ``**``), parentheses, ``min max abs floor ceil exp sqrt log``, numbers and the
given names. All arithmetic is in floating point, so that no power can fill the memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping

from rubricsvc.errors import cut

MAX_LENGTH = 4000
"""Characters of an expression."""

_MAX_DEPTH = 400

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
_UNARY_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_VARIADIC_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max}
_SYNTAX = f"expected + - * / ^ ( ), {' '.join((*_VARIADIC_FUNCTIONS, *_UNARY_FUNCTIONS))}, numbers or names of parts"


class ExpressionError(ValueError):
    """The text is not an expression over the given names."""


class UndefinedError(ValueError):
    """The expression has no value for these numbers, such as a division by zero."""


def check(text: str, names: Collection[str]) -> None:
    """Check that ``text`` is an expression over ``names``.

    Raises:
        ExpressionError: It is not.
    """
    _check(_parse(text), names)


def evaluate(text: str, values: Mapping[str, float]) -> float:
    """Return the value of the expression.

    Raises:
        ExpressionError: It is not an expression over these names.
        UndefinedError: It, or a part of it, has no finite value.
    """
    tree = _parse(text)
    _check(tree, values)
    try:
        return _value(tree, values)
    except (ArithmeticError, ValueError) as error:
        raise UndefinedError(f"{text!r} has no value: {error}") from None


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"syntax error at {text[at : at + 20]!r}; {_SYNTAX}")
        tokens.append("**" if token[3] == "^" else token[0].strip())
        at = token.end()
    try:
        return ast.parse(" ".join(tokens), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"syntax error in {text[:80]!r}; {_SYNTAX}") from None


def _check(node: ast.expr, names: Collection[str], depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise ExpressionError(f"the expression is nested deeper than {_MAX_DEPTH} levels")
    operands: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            operands = [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            operands = [operand]
        case ast.Constant(value=int() | float() as number) if type(number) is not bool and math.isfinite(
            _number(number)
        ):
            pass
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionError(f"unknown part {name!r}; " + cut(f"expected one of {', '.join(names)}", 200))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in _UNARY_FUNCTIONS and name not in _VARIADIC_FUNCTIONS:
                raise ExpressionError(f"unknown function {name!r}; {_SYNTAX}")
            if len(args) != 1 and (name in _UNARY_FUNCTIONS or not args):
                count = "one number" if name in _UNARY_FUNCTIONS else "at least one number"
                raise ExpressionError(f"{name} takes {count}, found {len(args)}")
            operands = args
        case _:
            raise ExpressionError(f"{ast.unparse(node)[:80]!r} is not arithmetic; {_SYNTAX}")
    for operand in operands:
        _check(operand, names, depth + 1)


def _number(constant: float) -> float:
    try:
        return float(constant)
    except OverflowError:
        return math.inf


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    """Raise OverflowError where any part is not finite: ``min(1, nan)`` and ``1 / inf`` would look like values."""
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
            numbers = [_value(arg, values) for arg in args]
            value = (
                _UNARY_FUNCTIONS[name](numbers[0]) if name in _UNARY_FUNCTIONS else _VARIADIC_FUNCTIONS[name](numbers)
            )
        case _:
            raise ExpressionError(f"{ast.unparse(node)[:80]!r} is not arithmetic")
    if not math.isfinite(value):
        raise OverflowError("a part of it is not finite")
    return value
