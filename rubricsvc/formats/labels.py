"""Labels without records: JSONL, one a line, of completions and rubrics that are in the database.

A line has ``completion_id`` (a database id), or ``prompt`` and ``completion`` (the ids that they came with). It has
``rubric`` (id, name, name@version or digest), ``criterion`` (a key, or ``overall``), ``annotator``, ``value`` (0 to 1,
true, false, a level's name, or null: cannot tell) and optionally ``note``. `rubricsvc labels export` writes such lines,
with the rubric's id beside its name: ``rubric_id`` is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rubricsvc.core.label import Label
from rubricsvc.formats.errors import Location
from rubricsvc.formats.record import Entry, GivenLabel

_REFERENCES = ("completion_id", "prompt", "completion", "rubric")
FIELDS = (*_REFERENCES, "rubric_id", *Label.model_fields)


class LabelLine(GivenLabel):
    """A label, and the completion and the rubric that it belongs to.

    The completion is ``completion_id``, or the one that came with the id ``completion``, of the prompt that came with
    the id ``prompt``.
    """

    completion_id: int | None = None
    prompt: int | str | None = None
    completion: str | None = None
    rubric: int | str


def matches(first: Any) -> bool:
    """Return whether a file with this first record holds labels by themselves."""
    return isinstance(first, dict) and "annotator" in first and bool(first.keys() & {"completion_id", "completion"})


def read(entry: Entry) -> Iterator[tuple[LabelLine, Location]]:
    """Yield the label; what is wrong with it is added to the entry."""
    data = entry.mapping(FIELDS)
    if "value" not in data:
        entry.add("missing", "is missing; write null if the person could not tell", ("value",))
    if ("completion_id" in data) == ("completion" in data) or ("prompt" in data) != ("completion" in data):
        found = ", ".join(name for name in _REFERENCES[:3] if name in data) or "none"
        entry.add("missing", f"expected completion_id, or prompt and completion, found {found}")
    fields: dict[str, Any] = {name: data[name] for name in _REFERENCES if name in data}
    if type(fields.get("completion")) is int:  # and not bool
        fields["completion"] = str(fields["completion"])
    label = {name: data[name] for name in Label.model_fields if name in data}
    if isinstance(label.get("value"), str):
        fields["level"] = label.pop("value")
    elif isinstance(label.get("value"), bool):
        label["value"] = float(label["value"])
    yield entry.build(LabelLine, {**fields, "label": label}, nested={"label": {}}), entry.location
