"""Labels without records: JSONL, one a line, of completions and rubrics that are in the database.

A line has ``completion_id``, ``rubric`` (id, name, name@version or digest), ``criterion`` (a key, or ``overall``),
``annotator``, ``value`` (0 to 1, true, false, a level's name, or null: cannot tell) and optionally ``note``. `rubricsvc
labels export` writes such lines, with the rubric's id beside its name: ``rubric_id`` is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rubricsvc.core.base import Value
from rubricsvc.core.label import OVERALL, Label
from rubricsvc.core.rubric import Rubric, level_value
from rubricsvc.formats.errors import Location
from rubricsvc.formats.record import Entry

FIELDS = ("completion_id", "rubric", "rubric_id", *Label.model_fields)


class LabelLine(Value):
    """A label, and the completion and the rubric that it belongs to.

    With a ``level`` the label has no value yet: the rubric defines the value of its levels.
    """

    completion_id: int
    rubric: int | str
    label: Label
    level: str | None = None

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


def read(entry: Entry) -> Iterator[tuple[LabelLine, Location]]:
    """Yield the label; what is wrong with it is added to the entry."""
    data = entry.mapping(FIELDS)
    if "value" not in data:
        entry.add("missing", "is missing; write null if the person could not tell", ("value",))
    fields: dict[str, Any] = {name: data[name] for name in ("completion_id", "rubric") if name in data}
    label = {name: data[name] for name in Label.model_fields if name in data}
    if isinstance(label.get("value"), str):
        fields["level"] = label.pop("value")
    elif isinstance(label.get("value"), bool):
        label["value"] = float(label["value"])
    yield entry.build(LabelLine, {**fields, "label": label}, nested={"label": {}}), entry.location
