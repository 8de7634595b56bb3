"""Invisible characters in rubrics: they could hide instructions to the judge from the people who review them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from rubricsvc.core.rubric import Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.record import Record

HIDDEN = re.compile(
    "[\u115f\u1160\u180b-\u180f\u200b\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Zero-width spaces, blank letters, overrides of direction, invisible operators, tags, variation selectors.

Fewer than `rubricsvc.core.untrusted.INVISIBLE`: an import is not the place to judge joiners and soft hyphens.
"""
_KEPT = frozenset({"key", "expression", "check", "examples"})
"""Fields that are left as they are: names that others refer to, arguments of checks, and completions."""


def without_invisible(record: Record) -> tuple[Record, dict[FieldPath, int]]:
    """Return the record with a rubric that is all visible, and the number of characters removed by field."""
    rubric = record.rubric
    if rubric is None or not HIDDEN.search(rubric.model_dump_json()):
        return record, {}
    removed: Counter[FieldPath] = Counter()
    cleaned = _cleaned(rubric.model_dump(mode="json", exclude_none=True), (), removed)
    return (replace(record, rubric=Rubric.model_validate(cleaned)) if removed else record), removed


def _cleaned(data: Any, path: FieldPath, removed: Counter[FieldPath]) -> Any:
    if isinstance(data, str):
        if count := len(HIDDEN.findall(data)):
            removed[path] = count
            return HIDDEN.sub("", data) or "-"
        return data
    if isinstance(data, list):
        return [_cleaned(item, (*path, place), removed) for place, item in enumerate(data)]
    if isinstance(data, dict):
        return {key: item if key in _KEPT else _cleaned(item, (*path, key), removed) for key, item in data.items()}
    return data
