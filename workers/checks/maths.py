"""The check ``math``: mathematical answers, compared by math-verify."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sandbox.child_process import Child

_verifier = Child(
    "comparison",
    """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
def answer(expected, text, digits):
    import logging
    from math_verify import parse, verify
    logging.disable(logging.CRITICAL)
    marked = any(mark in expected for mark in ("$", "\\\\boxed", "\\\\(", "\\\\["))
    gold = parse(expected if marked else f"${expected}$", parsing_timeout=None) or parse(expected, parsing_timeout=None)
    if not gold:
        raise ValueError(f"{expected!r} is not mathematics")
    parsed = parse(text, parsing_timeout=None)
    met = verify(gold, parsed, float_rounding=digits, timeout_seconds=None)
    return [bool(met), str(parsed[-1]) if parsed else None]
""",
)


class Math(Args):
    """``answer``: the right answer, in LaTeX or plain, by default the prompt's reference. ``digits``: of decimals."""

    answer: str | None = Field(default=None, min_length=1)
    digits: int = Field(default=6, ge=0, le=15)
    timeout_s: float = Field(default=10.0, gt=0.0, le=600.0)


@check("math", Math)
def math(completion: Completion, prompt: Prompt, args: Math) -> CheckResult:
    """Return 1 if the last mathematical answer of the text (the boxed one first) equals the right one, else 0."""
    expected = args.answer if args.answer is not None else prompt.reference
    if expected is None:
        raise ValueError("no answer to compare with: give `answer`, or the prompt a reference")
    met, answer = _verifier.ask(expected, completion.text, args.digits, timeout_s=args.timeout_s)
    return CheckResult(float(met), f"the answer found is {answer}" if answer is not None else "no answer found")
