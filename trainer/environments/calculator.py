"""A calculator: the smallest environment. Its prompts are questions with a number as the answer."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from rubricsvc.core.prompt import Prompt
from trainer.environments.environment import Tool, ToolError

MAX_CHARS = 200
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Calculator:
    """Evaluates sums, differences, products and quotients."""

    tools = (Tool("calculate", "Evaluate an expression.", {"expression": "An expression, such as 2 * (3 + 4)."}),)
    report = None

    def reset(self, prompt: Prompt) -> Calculator:
        """Return the episode: it has no state."""
        return self

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the value of the expression."""
        text = arguments["expression"]
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"at most {MAX_CHARS} characters")
            return f"{_value(ast.parse(text.strip(), mode='eval').body):.10g}"
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            raise ToolError(f"{text[:MAX_CHARS]!r} has no value: {error}") from error


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("expected numbers, + - * / and parentheses")
