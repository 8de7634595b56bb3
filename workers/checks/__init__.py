"""Criteria that need no model: a name in ``Criterion.check``, a function that gives a number in [0, 1].

To add one, write a function with a pydantic model for its arguments, in a module that is imported below::

    class MyArgs(Args):
        n: int

    @check("my_check", MyArgs)
    def my_check(completion: Completion, prompt: Prompt, args: MyArgs) -> float: ...

Return a ``CheckResult`` to give reasons beside the number. `docs/checks.md` lists every check.
Raise ``version`` when the same arguments begin to give another number: it is part of the verdicts' fingerprint.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from pydantic import ValidationError

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError, RubricsvcError
from workers.checks import (  # noqa: F401 - they register their checks
    cheating,
    citations,
    code,
    graders,
    ifbench,
    ifeval,
    instructions,
    loop_detection,
    maths,
    python_grader,
    schema,
    similarity,
    structure,
    text,
)
from workers.checks.registry import CHECKS, Args, CheckResult, CheckType
from workers.checks.sandbox.runner import NoSandboxError


@dataclass(frozen=True, slots=True)
class _Prepared:
    criterion: Criterion
    function: CheckType | None
    args: Args | None
    problem: str = ""


def validate(rubric: Rubric) -> None:
    """See that every check of a rubric exists and understands its arguments.

    Raises:
        InvalidError: one does not; ``path`` names the criterion.
    """
    for number, criterion in enumerate(rubric.criteria):
        if criterion.check is not None:
            try:
                _arguments(criterion.check)
            except InvalidError as error:
                path = f"criteria.{number}.check.{error.path}"
                raise InvalidError(f"criterion {criterion.key!r}: {error}", hint=error.hint, path=path) from error


def version_of(name: str) -> int | None:
    """Return the version of a check; None where there is no such check."""
    return CHECKS[name].version if name in CHECKS else None


def run(rubric: Rubric, prompt: Prompt, completion: Completion, *, settled: Container[str] = ()) -> list[Verdict]:
    """A verdict for each checked criterion that is not settled. One that breaks, or means to exit, is ``failed``."""
    return [
        _verdict(prepared, prompt, completion) for prepared in _prepare(rubric) if prepared.criterion.key not in settled
    ]


def _verdict(prepared: _Prepared, prompt: Prompt, completion: Completion) -> Verdict:
    key = prepared.criterion.key
    if prepared.function is None:
        return Verdict.failed(key, Reason.CHECK_ERROR, detail=prepared.problem)
    try:
        found = prepared.function.run(completion, prompt, prepared.args)
        value, rationale = (found.value, found.rationale) if isinstance(found, CheckResult) else (found, None)
        return Verdict.scored(key, value, rationale=rationale)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever breaks in a check is that criterion's failure, and only its
        hint = f"; {error.hint}" if isinstance(error, RubricsvcError) and error.hint else ""
        detail = f"{prepared.function.name}: {type(error).__name__}: {error}{hint}"
        return Verdict.failed(key, _reason(error), detail=detail)


def _reason(error: BaseException) -> Reason:
    if isinstance(error, PlaceholderError):
        return error.reason
    return Reason.NO_SANDBOX if isinstance(error, NoSandboxError) else Reason.CHECK_ERROR


@lru_cache(maxsize=512)
def _prepare(rubric: Rubric) -> tuple[_Prepared, ...]:
    return tuple(_prepared(criterion, criterion.check) for criterion in rubric.criteria if criterion.check)


def _prepared(criterion: Criterion, asked: Check) -> _Prepared:
    try:
        return _Prepared(criterion, *_arguments(asked))
    except InvalidError as error:
        return _Prepared(criterion, None, None, problem=f"{error}; {error.hint}")


def named(name: str) -> CheckType:
    """The check of that name.

    Raises:
        InvalidError: there is none.
    """
    if name not in CHECKS:
        near = get_close_matches(name, CHECKS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(CHECKS))}"
        raise InvalidError(f"unknown check {name!r}", hint=hint, path="name")
    return CHECKS[name]


def _arguments(asked: Check) -> tuple[CheckType, Args]:
    function = named(asked.name)
    try:
        return function, function.args.model_validate(asked.args)
    except ValidationError as error:
        where, words = first_error(error, quoted=False, model=function.args)
        path = f"args.{where}" if where else "args"
        names = (field.alias or name for name, field in function.args.model_fields.items())
        hint = f"{asked.name} takes {', '.join(names)}"
        raise InvalidError(f"check {asked.name!r}: {words} ({path})", hint=hint, path=path) from error
