"""Checks that run code in the sandbox: ``code`` (unit tests, with partial credit) and ``python`` (a grader's own)."""

from __future__ import annotations

import ast
import json
import math
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import Field, JsonValue, field_validator, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import openai_sample
from rubricsvc.errors import cut
from rubricsvc.graders.model import Program, Range
from workers.checks.fences import Which, pick
from workers.checks.registry import Args, Finding, check
from workers.checks.sandbox.runner import Limits, Result, run_python
from workers.checks.test_errors import see_whose

PYTHON = ("python", "py", "python3")

_HARNESS = """
def main(run=exec, make=compile):
    import json, numbers, os, sys, types
    leave, write, size, said, take, read = os._exit, os.write, os.fstat(0).st_size, os.dup(1), os.dup(0), os.read
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 0)
    module = sys.modules[{name}] = types.ModuleType({name})
    run(make({code}, {name} + ".py", "exec"), module.__dict__)
    given = read(take, size)
    {act}
    leave(0)
main()
"""
"""Loads the code; only then are the tests read, so that they are not there for the code to find or to change."""

_TEST = """word, test = given[:32], given[32:].decode()
    run(make(test, "test.py", "exec"), dict(module.__dict__, __name__="test"))
    write(said, word)"""

_GRADE = """given = json.loads(given)
    value = module.grade(given["sample"], given["item"])
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"grade(sample, item) gave {ascii(value):.80}, which is no number: let it return a float")
    write(said, json.dumps(float(value)).encode())"""


class Case(Args):
    """One run of the program: what it reads, and what it must print."""

    stdin: str = ""
    stdout: str


class Code(Args):
    """``tests``: a piece of Python, or several. Each piece is one test, or has them in functions and methods ``test…``.

    Methods are those of classes ``Test…`` and of ``TestCase``; fixtures and parameters are not supported. Tests see
    what the code defines, and can ``import solution``. ``cases`` run the code as a program instead. ``setup`` stands
    before each test. ``block`` says which fenced block is the code. ``partial``: the share of tests that pass, else all
    or nothing. The other arguments are the limits of each test.
    """

    tests: str | tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    setup: str = ""
    block: Which = "last"
    partial: bool = True
    packages: bool = True
    cpu_s: int = Field(default=5, ge=1, le=600)
    wall_s: float = Field(default=20.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=512, ge=64, le=65536)

    @field_validator("tests")
    @classmethod
    def _python(cls, tests: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for number, source in enumerate(_pieces(tests)):
            try:
                list(_calls(ast.parse(source)))
            except (SyntaxError, RecursionError) as error:
                raise ValueError(f"test {number + 1} is not Python: {error}") from error
        return tests

    @field_validator("setup")
    @classmethod
    def _prepares(cls, setup: str) -> str:
        try:
            ast.parse(setup)
        except (SyntaxError, RecursionError) as error:
            raise ValueError(f"the setup is not Python: {error}") from error
        return setup

    @model_validator(mode="after")
    def _some(self) -> Code:
        if not _pieces(self.tests) and not self.cases:
            raise ValueError("give tests or cases")
        return self

    @property
    def limits(self) -> Limits:
        return Limits(cpu_s=self.cpu_s, wall_s=self.wall_s, memory_mib=self.memory_mib)


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class _Test:
    name: str
    source: str


@check("code", Code, version=3)
def code(completion: Completion, prompt: Prompt, args: Code) -> Finding:
    """The share of the unit tests that the code passes, each in a sandbox of its own (see `sandbox.runner`).

    What the code does wrong, loading, looping or leaving early, fails its tests; where there is no sandbox, or the
    tests break without any code, the check fails. A program that wants to can forge a pass from within its own process:
    ask for ``code_cheating`` as well.

    Raises:
        BrokenTestsError: the setup raises, or a test imports what is not there.
        NoSandboxError: there is no sandbox.
    """
    source = pick(completion.text, args.block, PYTHON)
    found = [(test.name, _tried(source, test, args)) for test in split(args.tests, args.setup)]
    found += [(f"case {n}", _ran(source, case, args)) for n, case in enumerate(args.cases, start=1)]
    passed = sum(not trouble for _, trouble in found)
    value = passed / len(found) if args.partial else float(passed == len(found))
    lines = [f"{name}: {'failed: ' + trouble if trouble else 'passed'}" for name, trouble in found]
    return Finding(value, "; ".join([f"{passed} of {len(found)} tests passed", *lines]))


def split(tests: str | tuple[str, ...], setup: str = "") -> Iterator[_Test]:
    """The tests of each piece: its functions ``test…``, such methods of its classes; or the piece as it is."""
    before = f"{setup}\n" if setup else ""
    for number, source in enumerate(_pieces(tests), start=1):
        calls = [*_calls(ast.parse(source))] or [(f"test {number}", "")]
        yield from (_Test(name, f"{before}{source}\n{call}\n") for name, call in calls)


def _pieces(tests: str | tuple[str, ...]) -> tuple[str, ...]:
    return tests if isinstance(tests, tuple) else (tests,) if tests.strip() else ()


def _calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The tests of a source by name, each with the line that runs it. Raises ValueError where one takes arguments."""
    for node in tree.body:
        if isinstance(node, _FUNCTION) and node.name.startswith("test"):
            yield _alone(node, node.name, 0), f"{node.name}()"
        elif isinstance(node, ast.ClassDef):
            case = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
            for method in node.body if case or node.name.startswith("Test") else ():
                if isinstance(method, _FUNCTION) and method.name.startswith("test"):
                    name = _alone(method, f"{node.name}.{method.name}", 1)
                    yield name, f"{node.name}({method.name!r}).debug()" if case else f"{node.name}().{method.name}()"


def _alone(test: ast.FunctionDef | ast.AsyncFunctionDef, name: str, given: int) -> str:
    """The name of a test that can be called as it is."""
    wanted = len(test.args.posonlyargs + test.args.args) - len(test.args.defaults)
    if isinstance(test, ast.AsyncFunctionDef) or wanted > given or None in test.args.kw_defaults:
        raise ValueError(f"{name} takes arguments or is async: fixtures, parameters and loops are not supported")
    return name


def _tried(source: str, test: _Test, args: Code) -> str:
    """Why the test fails; empty where it passes: where its last act was to say a word that it was told at the end."""
    word = secrets.token_hex(16)
    done = _loaded("solution", source, _TEST, word + test.source, limits=args.limits, packages=args.packages)
    if done.ok and done.stdout == word:
        return ""
    trouble = "it ended early" if done.ok else done.trouble
    see_whose(trouble, args.setup, test.source, args.limits, args.packages)
    return trouble + (_assertion(test.source, done.stderr) if trouble.startswith("AssertionError") else "")


def _assertion(source: str, traceback: str) -> str:
    """The text of the assertion at the last line of ``source`` that the traceback names; empty where there is none.

    The program may have written the traceback itself: whatever stands there must not break the check.
    """
    lines = re.findall(r'^  File "test\.py", line (\d{1,9})\b', traceback, re.MULTILINE)
    at = int(lines[-1]) if lines else 0
    try:
        tree = ast.parse(source)
    except (SyntaxError, RecursionError):  # near the limit it may be read once and not another time
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= at <= (node.end_lineno or 0):
            return f" ({cut(' '.join((ast.get_source_segment(source, node) or '').split()), 200)})"
    return ""


def _ran(source: str, case: Case, args: Code) -> str:
    done = run_python(source, stdin=case.stdin, limits=args.limits, packages=args.packages)
    if not done.ok:
        return done.trouble
    return "" if _lines(done.stdout) == _lines(case.stdout) else f"it printed {done.stdout[:80]!r}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _loaded(name: str, source: str, act: str, given: str, **options: Any) -> Result:
    program = _HARNESS.format(name=json.dumps(name), code=json.dumps(source), act=act)
    return run_python(program, stdin=given, **options)


class GradeError(RuntimeError):
    """The grader's own code broke, or gave no finite number."""


class Grader(Args):
    """``source`` defines ``grade(sample, item) -> float``, as in OpenAI's python grader.

    ``item`` is handed to it; without one, the prompt's. ``range`` is what it may give; it is mapped to 0 to 1. The
    other arguments are its limits; ``output_mib`` is the most that a file may hold.
    """

    source: Program
    item: dict[str, JsonValue] | None = None
    range: Range = (0.0, 1.0)
    cpu_s: int = Field(default=10, ge=1, le=600)
    wall_s: float = Field(default=120.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=1024, ge=64, le=65536)
    disk_mib: int = Field(default=32, ge=1, le=65536)
    output_mib: int = Field(default=4, ge=1, le=1024)

    @property
    def limits(self) -> Limits:
        return Limits(**self.model_dump(include={"cpu_s", "wall_s", "memory_mib", "disk_mib", "output_mib"}))


@check("python", Grader, version=2)
def python(completion: Completion, prompt: Prompt, args: Grader) -> float:
    """The number that ``grade`` gives, which must be within ``range``. ``sample`` is OpenAI's.

    Raises:
        GradeError: it gave no number, or one that is not within ``range``.
        NoSandboxError: there is no sandbox.
    """
    item = args.item if args.item is not None else prompt.item or {}
    value, (low, high) = grade(args.source, openai_sample(completion), item, limits=args.limits), args.range
    if not low <= value <= high:
        hint = f'give the grader its range: "range": [{min(low, value):g}, {max(high, value):g}]'
        raise GradeError(f"grade(sample, item) gave {value:g}, which is not within {low:g} and {high:g}; {hint}")
    return (value - low) / (high - low)


def grade(
    source: str,
    sample: dict[str, JsonValue],
    item: dict[str, JsonValue],
    *,
    limits: Limits | None = None,
) -> float:
    """What ``grade(sample, item)`` of ``source`` returns, run in the sandbox.

    Raises:
        GradeError: it raised, ran out of its limits, or gave no finite number.
        NoSandboxError: there is no sandbox.
    """
    given = json.dumps({"sample": sample, "item": item})
    done = _loaded("grader", source, _GRADE, given, limits=limits or Limits(cpu_s=10, wall_s=120.0, memory_mib=1024))
    if not done.ok:
        raise GradeError(f"grade(sample, item) broke: {done.trouble}")
    try:
        value = float(json.loads(done.stdout))
    except ValueError as error:
        raise GradeError(f"grade(sample, item) ended early; it printed {done.stdout[:80]!r}") from error
    if not math.isfinite(value):
        raise GradeError(f"grade(sample, item) gave {value}")
    return value
