"""IFEval (arXiv 2311.07911) and IFBench (arXiv 2507.02833): JSONL with a prompt and the instructions it must follow.

Each instruction becomes a criterion of weight 1 with the check ``ifeval``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.fields import ForeignModel, Text, build, rows
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Record


class _Line(ForeignModel):  # type: ignore[no-redef]  # a field named kwargs, and mypy thinks of those of __init__
    key: Text | int
    prompt: Text
    instruction_id_list: Annotated[list[Text], Field(min_length=1)]
    kwargs: list[dict[str, JsonValue]]


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each valid line; errors are added to ``file.errors``."""
    errors = file.errors
    for line, location in rows(_Line, file):
        if len(line.kwargs) != len(line.instruction_id_list):
            expected = f"expected one for each of the {len(line.instruction_id_list)} instructions"
            errors.add(location, "length", f"{expected}, found {len(line.kwargs)}", ("kwargs",))
            continue
        pairs = zip(line.instruction_id_list, line.kwargs, strict=True)
        criteria = [_criterion(n, name, given) for n, (name, given) in enumerate(pairs, start=1)]
        names = {"criteria": "instruction_id_list"}
        rubric = build(Rubric, {"criteria": criteria}, location, errors, names=names)
        if rubric is not None:
            name = rubric_name(f"ifeval-{line.key}")
            yield Record(Prompt.of(line.prompt), rubric, id=str(line.key), name=name, location=location)


def _criterion(number: int, instruction: str, given: dict[str, JsonValue]) -> dict[str, Any]:
    kwargs = {name: value for name, value in given.items() if value is not None}
    arguments = ", ".join(f"{name}={value}" for name, value in kwargs.items())
    return {
        "key": f"{number}-{instruction}",
        "text": f"Follows the instruction {instruction}" + (f" ({arguments})." if arguments else "."),
        "check": {"name": "ifeval", "args": {"instruction_id": instruction, "kwargs": kwargs}},
        "tags": [instruction.partition(":")[0]],
    }
