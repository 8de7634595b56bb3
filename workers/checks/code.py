"""The check ``code``: unit tests, shown and hidden, run on the code of a completion."""

from __future__ import annotations

from pydantic import model_validator

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.markdown import PYTHON, pick
from workers.checks.registry import CheckResult, check
from workers.checks.sandbox.unit_tests import CodeTests, pass_rate, run_suite


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
