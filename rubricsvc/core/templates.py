"""The two small languages of OpenAI's graders: templates and arithmetic.

In templates, the placeholders ``{{ item.answer }}`` and ``{{ sample.output_json.steps[0] }}`` are paths into plain
data; all are filled in one pass, so that braces in the data stay text. Expressions, as in ``calculate_output``, have
``+ - * / ^`` (also ``**``), parentheses, ``min max abs floor ceil exp sqrt log``, numbers and given names:
``0.7 * a + 0.3 * b ^ 2``. All arithmetic is in floating point, so that no power can fill the memory.
"""

import ast
import json
import math
import operator
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import cut

MAX_LENGTH = 256_000  # characters of a template or of a grader's program; OpenAI's limit
MAX_PLACEHOLDERS = 256  # placeholders of a template
PLACEHOLDER = re.compile(r"\{\{(.*?)(\}\}|\Z)", re.DOTALL)  # to the end if unclosed, so that the end is searched once
_BEGINS = re.compile(r"\{\{\s*(?:item|sample)\b.*", re.DOTALL)
_PATH = re.compile(r"\s*(item|sample)((?:\.[\w-]+|\[[0-9]{1,6}\])+)\s*")
_STEP = re.compile(r"[\w-]+")
_INDEX = re.compile(r"[0-9]{1,6}")
_SAMPLE = ("output_text", "output_json", "output_tools", "choices")


def placeholder_path(mark: re.Match[str]) -> tuple[str, ...]:
    """Return ``item.rows[0]`` as ("item", "rows", "0"), and () for braces that are plain text."""
    if not mark[2]:
        if unclosed := _BEGINS.search(mark[0]):
            raise ValueError(f"unsafe template {cut(unclosed[0], 80)}: add }}}} to close it")
        return ()
    path = _PATH.fullmatch(mark[1])
    steps = (path[1], *_STEP.findall(path[2])) if path else ()
    if not steps or any(step.startswith("__") for step in steps):
        expected = "expected a path such as {{item.answer}} or {{sample.output_text}}"
        raise ValueError(f"unsafe template {cut(mark[0], 80)}: {expected}")
    if steps[0] == "sample" and steps[1] not in _SAMPLE:
        raise ValueError(f"unsafe template {cut(mark[0], 80)}: expected one of {', '.join(_SAMPLE)}")
    return steps


def _safe(text: str) -> str:
    count = sum(bool(placeholder_path(mark)) for mark in PLACEHOLDER.finditer(text))
    if count > MAX_PLACEHOLDERS:
        raise ValueError(f"a template has at most {MAX_PLACEHOLDERS} placeholders, found {count}")
    return text


TemplateText = Annotated[str, Field(max_length=MAX_LENGTH), AfterValidator(_safe)]
"""A text with placeholders. Anything but a path in ``{{ }}``, and an unclosed path, is invalid."""


class PlaceholderError(ValueError):
    """A template refers to a missing value; ``reason`` is that of the failed verdict."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def fill(template: str, data: Mapping[str, JsonValue]) -> str:
    """Return the template with its placeholders filled: text as it is, everything else as JSON.

    Raises:
        PlaceholderError: The item or the sample has no value at such a path.
        ValueError: A placeholder is not a path.
    """

    def filled(mark: re.Match[str]) -> str:
        here: JsonValue = dict(data)
        for number, step in enumerate(steps := placeholder_path(mark), start=1):
            if isinstance(here, dict) and step in here:
                here = here[step]
            elif isinstance(here, list) and _INDEX.fullmatch(step) and int(step) < len(here):
                here = here[int(step)]
            else:
                raise PlaceholderError(f"{'.'.join(steps[:number])} is missing", Reason.NO_VARIABLE)
            if here is None and steps[:number] == ("sample", "output_json"):
                raise PlaceholderError("sample.output_json: the completion is not JSON", Reason.NOT_JSON)
        value = here if steps else mark[0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return PLACEHOLDER.sub(filled, template)


def template_data(prompt: Prompt, completion: Completion) -> dict[str, JsonValue]:
    """Return what a grader's templates refer to: the prompt's item, and the completion as OpenAI's sample.

    ``output_json`` is None where the text is not JSON; ``output_tools`` are the calls of the last assistant message.
    """
    last = next((message for message in reversed(completion.messages) if message.role == "assistant"), None)
    tools: list[JsonValue] = last.openai.get("tool_calls", []) if last else []
    message: dict[str, JsonValue] = {"role": "assistant", "content": completion.text, "tool_calls": tools}
    choice: JsonValue = {"index": 0, "finish_reason": "tool_calls" if tools else "stop", "message": message}
    sample: dict[str, JsonValue] = {"output_text": completion.text, "output_tools": tools, "choices": [choice]}
    try:
        sample["output_json"] = strict_json.parse(completion.text)
    except strict_json.JsonError:
        sample["output_json"] = None
    return {"item": prompt.item or {}, "sample": sample}


_MAX_EXPRESSION = 4000  # characters of an expression
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
    **{function.__name__: function for function in (math.exp, math.sqrt, math.log)},
}
_VARIADIC = ("min", "max")
_SYNTAX = f"expected + - * / ^ ( ), {' '.join(FUNCTIONS)}, numbers or names of parts"

Evaluate = Callable[[Mapping[str, float]], float]


class ExpressionError(ValueError):
    """The text is not an expression over the given names."""


def check_expression(text: str, names: Collection[str]) -> Evaluate:
    """Return the function of ``text``; an ExpressionError if it is no expression over ``names``.

    The function raises an ArithmeticError or a ValueError where a part has no finite value.
    """
    if len(text) > _MAX_EXPRESSION:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {_MAX_EXPRESSION} are allowed")
    try:
        parsed = ast.parse(" ".join(text.split()).replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"syntax error in {text[:80]!r}; {_SYNTAX}") from None
    return _compile(parsed, names)


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
