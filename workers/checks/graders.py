"""OpenAI's graders ``string_check`` and ``text_similarity`` as checks: two templates, filled and compared.

OpenAI's ``python`` is in `python_grader`.
"""

from __future__ import annotations

from typing import Literal

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import TemplateText, fill, template_data
from workers.checks.registry import Args, CheckResult, check
from workers.checks.similarity import Metric, similar
from workers.checks.text import compare


class StringCheckArgs(Args):
    """``input`` and ``reference`` are templates; ``operation`` as that of ``string``."""

    input: TemplateText
    reference: TemplateText
    operation: Literal["eq", "ne", "like", "ilike"]


@check("string_check", StringCheckArgs)
def string_check(completion: Completion, prompt: Prompt, args: StringCheckArgs) -> float:
    """Return 1 if the comparison holds, else 0. Raises `PlaceholderError` where a template lacks a variable."""
    names = template_data(prompt, completion)
    return float(compare(fill(args.input, names), fill(args.reference, names), args.operation))


class TextSimilarityArgs(Args):
    """``input`` and ``reference`` are templates; ``metric`` one of ``similarity``."""

    input: TemplateText
    reference: TemplateText
    metric: Metric


@check("text_similarity", TextSimilarityArgs)
def text_similarity(completion: Completion, prompt: Prompt, args: TextSimilarityArgs) -> CheckResult:
    """Return the similarity, 0 to 1. Raises `PlaceholderError` where a template lacks a variable."""
    names = template_data(prompt, completion)
    value = similar(fill(args.input, names), fill(args.reference, names), args.metric)
    return CheckResult(value, f"{args.metric} {value:.4f}")
