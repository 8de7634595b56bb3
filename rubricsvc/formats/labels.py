"""Labels without records: JSONL, YAML or CSV, one a line, of completions and rubrics that are in the database.

A line has ``completion_id`` (a number is an id in the database; a text is the id that it came with, of the prompt
``prompt_id``), ``rubric`` (id, name, name@version or digest), ``criterion`` (a key, or ``overall``), ``annotator``,
``value`` (0 to 1, true, false, a level's name, or null: cannot tell) and optionally ``note``. `rubricsvc labels export`
writes such lines with the digests of prompt, completion and rubric, which must fit: ids and versions differ between
databases. ``rubric_id``, beside the rubric's name, is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rubricsvc.core.label import Label
from rubricsvc.formats.errors import Location
from rubricsvc.formats.record import Entry, GivenLabel

_DIGESTS = ("prompt_digest", "completion_digest", "rubric_digest")
_REFERENCES = ("completion_id", "prompt_id", "rubric", *_DIGESTS)
FIELDS = (*_REFERENCES, "rubric_id", *Label.model_fields)


class LabelLine(GivenLabel):
    """A label, and the completion and the rubric that it belongs to.

    A ``completion_id`` that is a number is an id in the database; a text is the one that the completion came with.
    With digests of prompt and completion, these name the completion; the ids may be those of another database.
    """

    completion_id: int | str
    prompt_id: int | str | None = None
    rubric: int | str
    prompt_digest: str | None = None
    completion_digest: str | None = None
    rubric_digest: str | None = None


def matches(first: Any) -> bool:
    """Return whether a file with this first record holds labels by themselves."""
    return isinstance(first, dict) and "annotator" in first and "completion_id" in first


def read(entry: Entry) -> Iterator[tuple[LabelLine, Location]]:
    """Yield the label; what is wrong with it is added to the entry."""
    data = entry.mapping(FIELDS)
    if entry.is_csv and "prompt_id" not in data and (id_ := data.get("completion_id", "")).isdecimal():
        data = data | {"completion_id": int(id_)}
    if "value" not in data:
        entry.add("missing", "is missing; write null if the person could not tell", ("value",))
    if ("prompt_digest" in data) != ("completion_digest" in data):
        missing = "completion_digest" if "prompt_digest" in data else "prompt_digest"
        entry.add("missing", "is missing: a completion is named by both digests", (missing,))
    if isinstance(completion_id := data.get("completion_id"), int | str):
        if isinstance(completion_id, str) and data.get("prompt_id") is None:
            entry.add("missing", "is missing beside a completion_id that is a text: an id of the file", ("prompt_id",))
        elif isinstance(completion_id, int) and "prompt_id" in data:
            message = f"{completion_id} is an id in the database; write it as a text, or remove prompt_id"
            entry.add("invalid", message, ("completion_id",))
    fields: dict[str, Any] = {name: data[name] for name in _REFERENCES if name in data}
    label = {name: data[name] for name in Label.model_fields if name in data}
    if isinstance(label.get("value"), str):
        fields["level"] = label.pop("value")
    elif isinstance(label.get("value"), bool):
        label["value"] = float(label["value"])
    yield entry.build(LabelLine, {**fields, "label": label}, nested={"label": {}}), entry.location
