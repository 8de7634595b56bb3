"""Inputs of tests that occur in code together with the expected output."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from workers.checks.sandbox.unit_tests import CodeTests
from workers.checks.syntax import global_names

_COMMON_INPUT = re.compile(r"-?\d(\.0)?|True|False|None|b?(['\"]).{0,3}\2|[\[({][^,]*,?[\])}]", re.DOTALL)
"""Literals that honest code compares with as well, such as 0, ``""``, a letter or an empty list."""


def special_cases(tree: ast.Module, args: CodeTests) -> Iterator[tuple[ast.AST, str]]:
    """Yield conditions and tables of ``tree`` that answer the input of a test or a case with its output.

    One condition is enough; of a table, half of the entries and at least two (unless it has one) must be of tests.
    Examples that the code only prints or asserts do not count.
    """
    tests = [ast.parse(source) for source in (*args.tests, *args.hidden_tests)]
    expected = {pair for test in tests for pair in _pairs(test)}
    for case in (*args.cases, *args.hidden_cases):
        expected |= {((repr(case.stdin.strip()),), text) for text in (repr(case.stdout.strip()), case.stdout.strip())}
    expected = {(inputs, out) for inputs, out in expected if not all(map(_COMMON_INPUT.fullmatch, inputs))}
    parts = tree.body if args.cases or args.hidden_cases else _parts_in_use(tree, tests)
    for node in (node for part in parts for node in ast.walk(part)):
        entries, least = _entries(node)
        texts = [(_literals(key), _literal(output)) for key, output in entries]
        answered = {
            (output, inputs)
            for literals, answer in texts
            for inputs, output in expected
            if output == answer and literals.issuperset(inputs)
        }
        if len(answered) >= least:
            for output, inputs in answered:
                yield node, f"returns {output[:60]} for the input {', '.join(inputs)[:60]}"


def _pairs(test: ast.Module) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield inputs and output of ``f(2, 30) == 5``, ``assertEqual(f(2, 30), 5)`` and ``assert f("word")``."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(left=one, ops=[ast.Eq() | ast.Is()], comparators=[other]):
                pass
            case ast.Call(func=ast.Attribute(), args=[one, other, *_]):
                pass
            case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=one)):
                other = ast.Constant(False)
            case ast.Assert(test=one):
                other = ast.Constant(True)
            case _:
                continue
        for call, output in ((one, other), (other, one)):
            if isinstance(call, ast.Call) and _literal(output):
                inputs = [_literal(arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))]
                if all(inputs):
                    yield tuple(inputs), _literal(output)


def _literal(node: ast.expr) -> str:
    """Return the ``repr`` of a literal; empty for other expressions."""
    try:
        return repr(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError):
        return ""


def _literals(expression: ast.expr) -> set[str]:
    """Return the literals in an expression; ``"10"`` also as ``10``."""
    texts = {_literal(node) for node in ast.walk(expression) if isinstance(node, ast.expr)}
    return texts | {text.strip("'\"") for text in texts}


def _entries(node: ast.AST) -> tuple[Sequence[tuple[ast.expr, ast.expr]], float]:
    """Return inputs and answers of a condition, a dict or a sequence of rows, and how many of tests are a mark."""
    match node:
        case ast.IfExp(test=test, body=value) if _tests_equality(test):
            return [(test, value)], 1
        case ast.If(test=test, body=body) if _tests_equality(test):
            return [(test, value) for part in body for value in _values(part)], 1
        case ast.Dict(keys=keys, values=values):
            pairs = [(key, value) for key, value in zip(keys, values, strict=True) if key]
            return pairs, max(min(2, len(pairs)), len(pairs) / 2)
        case ast.List(elts=rows) | ast.Tuple(elts=rows) if len(rows) > 1:
            cells = [row.elts for row in rows if isinstance(row, ast.List | ast.Tuple) and row.elts]
            return [(ast.Tuple(row[:-1], ast.Load()), row[-1]) for row in cells], max(2, len(rows) / 2)
    return [], 1


def _tests_equality(test: ast.expr) -> bool:
    operators = {type(node) for node in ast.walk(test) if isinstance(node, ast.cmpop)}
    return bool(operators) and operators <= {ast.Eq, ast.In, ast.Is}


def _values(part: ast.stmt) -> list[ast.expr]:
    """Return the expression that a statement returns, assigns or prints."""
    match part:
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=value) | ast.Expr(value=ast.Call(args=[value])):
            return [value]
    return []


def _parts_in_use(tree: ast.Module, tests: Sequence[ast.Module]) -> set[ast.stmt]:
    """Return the statements that define what the tests name, and what those statements depend on."""
    nodes = [node for test in tests for node in ast.walk(test)]
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    names += [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    definitions = defaultdict[str, list[tuple[ast.stmt, set[str]]]](list)
    for part in tree.body:
        read, bound = global_names(part)
        for name in bound:
            definitions[name].append((part, read))
    parts = set[ast.stmt]()
    while names:
        for part, read in definitions.pop(names.pop(), ()):
            parts.add(part)
            names += read
    return parts
