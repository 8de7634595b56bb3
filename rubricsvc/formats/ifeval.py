"""IFEval (arXiv 2311.07911): JSONL with a prompt and the instructions it must follow.

Each instruction becomes a criterion of weight 1 with the check ``ifeval``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.foreign import prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text


class _Line(ForeignModel):  # type: ignore[no-redef]  # a field named kwargs, and mypy thinks of those of __init__
    key: int | str
    prompt: Text
    instruction_id_list: Annotated[list[Text], Field(min_length=1)]
    kwargs: list[dict[str, JsonValue]]


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a line."""
    line = entry.build(_Line, entry.data)
    if len(line.kwargs) != len(line.instruction_id_list):
        expected = f"expected one for each of the {len(line.instruction_id_list)} instructions"
        entry.add("length", f"{expected}, found {len(line.kwargs)}", ("kwargs",))
        return
    pairs = zip(line.instruction_id_list, line.kwargs, strict=True)
    rubric = Rubric(criteria=tuple(_criterion(n, name, given) for n, (name, given) in enumerate(pairs, start=1)))
    name = rubric_name(f"ifeval-{line.key}")
    yield Record(Prompt.of(line.prompt), rubric, id=str(line.key), name=name, location=entry.location)


def _criterion(number: int, instruction: str, given: dict[str, JsonValue]) -> Criterion:
    kwargs: dict[str, JsonValue] = {name: value for name, value in given.items() if value is not None}
    arguments = ", ".join(f"{name}={value}" for name, value in kwargs.items())
    return Criterion(
        key=f"{number}-{instruction}",
        text=f"Follows the instruction {instruction}" + (f" ({arguments})." if arguments else "."),
        check=Check(name="ifeval", args={"instruction_id": instruction, "kwargs": kwargs}),
        tags=(instruction.partition(":")[0],),
    )


def dump(record: Record) -> Iterator[Row]:
    """Yield the line of a rubric whose criteria are all instructions."""
    rubric, prompt = rubric_in(record, "ifeval"), prompt_in(record, "ifeval")
    names, kwargs = [], []
    for number, criterion in enumerate(rubric.criteria):
        if criterion.check is None or criterion.check.name != "ifeval":
            message = f"ifeval has instructions only; criterion {criterion.key!r} is none"
            raise InvalidError(message, hint="choose another --format, such as verl", path=f"criteria[{number}].check")
        names.append(criterion.check.args["instruction_id"])
        kwargs.append(criterion.check.args.get("kwargs", {}))
    key = record.id or record.name or "1"
    yield {
        "key": int(key) if key.isdecimal() and str(int(key)) == key else key,
        "prompt": prompt.text,
        "instruction_id_list": names,
        "kwargs": kwargs,
    }
