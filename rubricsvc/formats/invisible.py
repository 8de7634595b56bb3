"""Invisible characters in rubrics: they could hide instructions to the judge from the people who review them."""

from __future__ import annotations

import re
from dataclasses import replace

from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.record import Record

HIDDEN = re.compile("[\u115f\u1160\u180e\u200b\u202a-\u202e\u2060-\u206f\u3164\ufeff\U000e0000-\U000e0fff]")
"""Zero-width spaces, blank letters, overrides of direction, invisible operators, tags. Joiners belong to scripts."""


def without_invisible(record: Record) -> tuple[Record, dict[str, int]]:
    """Return the record with a rubric that is all visible, and the number of characters removed by field."""
    rubric = record.rubric
    if rubric is None or not HIDDEN.search("".join(_texts(rubric))):
        return record, {}
    removed: dict[str, int] = {}
    criteria = []
    for place, criterion in enumerate(rubric.criteria):
        update = {}
        for name in ("text", "reference"):
            text = getattr(criterion, name) or ""
            if count := len(HIDDEN.findall(text)):
                removed[f"criteria[{place}].{name}"] = count
                update[name] = HIDDEN.sub("", text) or "-"
        criteria.append(criterion.model_copy(update=update) if update else criterion)
    return replace(record, rubric=rubric.model_copy(update={"criteria": tuple(criteria)})), removed


def _texts(rubric: Rubric) -> list[str]:
    return [text for one in rubric.criteria for text in (one.text, one.reference or "")]
