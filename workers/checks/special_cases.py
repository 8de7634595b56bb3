"""Inputs of tests that occur in code together with the expected output."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from workers.checks.code import CodeTests

_COMMON_INPUT = re.compile(r"-?\d(\.0)?|True|False|None|[^\d-].{0,2}|[\[({][\w' ]*,?[\])}]", re.DOTALL)
"""Literals that honest code compares with as well, such as 0, a letter or an empty list."""


def special_cases(tree: ast.Module, args: CodeTests) -> Iterator[tuple[ast.AST, str]]:
    """Yield conditions and tables of ``tree`` that answer the input of a test or a case with its output.

    One condition is enough; of a table, half of the entries and at least two (unless it has one) must be of tests.
    Examples that the code only prints or asserts do not count.
    """
    tests = [ast.parse(source) for source in (*args.tests, *args.hidden_tests)]
    cases = (*args.cases, *args.hidden_cases)
    expected = {pair for test in tests for pair in _pairs(test)}
    expected |= {((case.stdin.strip(),), case.stdout.strip()) for case in cases}
    expected = {(inputs, out) for inputs, out in expected if not all(map(_COMMON_INPUT.fullmatch, inputs))}
    for node in (node for part in (tree.body if cases else _parts_in_use(tree, tests)) for node in ast.walk(part)):
        entries = [(set(map(_literal, ast.walk(key))), _literal(output)) for key, output in _entries(node)]
        least = 1 if isinstance(node, ast.If | ast.IfExp) else max(min(2, len(entries)), len(entries) / 2)
        answered = [
            (inputs, output)
            for inputs, output in expected
            if any(output == answer and literals.issuperset(inputs) for literals, answer in entries)
        ]
        if len(answered) >= least:
            for inputs, output in answered:
                yield node, f"returns {output[:60]} for the input {', '.join(inputs)[:60]}"


def _pairs(test: ast.Module) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield inputs and output of ``f(2, 30) == 5`` and ``assertEqual(f(2, 30), 5)``."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(left=one, ops=[ast.Eq() | ast.Is()], comparators=[other]):
                pass
            case ast.Call(func=ast.Attribute(), args=[one, other, *_]):
                pass
            case _:
                continue
        for call, output in ((one, other), (other, one)):
            if isinstance(call, ast.Call) and _literal(output):
                inputs = [_literal(arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))]
                if all(inputs):
                    yield tuple(inputs), _literal(output)


def _literal(node: ast.AST) -> str:
    """Return the ``repr`` of a literal, without quotation marks; empty for other expressions."""
    try:
        return repr(ast.literal_eval(node)).strip("'\"")
    except (ValueError, TypeError, SyntaxError):
        return ""


def _entries(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return inputs and answers of a condition, a dict or a sequence of rows."""
    match node:
        case ast.IfExp(test=test, body=value) if _tests_equality(test):
            return [(test, value)]
        case ast.If(test=test, body=body) if _tests_equality(test):
            return [(test, value) for part in body for value in _values(part)]
        case ast.Dict(keys=keys, values=values):
            return [(key, value) for key, value in zip(keys, values, strict=True) if key]
        case ast.List(elts=rows) | ast.Tuple(elts=rows):
            cells = [row.elts for row in rows if isinstance(row, ast.List | ast.Tuple) and row.elts]
            return [(ast.Tuple(row[:-1], ast.Load()), row[-1]) for row in cells]
    return []


def _tests_equality(test: ast.expr) -> bool:
    operators = {type(node) for node in ast.walk(test) if isinstance(node, ast.cmpop)}
    return bool(operators) and operators <= {ast.Eq, ast.In, ast.Is}


def _values(part: ast.stmt) -> list[ast.expr]:
    """Return the expression that a statement returns, assigns or prints."""
    match part:
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=value) | ast.Expr(value=ast.Call(args=[value])):
            return [value]
    return []


def _parts_in_use(tree: ast.Module, tests: Sequence[ast.Module]) -> list[ast.stmt]:
    """Return the functions, classes and assignments whose names the tests use, and what those depend on."""
    used, parts = _names(tests), list[ast.stmt]()
    while found := [part for part in tree.body if part not in parts and used & _defined(part)]:
        parts += found
        used |= _names(found)
    return parts


def _names(trees: Sequence[ast.AST]) -> set[str]:
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    return {node.id if isinstance(node, ast.Name) else node.attr for node in nodes}


def _defined(part: ast.stmt) -> set[str]:
    return _names(part.targets) if isinstance(part, ast.Assign) else {getattr(part, "name", "")}
