"""Checks: criteria that need no model. ``Criterion.check`` names a function that returns a number in [0, 1].

To add a check, write a function with a pydantic model for its arguments, and name it in ``CHECKS``::

    class MyArgs(Args):
        n: int

    def my_check(completion: Completion, prompt: Prompt, args: MyArgs) -> float: ...

Return a ``CheckResult`` to add a rationale. `docs/checks.md` lists every check. Increase the version when the same
arguments give another value: it is part of the fingerprint of verdicts.
"""

from collections.abc import Container
from difflib import get_close_matches
from functools import partial

from pydantic import ValidationError

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.validation_messages import error_text, first_error
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError, RubricsvcError
from workers.checks import actions, answers, citations, code, instructions, text
from workers.checks.registry import Args, CheckResult, CheckType
from workers.checks.sandbox.child_process import ChildError
from workers.checks.sandbox.runner import NoSandboxError

CHECKS: dict[str, CheckType] = {
    "valid_calls": CheckType(1, actions.ValidCalls, actions.valid_calls),
    "invented_actions": CheckType(1, actions.InventedActions, actions.invented_actions),
    "string": CheckType(1, answers.String, answers.string),
    "math": CheckType(3, answers.Math, answers.math_answer),
    "similarity": CheckType(1, answers.Similarity, answers.similarity),
    "string_check": CheckType(1, answers.StringCheck, answers.string),
    "text_similarity": CheckType(1, answers.TextSimilarity, answers.similarity),
    "python": CheckType(2, answers.Grader, answers.python),
    "cites": CheckType(6, citations.Cites, citations.cites),
    "quotes": CheckType(10, citations.Quotes, citations.quotes),
    "supported": CheckType(6, citations.Supported, citations.supported),
    "cites_pages": CheckType(2, citations.CitesPages, citations.cites_pages),
    "mentions": CheckType(2, citations.Mentions, citations.mentions),
    "copied": CheckType(2, citations.Copied, citations.copied),
    "code": CheckType(5, code.Code, code.code),
    "code_cheating": CheckType(9, code.CodeCheating, code.code_cheating),
    "ifeval": CheckType(1, instructions.IFEval, instructions.ifeval),
    "headings": CheckType(2, text.Headings, text.counted),
    "tables": CheckType(2, text.Tables, text.counted),
    "lists": CheckType(2, text.Lists, text.counted),
    "format": CheckType(2, text.Format, text.format_),
    "language": CheckType(1, text.Language, text.language),
    "json_schema": CheckType(1, text.JsonSchema, text.json_schema),
    "contains": CheckType(2, text.Contains, text.contains),
    "regex": CheckType(1, text.Regex, text.regex),
    "distinct": CheckType(3, text.Distinct, text.distinct),
    "loops": CheckType(1, Args, text.loops),
}
"""The checks by name; each with its version."""

CHECKS |= {name: CheckType(3, text.Span, partial(text.counted, of=count)) for name, count in text.COUNTS.items()}


def validate(rubric: Rubric) -> None:
    """Check that every check of a rubric exists and accepts its arguments."""
    for number, criterion in enumerate(rubric.criteria):
        if criterion.check is not None:
            try:
                _arguments(criterion.check)
            except InvalidError as error:
                path = f"criteria.{number}.check.{error.path}"
                raise InvalidError(f"criterion {criterion.key!r}: {error}", hint=error.hint, path=path) from error


def run(rubric: Rubric, prompt: Prompt, completion: Completion, *, answered: Container[str] = ()) -> list[Verdict]:
    """Return a verdict for each checked criterion that is not answered. A check that raises or exits is ``failed``."""
    return [
        _verdict(criterion.key, criterion.check, prompt, completion)
        for criterion in rubric.criteria
        if criterion.check is not None and criterion.key not in answered
    ]


def value_of_empty(criterion: Criterion, prompt: Prompt | None) -> float | None:
    """Return the value that the check of a criterion gives an empty completion.

    None where the check fails, has no prompt that it needs, or would run code.
    """
    if criterion.check is None or criterion.check.name in ("code", "code_cheating", "python"):
        return None
    return _verdict(criterion.key, criterion.check, prompt or Prompt.of("-"), Completion(text="")).value


def _verdict(key: str, given: Check, prompt: Prompt, completion: Completion) -> Verdict:
    try:
        check, args = _arguments(given)
        result = check.run(completion, prompt, args)
        value, rationale = (result.value, result.rationale) if isinstance(result, CheckResult) else (result, None)
        return Verdict.scored(key, value, rationale=rationale)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of a check fails its criterion only
        hint = error.hint if isinstance(error, RubricsvcError) else ""
        if isinstance(error, ImportError) or (isinstance(error, ChildError) and "ModuleNotFoundError" in str(error)):
            hint = "pip install 'rubricsvc[judging]'"
        detail = f"{given.name}: {type(error).__name__}: {error_text(error)}{f'; {hint}' if hint else ''}"
        reason = Reason.NO_SANDBOX if isinstance(error, NoSandboxError) else Reason.CHECK_ERROR
        return Verdict.failed(key, error.reason if isinstance(error, PlaceholderError) else reason, detail=detail)


def _arguments(given: Check) -> tuple[CheckType, Args]:
    if given.name not in CHECKS:
        near = get_close_matches(given.name, CHECKS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(sorted(CHECKS))}"
        raise InvalidError(f"unknown check {given.name!r}", hint=hint, path="name")
    check = CHECKS[given.name]
    try:
        return check, check.args.model_validate(given.args)
    except ValidationError as error:
        field, message = first_error(error, quoted=False, model=check.args)
        path = f"args.{field}" if field else "args"
        hint = f"{given.name} takes {', '.join(one.alias or name for name, one in check.args.model_fields.items())}"
        raise InvalidError(f"check {given.name!r}: {message} ({path})", hint=hint, path=path) from error
