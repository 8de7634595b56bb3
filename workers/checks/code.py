"""The check ``code``: unit tests, shown and hidden, run on the code of a completion."""

from __future__ import annotations

import ast

from pydantic import Field, field_validator, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.markdown import PYTHON, Which, pick
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sandbox.runner import Limits
from workers.checks.sandbox.unit_tests import Case, Sources, Suite, pass_rate, pieces, run_suite, split


class CodeTests(Args):
    """Tests of code. ``hidden_tests`` and ``hidden_cases`` are those that the prompt does not show to the policy.

    ``tests`` are one piece of Python or several. A piece is one test, or holds tests in functions ``test…`` and methods
    of classes ``Test…`` and ``TestCase``. Tests see the names that the code defines and can ``import solution``.
    ``cases`` run the code as a program instead. ``setup`` runs before each test. The limits are those of each test.
    """

    tests: Sources = ()
    cases: tuple[Case, ...] = ()
    hidden_tests: Sources = ()
    hidden_cases: tuple[Case, ...] = ()
    setup: str = ""
    block: Which = "last"
    packages: bool = True
    cpu_s: int = Field(default=5, ge=1, le=600)
    wall_s: float = Field(default=20.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=512, ge=64, le=65536)

    @field_validator("tests", "hidden_tests")
    @classmethod
    def _validate_tests(cls, tests: Sources) -> Sources:
        for number, source in enumerate(pieces(tests)):
            try:
                list(split(source))
            except (SyntaxError, RecursionError) as error:
                raise ValueError(f"test {number + 1} is not Python: {error}") from error
        return tests

    @field_validator("setup")
    @classmethod
    def _validate_setup(cls, setup: str) -> str:
        try:
            ast.parse(setup)
        except (SyntaxError, RecursionError) as error:
            raise ValueError(f"the setup is not Python: {error}") from error
        return setup

    @property
    def suite(self) -> Suite:
        """The tests with their limits."""
        limits = Limits(cpu_s=self.cpu_s, wall_s=self.wall_s, memory_mib=self.memory_mib)
        return Suite(self.tests, self.cases, self.hidden_tests, self.hidden_cases, self.setup, limits, self.packages)


class Code(CodeTests):
    """``partial``: the value is the pass rate, else 1 only where all tests pass that count."""

    partial: bool = True

    @model_validator(mode="after")
    def _require_tests(self) -> Code:
        suite = (*map(pieces, (self.tests, self.hidden_tests)), self.cases, self.hidden_cases)
        if not any(suite):
            raise ValueError("give tests, cases, hidden_tests or hidden_cases")
        return self


@check("code", Code, version=4)
def code(completion: Completion, prompt: Prompt, args: Code) -> CheckResult:
    """Return the pass rate of the hidden tests, or of the shown tests where none are hidden.

    Shown tests do not add to the value beside hidden ones: a table of them would earn it. The rationale has both rates
    and their gap. Code that fails to load, loops or exits early fails its tests.

    Raises:
        BrokenTestsError: The setup raises, or a test imports a missing package.
        NoSandboxError: There is no sandbox.
    """
    result = run_suite(pick(completion.text, args.block, PYTHON), args.suite)
    rate = pass_rate(result.hidden or result.shown)
    lines = [
        f"{test.name}: {f'failed: {test.error}' if test.error else 'passed'}" for test in result.shown + result.hidden
    ]
    return CheckResult(rate if args.partial else float(rate == 1), "; ".join([result.summary, *lines]))
