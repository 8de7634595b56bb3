"""Errors in a rubric that its fields alone do not have: in its formula and its checks, and those that others hide."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rubricsvc.core import reward
from rubricsvc.core.formulas import FormulaError, formula_for
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.validation_messages import field_messages
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FieldError, Location
from rubricsvc.formats.record import Entry, RubricCheck


def rubric_errors(rubric: Rubric, location: Location, check: RubricCheck | None) -> Iterator[FieldError]:
    """Yield the errors in the formula and in the checks of a rubric with valid fields."""
    yield from _formula_errors(rubric, location)
    yield from _check_errors(enumerate(rubric.criteria), location, check)
    for path, message in reward.example_reward_errors(rubric):
        yield location.error("value_error", message, path)


def _formula_errors(rubric: Rubric, location: Location, *, applies: bool = True) -> Iterator[FieldError]:
    """Yield the error in the formula; without ``applies`` only whether it is known and takes these weights."""
    try:
        if applies:
            reward.check_formula(rubric)
        else:
            formula_for(rubric, rubric.formula)
    except FormulaError as error:
        yield location.error("formula", str(error), ("formula",))


def _check_errors(
    criteria: Iterator[tuple[int, Criterion]], location: Location, check: RubricCheck | None
) -> Iterator[FieldError]:
    if check is None:
        return
    for number, criterion in criteria:
        if criterion.check is None:
            continue
        try:
            check(Rubric.model_construct(criteria=(criterion,)))  # one by one, to report every error
        except InvalidError as error:
            steps = [int(step) if step.isdecimal() else step for step in error.path.split(".")[2:]]
            short = ("check", criterion.check.name if criterion.check else "")  # written as {name: {arguments}}
            if (*location.root, "criteria", number, *short) in location.positions:
                steps[:2] = short
            yield location.error("check", f"{error}; {error.hint}", ("criteria", number, *steps))


def add_hidden_errors(entry: Entry, fields: Mapping[str, Any]) -> dict[str, Criterion]:
    """Add what else is wrong with a rubric whose ``fields`` have errors.

    Fields with errors are given valid values, and the rubric made of these is validated. Return the criteria whose key
    and scale are valid, by key.
    """
    items = fields.get("criteria")
    items = items if isinstance(items, list) else []
    repaired = [_repaired(entry, item, number) for number, item in enumerate(items)]
    valid = [(number, criterion) for number, criterion in enumerate(repaired) if criterion is not None]
    errors = list(_check_errors(iter(valid), entry.location, entry.check))
    others = {name: value for name, value in fields.items() if name != "criteria" and not entry.is_faulty((name,))}
    unknown = [number for number in range(len(items)) if entry.is_faulty(("criteria", number, "key"))]
    calculated = "expression" in fields and (unknown or entry.is_faulty(("expression",)))
    if items and len(valid) == len(items) and not calculated:
        errors += _consistency_errors(entry, others, [criterion for _, criterion in valid])
    entry.errors += [error for error in errors if error not in entry.errors]
    return {
        criterion.key: criterion
        for number, criterion in valid
        if number not in unknown and not entry.is_faulty(("criteria", number, "scale"))
    }


def _repaired(entry: Entry, item: Any, number: int) -> Criterion | None:
    """Return the criterion with valid values in place of its faulty ones; None if it cannot be made."""
    if not isinstance(item, dict):
        return None
    valid = {name: value for name, value in item.items() if not entry.is_faulty(("criteria", number, name))}
    try:
        data = json.dumps({"key": f"criteria[{number}]", "text": "-", **valid})
        return Criterion.model_validate_json(data, strict=True)
    except ValidationError:
        return None


def _consistency_errors(entry: Entry, others: Mapping[str, Any], criteria: list[Criterion]) -> Iterator[FieldError]:
    plain = [criterion.model_dump(mode="json") for criterion in criteria]
    try:
        rubric = Rubric.model_validate_json(json.dumps({**others, "criteria": plain}), strict=True)
    except ValidationError as error:
        for one in field_messages(error):
            yield entry.location.error(one.code, one.message, one.path)
        rubric = Rubric.model_construct(**{**others, "criteria": tuple(criteria), "groups": ()})
        yield from _formula_errors(rubric, entry.location, applies=False)
        return
    if not entry.is_faulty(("groups",)):
        yield from _formula_errors(rubric, entry.location)
