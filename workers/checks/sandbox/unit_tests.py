"""Unit tests of untrusted code: shown and hidden ones, each run in a sandbox of its own."""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from rubricsvc.errors import cut
from workers.checks.markdown import Which
from workers.checks.registry import Args
from workers.checks.sandbox.harness import TEST, run_module
from workers.checks.sandbox.runner import Limits, ready, run_python
from workers.checks.sandbox.test_errors import run_without_code

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _as_pieces(given: object) -> object:
    return given if not isinstance(given, str) else (given,) if given.strip() else ()


def _as_python(source: str) -> str:
    try:
        list(split((source,)))
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"not Python: {error}") from error
    return source


Python = Annotated[str, AfterValidator(_as_python)]
Pieces = Annotated[tuple[Python, ...], BeforeValidator(_as_pieces)]
"""Pieces of Python that hold tests; a file may give one piece as a string."""


class Case(Args):
    """One run of the program: its input and the expected output."""

    stdin: str = ""
    stdout: str


class CodeTests(Args):
    """Tests of code. ``hidden_tests`` and ``hidden_cases`` are those that the prompt does not show to the policy.

    ``tests`` are one piece of Python or several. A piece is one test, or holds tests in functions ``test…`` and methods
    of classes ``Test…`` and ``TestCase``. Tests see the names that the code defines and can ``import solution``.
    ``cases`` run the code as a program instead. ``setup`` runs before each test. The limits are those of each test.
    """

    tests: Pieces = ()
    cases: tuple[Case, ...] = ()
    hidden_tests: Pieces = ()
    hidden_cases: tuple[Case, ...] = ()
    setup: Python = ""
    block: Which = "last"
    packages: bool = True
    cpu_s: int = Field(default=5, ge=1, le=600)
    wall_s: float = Field(default=20.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=512, ge=64, le=65536)

    @property
    def limits(self) -> Limits:
        """The limits of each test."""
        return Limits(cpu_s=self.cpu_s, wall_s=self.wall_s, memory_mib=self.memory_mib)


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
        counts = [
            f"{sum(not one.error for one in tests)} of {len(tests)}" for tests in (self.shown, self.hidden) if tests
        ]
        if self.gap is None:
            return f"{counts[0]} tests passed"
        return f"{counts[0]} shown and {counts[1]} hidden tests passed (gap {self.gap:+.2f})"


def pass_rate(results: tuple[TestResult, ...]) -> float:
    """Return the share of tests that passed."""
    return sum(not result.error for result in results) / len(results)


def run_suite(source: str, suite: CodeTests) -> SuiteResult:
    """Run all tests of a suite on ``source``. Repeating the last calls costs nothing.

    Raises:
        BrokenTestsError: The setup raises, or a test imports a missing package.
        NoSandboxError: There is no sandbox.
    """
    fields = {name: getattr(suite, name) for name in CodeTests.model_fields}  # without those of its subclasses
    return _run_suite(source, CodeTests.model_construct(**fields), ready())


@lru_cache(maxsize=32)  # `code` and `code_cheating` of one rubric share a run, and so cannot disagree on it
def _run_suite(source: str, suite: CodeTests, _sandbox: str) -> SuiteResult:
    return SuiteResult(
        shown=tuple(_results(source, suite, suite.tests, suite.cases, "")),
        hidden=tuple(_results(source, suite, suite.hidden_tests, suite.hidden_cases, "hidden ")),
    )


def _results(
    source: str, suite: CodeTests, tests: tuple[str, ...], cases: tuple[Case, ...], prefix: str
) -> Iterator[TestResult]:
    for name, test in split(tests, suite.setup):
        yield TestResult(f"{prefix}{name}", _run_test(source, test, suite))
    for number, case in enumerate(cases, start=1):
        yield TestResult(f"{prefix}case {number}", _run_case(source, case, suite))


def split(pieces: tuple[str, ...], setup: str = "") -> Iterator[tuple[str, str]]:
    """Yield each test by name with its source: the functions and methods ``test…`` of each piece, else the piece.

    Raises:
        ValueError: A test takes arguments or is async.
        SyntaxError, RecursionError: A piece is not Python.
    """
    before = f"{setup}\n" if setup else ""
    for number, source in enumerate(pieces, start=1):
        calls = [*_calls(ast.parse(source))] or [(f"test {number}", "")]
        yield from ((name, f"{before}{source}\n{call}\n") for name, call in calls)


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


def _run_test(source: str, test: str, suite: CodeTests) -> str:
    """Return the error of a test. It passed if its last action was to print a token that was unknown until then."""
    token = secrets.token_hex(16)
    result = run_module("solution", source, TEST, token + test, limits=suite.limits, packages=suite.packages)
    if result.ok and result.stdout == token:
        return ""
    error = "it ended early" if result.ok else result.error
    suspicious = error.startswith(("ImportError", "ModuleNotFoundError", "SyntaxError", "MemoryError"))
    if suite.setup or suspicious:
        run_without_code(suite.setup, test if suspicious else "", suite.limits, suite.packages)
    if error == "AssertionError":
        lines = re.findall(r'^  File "test\.py", line (\d{1,9})\b', result.stderr, re.MULTILINE)  # perhaps forged
        text = "".join(test.splitlines()[int(lines[-1]) - 1 :][:1]).strip() if lines else ""
        return f"{error} ({cut(text, 200)})" if text else error
    return error


def _run_case(source: str, case: Case, suite: CodeTests) -> str:
    result = run_python(source, stdin=case.stdin, limits=suite.limits, packages=suite.packages)
    if not result.ok:
        return result.error
    return "" if _lines(result.stdout) == _lines(case.stdout) else f"it printed {result.stdout[:80]!r}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
