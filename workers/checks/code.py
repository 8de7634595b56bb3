"""The check ``code``: unit tests, shown and hidden, each run on the code of a completion in a sandbox of its own."""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import cut
from workers.checks.markdown import PYTHON, Which, pick
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sandbox.harness import TEST, run_module, run_without_code
from workers.checks.sandbox.runner import Limits, run_python


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


class Code(CodeTests):
    """``partial``: the value is the pass rate, else 1 only where all tests pass that count."""

    partial: bool = True

    @model_validator(mode="after")
    def _require_tests(self) -> Code:
        if not (self.tests or self.cases or self.hidden_tests or self.hidden_cases):
            raise ValueError("give tests, cases, hidden_tests or hidden_cases")
        return self


@check("code", Code, version=5)
def code(completion: Completion, prompt: Prompt, args: Code) -> CheckResult:
    """Return the pass rate of the hidden tests, or of the shown tests where none are hidden.

    Shown tests do not add to the value beside hidden ones: a table of them would earn it. The rationale has both rates
    and their gap. Code that fails to load, loops or exits early fails its tests. Raises as `run_suite`.
    """
    result = run_suite(pick(completion.text, args.block, PYTHON), args)
    rate = pass_rate(result.hidden or result.shown)
    lines = [f"{name}: {f'failed: {error}' if error else 'passed'}" for name, error in result.shown + result.hidden]
    return CheckResult(rate if args.partial else float(rate == 1), "; ".join([result.summary, *lines]))


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The name and the error of each shown and of each hidden test. The error is empty where it passed."""

    shown: tuple[tuple[str, str], ...]
    hidden: tuple[tuple[str, str], ...]

    @property
    def gap(self) -> float:
        """The pass rate of the shown tests less that of the hidden ones; 0 without both kinds."""
        return pass_rate(self.shown) - pass_rate(self.hidden) if self.shown and self.hidden else 0.0

    @property
    def summary(self) -> str:
        """Both pass rates and the gap; the number of tests that passed where there is one kind only."""
        shown, hidden = (f"{sum(not error for _, error in kind)} of {len(kind)}" for kind in (self.shown, self.hidden))
        if self.shown and self.hidden:
            return f"{shown} shown and {hidden} hidden tests passed (gap {self.gap:+.2f})"
        return f"{shown if self.shown else hidden} tests passed"


def pass_rate(results: tuple[tuple[str, str], ...]) -> float:
    """Return the share of tests that passed."""
    return sum(not error for _, error in results) / len(results)


def run_suite(source: str, suite: CodeTests) -> SuiteResult:
    """Run all tests of a suite on ``source``. Repeating the last calls costs nothing.

    Raises:
        BrokenTestsError: The setup raises, or a test imports a missing package.
        NoSandboxError: There is no sandbox.
    """
    fields = {name: getattr(suite, name) for name in CodeTests.model_fields}  # without those of its subclasses
    return _run_suite(source, CodeTests.model_construct(**fields))


@lru_cache(maxsize=32)  # `code` and `code_cheating` of one rubric share a run, and so cannot disagree on it
def _run_suite(source: str, suite: CodeTests) -> SuiteResult:
    def results(tests: tuple[str, ...], cases: tuple[Case, ...], prefix: str) -> Iterator[tuple[str, str]]:
        for name, test in split(tests, suite.setup):
            yield f"{prefix}{name}", _run_test(source, test, suite)
        for number, case in enumerate(cases, start=1):
            yield f"{prefix}case {number}", _run_case(source, case, suite)

    return SuiteResult(
        shown=tuple(results(suite.tests, suite.cases, "")),
        hidden=tuple(results(suite.hidden_tests, suite.hidden_cases, "hidden ")),
    )


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
        if isinstance(node, ast.ClassDef):
            case = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
            for method in _test_functions(node.body, 1) if case or node.name.startswith("Test") else ():
                call = f"{node.name}({method!r}).debug()" if case else f"{node.name}().{method}()"
                yield f"{node.name}.{method}", call
        yield from ((name, f"{name}()") for name in _test_functions([node], 0))


def _test_functions(body: Sequence[ast.stmt], given: int) -> Iterator[str]:
    for test in body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test"):
            required = len(test.args.posonlyargs + test.args.args) - len(test.args.defaults)
            if isinstance(test, ast.AsyncFunctionDef) or required > given or None in test.args.kw_defaults:
                problem = "takes arguments or is async: fixtures, parameters and loops are not supported"
                raise ValueError(f"{test.name} {problem}")
            yield test.name


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
