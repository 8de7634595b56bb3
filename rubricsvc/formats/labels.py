"""Labels by themselves: native JSONL, one a line, of completions and rubrics that are in the database.

A line has ``completion_id``, ``rubric`` (id, name, name@version or digest), ``criterion`` (a key, or ``overall``),
``annotator``, ``value`` (0 to 1, true, false, a level's name, or null: cannot tell) and optionally ``note``. `rubricsvc
label export` writes such lines, with the rubric's id beside its name: ``rubric_id`` is for the reader, and not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rubricsvc.core.label import OVERALL, Label
from rubricsvc.core.rubric import Rubric, level_value
from rubricsvc.core.validation_messages import describe
from rubricsvc.formats.documents import documents, parsed
from rubricsvc.formats.errors import Faults, Place
from rubricsvc.formats.fields import build, unknown_fields
from rubricsvc.formats.source import Source

FIELDS = ("completion_id", "rubric", "rubric_id", *Label.model_fields)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label, and what it is a label of. With a ``level`` the label has no value yet: the rubric knows its worth."""

    completion_id: int
    rubric: int | str
    label: Label
    level: str | None
    place: Place

    def valued(self, rubric: Rubric) -> Label:
        """The label, with what its level is worth under its rubric.

        Raises:
            InvalidError: there is no such level; ``path`` names the field.
        """
        criterion = rubric.by_key.get(self.label.criterion)
        if self.level is None or (criterion is None and self.label.criterion != OVERALL):
            return self.label  # a criterion that is not there is refused by the store
        value = level_value(criterion.scale if criterion else None, self.level)
        return self.label.model_copy(update={"value": value})


def fits(source: Source) -> bool:
    """Whether the first record is a label by itself.

    Raises:
        FormatError: the file cannot be read at all.
    """
    first, _ = next(documents(source, Faults()), (None, None))
    return isinstance(first, dict) and {"completion_id", "annotator"} <= first.keys()


def read(source: Source, faults: Faults) -> Iterator[Labelled]:
    """The file's labels; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    return parsed(source, faults, _parse)


def _parse(data: Any, place: Place, faults: Faults) -> Labelled | None:
    before = faults.count
    if not isinstance(data, dict):
        faults.add(place, f"expected a mapping with completion_id, criterion and value, found {describe(data)}")
        return None
    unknown_fields(data, FIELDS, place, faults, ())
    completion_id, rubric = data.get("completion_id"), data.get("rubric")
    if isinstance(completion_id, bool) or not isinstance(completion_id, int):
        faults.add(place, f"expected a completion's id, found {describe(completion_id)}", ("completion_id",))
    if isinstance(rubric, bool) or not isinstance(rubric, int | str):
        faults.add(place, f"expected a rubric's id or name, found {describe(rubric)}", ("rubric",))
    if "value" not in data:
        faults.add(place, "is missing; null says that the person could not tell", ("value",))
    fields = {name: data[name] for name in Label.model_fields if name in data}
    level = fields.pop("value") if isinstance(fields.get("value"), str) else None
    if isinstance(fields.get("value"), bool):
        fields["value"] = float(fields["value"])
    label = build(Label, fields, place, faults)
    if label is None or faults.count > before:
        return None
    return Labelled(int(completion_id or 0), rubric or 0, label, level, place)
