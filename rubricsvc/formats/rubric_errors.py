"""Errors in a rubric that its fields alone do not have: in its formula, its checks and its examples."""

from __future__ import annotations

from collections.abc import Iterator

from rubricsvc.core import reward
from rubricsvc.core.formulas import FormulaError
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FieldError, Location
from rubricsvc.formats.record import RubricCheck


def rubric_errors(rubric: Rubric, location: Location, check: RubricCheck | None) -> Iterator[FieldError]:
    """Yield the errors in the formula and in the checks of a rubric with valid fields."""
    try:
        reward.check_formula(rubric)
    except FormulaError as error:
        yield location.error("formula", str(error), ("formula",))
    yield from _check_errors(rubric, location, check)
    for path, message in reward.example_reward_errors(rubric):
        yield location.error("value_error", message, path)


def _check_errors(rubric: Rubric, location: Location, check: RubricCheck | None) -> Iterator[FieldError]:
    for number, criterion in enumerate(rubric.criteria):
        if check is None or criterion.check is None:
            continue
        try:
            check(Rubric.model_construct(criteria=(criterion,)))  # one by one, to report every error
        except InvalidError as error:
            steps = [int(step) if step.isdecimal() else step for step in error.path.split(".")[2:]]
            short = ("check", criterion.check.name)  # written as {name: {arguments}}
            if (*location.root, "criteria", number, *short) in location.positions:
                steps[:2] = short
            yield location.error("check", f"{error}; {error.hint}", ("criteria", number, *steps))
