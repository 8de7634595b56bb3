"""IFEval (arXiv 2311.07911) and IFBench (arXiv 2507.02833): JSONL with a prompt and the instructions it must follow.

Each instruction becomes a criterion of weight 1 with the check ``ifeval``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults, Place, Renamed
from rubricsvc.formats.fields import Foreign, build
from rubricsvc.formats.native import usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

Text = Annotated[str, Field(min_length=1)]


class _Line(Foreign):  # type: ignore[no-redef]  # a field named kwargs, and mypy thinks of those of __init__
    key: Text | int
    prompt: Text
    instruction_id_list: Annotated[list[Text], Field(min_length=1)]
    kwargs: list[dict[str, JsonValue]]


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """One record a line; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    for data, place in documents(source, faults):
        line = build(_Line, data, place, faults)
        if line is None:
            continue
        if len(line.kwargs) != len(line.instruction_id_list):
            expected = f"expected one for each of the {len(line.instruction_id_list)} instructions"
            faults.add(place, f"{expected}, found {len(line.kwargs)}", ("kwargs",))
            continue
        record = _record(line, place, faults)
        if record is not None:
            yield record


def _record(line: _Line, place: Place, faults: Faults) -> Record | None:
    pairs = zip(line.instruction_id_list, line.kwargs, strict=True)
    criteria = [_criterion(n, name, given) for n, (name, given) in enumerate(pairs, start=1)]
    prompt = Prompt.of(line.prompt)
    rubric = build(Rubric, {"criteria": criteria}, place, Renamed(faults, {"criteria": "instruction_id_list"}))
    name = usable_name(f"ifeval-{line.key}")
    return None if rubric is None else Record(prompt, rubric, id=str(line.key), name=name, place=place)


def _criterion(number: int, instruction: str, given: dict[str, JsonValue]) -> dict[str, Any]:
    kwargs = {name: value for name, value in given.items() if value is not None}
    said = ", ".join(f"{name}={value}" for name, value in kwargs.items())
    return {
        "key": f"{number}-{instruction}",
        "text": f"Follows the instruction {instruction}" + (f" ({said})." if said else "."),
        "check": {"name": "ifeval", "args": {"instruction_id": instruction, "kwargs": kwargs}},
        "tags": [instruction.partition(":")[0]],
    }
