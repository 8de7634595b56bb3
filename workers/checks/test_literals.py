"""Inputs of tests that occur in code together with the expected output."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from workers.checks.syntax import called_name, is_main_guard

_Entry = tuple[set[str], str]
"""Literals that are compared with or looked up, and the literal that is returned for them, each as ``repr``."""


def special_cases(
    tree: ast.Module, tests: Sequence[ast.AST], cases: Sequence[tuple[str, str]]
) -> Iterator[tuple[ast.AST, str]]:
    """Yield conditions and tables of ``tree`` that answer the input of a test with its output.

    Args:
        tree: The code.
        tests: The tests; ``f(2, 30) == 5``, ``assertEqual(f(2, 30), 5)`` and ``assert f("word")`` are read.
        cases: The standard input and output of programs.

    One condition is enough; of a table, half of the entries and at least two (unless it has one) must be of tests.
    Inputs that honest code compares with as well, such as 0, ``""`` or a letter, do not count, nor do the examples that
    a program only prints or asserts.
    """
    expected = {pair for test in tests for pair in _pairs(test)}
    expected |= {((repr(stdin),), text) for stdin, out in cases if _is_distinctive(stdin) for text in (repr(out), out)}
    excused = _self_tests(tree, program=bool(cases)) if expected else set()
    for node, entries, least in chain(_conditions(tree), _tables(tree)):
        answered = sorted(
            {
                (output, inputs)
                for literals, output in entries
                for inputs, out in expected
                if out == output and literals.issuperset(inputs)
            }
        )
        if len(answered) >= least and id(node) not in excused:
            yield from (
                (node, f"returns {out[:60]} for the input {', '.join(inputs)[:60]}") for out, inputs in answered
            )


def _pairs(test: ast.AST) -> Iterator[tuple[tuple[str, ...], str]]:
    for node in ast.walk(test):
        sides: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Is):
            sides = [(node.left, node.comparators[0])]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) >= 2:
            sides = [(node.args[0], node.args[1])]
        elif isinstance(node, ast.Assert):
            negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
            call = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
            sides = [(call, ast.Constant(not negated))]
        for call, output in (pair for one, other in sides for pair in ((one, other), (other, one))):
            if isinstance(call, ast.Call) and (expected := _literal(output)):
                inputs = [_literal(arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))]
                if all(inputs) and any(_is_distinctive(value) for (value,) in filter(None, inputs)):
                    yield tuple(repr(value) for (value,) in filter(None, inputs)), repr(expected[0])


def _literal(node: ast.AST | None) -> tuple[object] | None:
    """Return the value of a literal in a tuple of one."""
    try:
        return (ast.literal_eval(node),) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, SyntaxError):
        return None


def _is_distinctive(value: object) -> bool:
    """Whether honest code is unlikely to compare with this input."""
    if isinstance(value, bool | int | float | None):
        return not isinstance(value, bool) and value is not None and (abs(value) > 9 or value % 1 != 0)
    return len(value) > (3 if isinstance(value, str | bytes) else 1) if hasattr(value, "__len__") else True


def _literals(node: ast.AST) -> set[str]:
    """Return the literals in an expression; a tuple both whole and by its parts, ``"10"`` also as ``10``."""
    values = [literal[0] for inner in ast.walk(node) if (literal := _literal(inner))]
    values += [convert(value) for value in values if isinstance(value, tuple | list) for convert in (tuple, list)]
    return {repr(value) for value in values} | {value for value in values if isinstance(value, str)}


def _conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, list[_Entry], float]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and _tests_equality(node.test):
            answers = [node.body] if isinstance(node, ast.IfExp) else _answers(node.body)
            yield node, [*_entries((node.test, answer) for answer in answers)], 1


def _tests_equality(test: ast.expr) -> bool:
    comparisons = [op for node in ast.walk(test) if isinstance(node, ast.Compare) for op in node.ops]
    return bool(comparisons) and all(isinstance(op, ast.Eq | ast.In | ast.Is) for op in comparisons)


def _answers(body: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the expressions that statements return, print or assign."""
    for part in body:
        if isinstance(part, ast.Return | ast.Assign) and part.value:
            yield part.value
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call) and len(part.value.args) == 1:
            yield part.value.args[0]


def _tables(tree: ast.AST) -> Iterator[tuple[ast.AST, list[_Entry], float]]:
    """Yield dicts, and sequences of (input, output)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
            yield node, [*_entries(pairs)], max(min(2, len(pairs)), len(pairs) / 2)
        elif isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            rows = [row.elts for row in node.elts if isinstance(row, ast.List | ast.Tuple) and row.elts]
            pairs = [(ast.Tuple(row[:-1], ast.Load()), row[-1]) for row in rows]
            yield node, [*_entries(pairs)], max(2, len(node.elts) / 2)


def _entries(pairs: Iterable[tuple[ast.AST, ast.expr]]) -> Iterator[_Entry]:
    return ((_literals(key), repr(value[0])) for key, output in pairs if (value := _literal(output)))


def _self_tests(tree: ast.Module, *, program: bool) -> set[int]:
    """Return the ids of the nodes that only print or assert, with the values of names that only they use.

    Args:
        tree: The code.
        program: Whether the code prints its answer and is run as a script.
    """
    parts = [
        node for node in ast.walk(tree) if isinstance(node, ast.For | ast.FunctionDef) and _only_shows(node, program)
    ]
    guards = [] if program else [node for node in tree.body if is_main_guard(node)]
    excused = {id(inner) for part in (*parts, *guards) for inner in ast.walk(part)}
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    used = {node.id for node in loads if id(node) not in excused}
    shown = {node.id for node in loads} - used
    assigned = (
        node for node in tree.body if isinstance(node, ast.Assign) and {*map(ast.unparse, node.targets)} & shown
    )
    return excused | {id(inner) for node in assigned for inner in ast.walk(node)}


def _only_shows(node: ast.For | ast.FunctionDef, program: bool) -> bool:
    """Whether a loop or function asserts, or prints what is no answer, and neither returns nor stores anything."""
    inner = [*ast.walk(node)]
    called = {*map(called_name, inner)}
    returns = any(isinstance(part, ast.Return | ast.Yield) and part.value for part in inner)
    stores = any(isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store) for part in inner)
    stores |= any(isinstance(part, ast.Global | ast.Nonlocal) for part in inner) or bool(called & {"append", "update"})
    asserts = any(isinstance(part, ast.Assert) for part in inner) or any(name.startswith("assert") for name in called)
    return (asserts or ("print" in called and not program)) and not returns and not stores
