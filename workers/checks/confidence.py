"""The check ``confidence``: how well a report's stated confidence fits what another check finds of it."""

from __future__ import annotations

import re

from pydantic import field_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check
from workers.checks.registry import CHECKS, Args, CheckResult, check

_STATED = re.compile(r"\bconfidence\b[^\n\d.]{0,20}(100(?:\.0+)?|\d{1,2}(?:\.\d+)?)\s?%", re.IGNORECASE)


class Confidence(Args):
    """``outcome``: the check whose value the confidence is about, as ``{name: …, args: {…}}``."""

    outcome: Check

    @field_validator("outcome")
    @classmethod
    def _exists(cls, outcome: Check) -> Check:
        if outcome.name not in CHECKS:
            raise ValueError(f"unknown check {outcome.name!r}")
        CHECKS[outcome.name].args.model_validate(outcome.args)
        return outcome


@check("confidence", Confidence)
def confidence(completion: Completion, prompt: Prompt, args: Confidence) -> CheckResult:
    """Return 1 - (p - outcome)² for the last “Confidence: 80 %” of the text; 0 without one.

    It is the quadratic score of Brier (1950), which is strictly proper: its expectation is highest where p is the
    expected outcome.
    """
    stated = _STATED.findall(completion.text)
    if not stated:
        return CheckResult(0.0, "no confidence is stated, such as “Confidence: 80 %”")
    decided = CHECKS[args.outcome.name]
    found = decided.run(completion, prompt, decided.args.model_validate(args.outcome.args))
    outcome = found.value if isinstance(found, CheckResult) else found
    p = float(stated[-1]) / 100
    return CheckResult(1 - (p - outcome) ** 2, f"stated {p:.0%}; {args.outcome.name} is {outcome:.2f}")
