"""OpenAI's graders ``string_check``, ``text_similarity`` and ``python`` as checks; the last runs in the sandbox."""

from __future__ import annotations

import json
import math
from typing import Literal

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import TemplateText, fill, openai_sample, template_data
from rubricsvc.graders.model import Program, Range
from workers.checks.answers import Metric, compare, similar
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sandbox.harness import GRADE, run_module
from workers.checks.sandbox.runner import Limits


class Templates(Args):
    """``input`` and ``reference`` are templates."""

    input: TemplateText
    reference: TemplateText

    def filled(self, completion: Completion, prompt: Prompt) -> tuple[str, str]:
        """Return both texts. Raises `PlaceholderError` where a template lacks a variable."""
        names = template_data(prompt, completion)
        return fill(self.input, names), fill(self.reference, names)


class StringCheckArgs(Templates):
    """``operation`` as that of ``string``."""

    operation: Literal["eq", "ne", "like", "ilike"]


@check("string_check", StringCheckArgs)
def string_check(completion: Completion, prompt: Prompt, args: StringCheckArgs) -> float:
    """Return 1 if the comparison holds, else 0."""
    return float(compare(*args.filled(completion, prompt), args.operation))


class TextSimilarityArgs(Templates):
    """``metric`` one of ``similarity``."""

    metric: Metric


@check("text_similarity", TextSimilarityArgs)
def text_similarity(completion: Completion, prompt: Prompt, args: TextSimilarityArgs) -> CheckResult:
    """Return the similarity, 0 to 1."""
    value = similar(*args.filled(completion, prompt), args.metric)
    return CheckResult(value, f"{args.metric} {value:.4f}")


class GradeError(RuntimeError):
    """The grader raised, or returned no number in its range."""


class Grader(Args):
    """``source`` defines ``grade(sample, item) -> float``, as in OpenAI's python grader.

    ``item`` is its second argument, by default the prompt's. ``range`` is the range of its values; it is mapped to 0 to
    1. The other arguments are its limits; ``output_mib`` is the maximum size of any file.
    """

    source: Program
    item: dict[str, JsonValue] | None = None
    range: Range = (0.0, 1.0)
    cpu_s: int = Field(default=10, ge=1, le=600)
    wall_s: float = Field(default=120.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=1024, ge=64, le=65536)
    disk_mib: int = Field(default=32, ge=1, le=65536)
    output_mib: int = Field(default=4, ge=1, le=1024)


@check("python", Grader, version=2)
def python(completion: Completion, prompt: Prompt, args: Grader) -> float:
    """Return the number of ``grade``, mapped from ``range`` to [0, 1].

    Raises:
        GradeError: It raised, exceeded its limits, or returned no number in the range.
        NoSandboxError: There is no sandbox.
    """
    limits = Limits(**args.model_dump(include={"cpu_s", "wall_s", "memory_mib", "disk_mib", "output_mib"}))
    item = args.item if args.item is not None else prompt.item or {}
    given = json.dumps({"sample": openai_sample(completion), "item": item})
    result, (low, high) = run_module("grader", args.source, GRADE, given, limits=limits), args.range
    if not result.ok:
        raise GradeError(f"grade(sample, item) failed: {result.error}")
    try:
        value = float(json.loads(result.stdout))
    except ValueError as error:
        raise GradeError(f"grade(sample, item) ended early; it printed {result.stdout[:80]!r}") from error
    if not math.isfinite(value):
        raise GradeError(f"grade(sample, item) returned {value}")
    if not low <= value <= high:
        hint = f'set the range of the grader: "range": [{min(low, value):g}, {max(high, value):g}]'
        raise GradeError(f"grade(sample, item) returned {value:g}, outside of {low:g} to {high:g}; {hint}")
    return (value - low) / (high - low)
