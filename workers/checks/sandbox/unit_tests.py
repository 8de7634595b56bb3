"""Unit tests of untrusted code: shown and hidden ones, each run in a sandbox of its own."""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from rubricsvc.errors import cut
from workers.checks.registry import Args
from workers.checks.sandbox.harness import TEST, run_module
from workers.checks.sandbox.runner import Limits, ready, run_python
from workers.checks.sandbox.test_errors import attribute_error

Sources = str | tuple[str, ...]
"""One piece of Python, or several."""

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_LIMITS = Limits()


class Case(Args):
    """One run of the program: its input and the expected output."""

    stdin: str = ""
    stdout: str


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests and cases, the setup before each test, and the limits of each."""

    tests: Sources = ()
    cases: tuple[Case, ...] = ()
    hidden_tests: Sources = ()
    hidden_cases: tuple[Case, ...] = ()
    setup: str = ""
    limits: Limits = _LIMITS
    packages: bool = True


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test. ``error`` is empty where it passed."""

    __test__ = False  # pytest collects classes of this name
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The results of the shown and of the hidden tests."""

    shown: tuple[TestResult, ...]
    hidden: tuple[TestResult, ...]

    @property
    def gap(self) -> float | None:
        """The pass rate of the shown tests less that of the hidden ones; None without both kinds."""
        return pass_rate(self.shown) - pass_rate(self.hidden) if self.shown and self.hidden else None

    @property
    def summary(self) -> str:
        """Both pass rates and the gap; the number of tests that passed where there is one kind only."""
        if self.gap is None:
            return f"{_passed(self.shown or self.hidden)} tests passed"
        return f"{_passed(self.shown)} shown and {_passed(self.hidden)} hidden tests passed (gap {self.gap:+.2f})"


def pass_rate(results: tuple[TestResult, ...]) -> float:
    """Return the share of tests that passed."""
    return sum(not result.error for result in results) / len(results)


def _passed(results: tuple[TestResult, ...]) -> str:
    return f"{sum(not result.error for result in results)} of {len(results)}"


def run_suite(source: str, suite: Suite) -> SuiteResult:
    """Run all tests of a suite on ``source``. Repeating the last calls costs nothing.

    Raises:
        BrokenTestsError: The setup raises, or a test imports a missing package.
        NoSandboxError: There is no sandbox.
    """
    return _run_suite(source, suite, ready())


@lru_cache(maxsize=32)  # `code` and `code_cheating` of one rubric share a run, and so cannot disagree on it
def _run_suite(source: str, suite: Suite, _sandbox: str) -> SuiteResult:
    shown = (*_run_tests(source, suite.tests, suite), *_run_cases(source, suite.cases, suite))
    hidden = (*_run_tests(source, suite.hidden_tests, suite), *_run_cases(source, suite.hidden_cases, suite))
    return SuiteResult(shown, tuple(TestResult(f"hidden {result.name}", result.error) for result in hidden))


def _run_tests(source: str, tests: Sources, suite: Suite) -> Iterator[TestResult]:
    return (TestResult(name, _run_test(source, test, suite)) for name, test in split(tests, suite.setup))


def _run_cases(source: str, cases: Iterable[Case], suite: Suite) -> Iterator[TestResult]:
    return (TestResult(f"case {n}", _run_case(source, case, suite)) for n, case in enumerate(cases, start=1))


def split(tests: Sources, setup: str = "") -> Iterator[tuple[str, str]]:
    """Yield each test by name with its source: the functions and methods ``test…`` of each piece, else the piece.

    Raises:
        ValueError: A test takes arguments or is async.
        SyntaxError, RecursionError: A piece is not Python.
    """
    before = f"{setup}\n" if setup else ""
    for number, source in enumerate(pieces(tests), start=1):
        calls = [*_calls(ast.parse(source))] or [(f"test {number}", "")]
        yield from ((name, f"{before}{source}\n{call}\n") for name, call in calls)


def pieces(tests: Sources) -> tuple[str, ...]:
    """Return the pieces of Python that hold tests."""
    return tests if isinstance(tests, tuple) else (tests,) if tests.strip() else ()


def _calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name of each test function, with the line that runs it."""
    for node in tree.body:
        if isinstance(node, _FUNCTION) and node.name.startswith("test"):
            yield _callable_name(node, node.name, 0), f"{node.name}()"
        elif isinstance(node, ast.ClassDef):
            case = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
            for method in node.body if case or node.name.startswith("Test") else ():
                if isinstance(method, _FUNCTION) and method.name.startswith("test"):
                    name = _callable_name(method, f"{node.name}.{method.name}", 1)
                    yield name, f"{node.name}({method.name!r}).debug()" if case else f"{node.name}().{method.name}()"


def _callable_name(test: ast.FunctionDef | ast.AsyncFunctionDef, name: str, given: int) -> str:
    required = len(test.args.posonlyargs + test.args.args) - len(test.args.defaults)
    if isinstance(test, ast.AsyncFunctionDef) or required > given or None in test.args.kw_defaults:
        raise ValueError(f"{name} takes arguments or is async: fixtures, parameters and loops are not supported")
    return name


def _run_test(source: str, test: str, suite: Suite) -> str:
    """Return the error of a test. It passed if its last action was to print a token that was unknown until then."""
    token = secrets.token_hex(16)
    result = run_module("solution", source, TEST, token + test, limits=suite.limits, packages=suite.packages)
    if result.ok and result.stdout == token:
        return ""
    error = "it ended early" if result.ok else result.error
    attribute_error(error, suite.setup, test, suite.limits, suite.packages)
    return error + (_assertion(test, result.stderr) if error.startswith("AssertionError") else "")


def _assertion(source: str, traceback: str) -> str:
    """Return the text of the assertion at the last line of ``source`` that the traceback names, if there is one.

    The program may have written the traceback itself: no text in it may break the check.
    """
    lines = re.findall(r'^  File "test\.py", line (\d{1,9})\b', traceback, re.MULTILINE)
    line = int(lines[-1]) if lines else 0
    try:
        tree = ast.parse(source)
    except (SyntaxError, RecursionError):  # near the limit, parsing may succeed once and fail later
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
            return f" ({cut(' '.join((ast.get_source_segment(source, node) or '').split()), 200)})"
    return ""


def _run_case(source: str, case: Case, suite: Suite) -> str:
    result = run_python(source, stdin=case.stdin, limits=suite.limits, packages=suite.packages)
    if not result.ok:
        return result.error
    return "" if _lines(result.stdout) == _lines(case.stdout) else f"it printed {result.stdout[:80]!r}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
