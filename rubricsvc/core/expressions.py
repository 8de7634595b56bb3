"""Arithmetic over named numbers, as in the ``calculate_output`` of OpenAI's multi graders: ``0.7 * a + 0.3 * b ^ 2``.

Expressions have ``+ - * / ^`` (also ``**``), parentheses, ``min max abs floor ceil exp sqrt log``, numbers and the
given names. All arithmetic is in floating point, so that no power can fill the memory.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable, Collection, Mapping

from rubricsvc.errors import cut

MAX_LENGTH = 4000
"""Characters of an expression."""

_MAX_DEPTH = 200
_MAX_NUMBER = sys.float_info.max
_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": lambda *numbers: min(numbers),
    "max": lambda *numbers: max(numbers),
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_VARIADIC = ("min", "max")
_SYNTAX = f"expected + - * / ^ ( ), {' '.join(FUNCTIONS)}, numbers or names of parts"

Evaluate = Callable[[Mapping[str, float]], float]


class ExpressionError(ValueError):
    """The text is not an expression over the given names."""


class UndefinedError(ValueError):
    """The expression has no value for these numbers, such as a division by zero."""


def check(text: str, names: Collection[str]) -> None:
    """Raise an ExpressionError unless ``text`` is an expression over ``names``."""
    _compile(_parse(text), names)


def evaluate(text: str, values: Mapping[str, float]) -> float:
    """Return the value of the expression.

    Raises:
        ExpressionError: It is not an expression over these names.
        UndefinedError: It, or a part of it, has no finite value.
    """
    expression = _compile(_parse(text), values)
    try:
        return expression(values)
    except (ArithmeticError, ValueError) as error:
        raise UndefinedError(f"{text!r} has no value: {error}") from None


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    try:
        return ast.parse(" ".join(text.split()).replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"syntax error in {text[:80]!r}; {_SYNTAX}") from None


def _compile(node: ast.expr, names: Collection[str], depth: int = 0) -> Evaluate:
    if depth > _MAX_DEPTH:
        raise ExpressionError(f"the expression is nested deeper than {_MAX_DEPTH} levels")
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            function, operands = _OPERATORS[type(op)], [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            function, operands = _OPERATORS[type(op)], [operand]
        case ast.Constant(value=int() | float() as number) if type(number) is not bool and abs(number) <= _MAX_NUMBER:
            constant = float(number)
            return lambda values: constant
        case ast.Name(id=name) if name in names:
            return lambda values: _finite(float(values[name]))
        case ast.Name(id=name):
            raise ExpressionError(f"unknown part {name!r}; " + cut(f"expected one of {', '.join(names)}", 200))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != 1 and (name not in _VARIADIC or not args):
                count = "at least one number" if name in _VARIADIC else "one number"
                raise ExpressionError(f"{name} takes {count}, found {len(args)}")
            function, operands = FUNCTIONS[name], args
        case ast.Call(func=ast.Name(id=name)):
            raise ExpressionError(f"unknown function {name!r}; {_SYNTAX}")
        case _:
            raise ExpressionError(f"{ast.unparse(node)[:80]!r} is not arithmetic; {_SYNTAX}")
    parts = [_compile(operand, names, depth + 1) for operand in operands]
    return lambda values: _finite(function(*(part(values) for part in parts)))


def _finite(number: float) -> float:
    """Reject infinities and NaN in every part: ``min(1, nan)`` and ``1 / inf`` would look like values."""
    if not math.isfinite(number):
        raise OverflowError("a part of it is not finite")
    return number
