"""Labels without records: JSONL, one a line, of completions and rubrics that are in the database.

A line has ``completion_id``, ``rubric`` (id, name, name@version or digest), ``criterion`` (a key, or ``overall``),
``annotator``, ``value`` (0 to 1, true, false, a level's name, or null: cannot tell) and optionally ``note``. `rubricsvc
labels export` writes such lines, with the rubric's id beside its name: ``rubric_id`` is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rubricsvc.core.label import OVERALL, Label
from rubricsvc.core.rubric import Rubric, level_value
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.fields import build, check_fields
from rubricsvc.formats.input_file import InputFile

FIELDS = ("completion_id", "rubric", "rubric_id", *Label.model_fields)


@dataclass(frozen=True, slots=True)
class LabelLine:
    """A label, and the completion and the rubric that it belongs to.

    With a ``level`` the label has no value yet: the rubric defines the value of its levels.
    """

    completion_id: int
    rubric: int | str
    label: Label
    level: str | None
    location: Location

    def resolve(self, rubric: Rubric) -> Label:
        """Return the label with the value that its level has in the rubric.

        Raises:
            InvalidError: the level is unknown; ``path`` names the field.
        """
        criterion = rubric.by_key.get(self.label.criterion)
        if self.level is None or (criterion is None and self.label.criterion != OVERALL):
            return self.label  # the store rejects unknown criteria
        value = level_value(criterion.scale if criterion else None, self.level)
        return self.label.model_copy(update={"value": value})


def matches(first: Any) -> bool:
    """Return whether a file with this first record holds labels by themselves."""
    return isinstance(first, dict) and {"completion_id", "annotator"} <= first.keys()


def read(file: InputFile) -> Iterator[LabelLine]:
    """Yield the valid labels; what is wrong with the others is added to ``file.errors``."""
    return file.parse(_parse)


def _parse(data: Any, location: Location, errors: FileErrors) -> LabelLine | None:
    before = errors.count
    if not isinstance(data, dict):
        errors.expected(location, "dict_type", "a mapping with completion_id, criterion and value", data)
        return None
    check_fields(data, FIELDS, location, errors)
    completion_id, rubric = data.get("completion_id"), data.get("rubric")
    if isinstance(completion_id, bool) or not isinstance(completion_id, int):
        errors.expected(location, "id_type", "the id of a completion", completion_id, ("completion_id",))
    if isinstance(rubric, bool) or not isinstance(rubric, int | str):
        errors.expected(location, "id_type", "the id or the name of a rubric", rubric, ("rubric",))
    if "value" not in data:
        errors.add(location, "missing", "is missing; write null if the person could not tell", ("value",))
    fields = {name: data[name] for name in Label.model_fields if name in data}
    level = fields.pop("value") if isinstance(fields.get("value"), str) else None
    if isinstance(fields.get("value"), bool):
        fields["value"] = float(fields["value"])
    label = build(Label, fields, location, errors)
    if label is None or errors.count > before:
        return None
    return LabelLine(int(completion_id or 0), rubric or 0, label, level, location)
