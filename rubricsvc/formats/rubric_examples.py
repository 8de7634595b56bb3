"""The examples of a rubric in our own format, with their short forms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, example_errors, level_value
from rubricsvc.core.rubric_example import MAX_EXAMPLES, RubricExample
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.record import Entry


def read(entry: Entry, given: Any, criteria: Mapping[str, Criterion]) -> tuple[RubricExample, ...] | None:
    """Return the examples of a record; what is wrong with them is added to the entry.

    A verdict may be a level of the criterion's scale, true or false; a prompt may be a text.
    """
    if not isinstance(given, list) or len(given) > MAX_EXAMPLES:
        entry.expected("list_type", f"a list of at most {MAX_EXAMPLES} examples", given, ("examples",))
        return None
    examples = []
    for number, item in enumerate(given):
        if not isinstance(item, dict):
            entry.expected("dict_type", "a mapping", item, ("examples", number))
            continue
        fields = {"key": f"e{number + 1}", **_expanded(entry, item, number, criteria)}
        with suppress(InvalidFileError):  # the entry has the error
            examples.append(entry.build(RubricExample, fields, ("examples", number)))
    if len(examples) == len(given):
        for path, message in example_errors(examples, criteria):
            code = "unknown_criterion" if message.startswith("unknown criterion") else "value_error"
            entry.add(code, message, path)
    return tuple(examples) or None


def _expanded(entry: Entry, item: dict[str, Any], number: int, criteria: Mapping[str, Criterion]) -> dict[str, Any]:
    """Return the fields of an example without short forms."""
    fields = dict(item)
    prompt = item.get("prompt")
    if isinstance(prompt, str):
        fields["prompt"] = {"messages": [{"role": "user", "content": prompt.removesuffix("\n")}]}
    elif isinstance(prompt, list):
        fields["prompt"] = {"messages": prompt}
    if isinstance(item.get("verdicts"), dict):
        fields["verdicts"] = {}
        for key, value in item["verdicts"].items():
            try:
                fields["verdicts"][key] = _verdict(value, criteria.get(key))
            except InvalidError as error:
                entry.add("unknown_level", str(error), ("examples", number, "verdicts", key))
                fields["verdicts"][key] = {"min": 0.0}  # so that it is not reported again
    if isinstance(item.get("evidence"), dict):
        fields["evidence"] = {
            key: [quotes] if isinstance(quotes, str) else quotes for key, quotes in item["evidence"].items()
        }
    return fields


def _verdict(value: Any, criterion: Criterion | None) -> Any:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and criterion is not None:
        return level_value(criterion.scale, value)
    return value


def plain(example: RubricExample) -> dict[str, Any]:
    """Return an example as plain data that `read` returns equal."""
    fields = example.model_dump(mode="json", exclude_defaults=True)
    if example.prompt is not None and example.prompt == Prompt.of(example.prompt.text):
        fields["prompt"] = example.prompt.text
        if example.prompt.text.endswith("\n"):
            fields["prompt"] += "\n"
    for key, expected in (example.verdicts or {}).items():
        if expected.number is not None:
            fields["verdicts"][key] = _short(expected.number)
    if example.reward is not None and example.reward.number is not None:
        fields["reward"] = _short(example.reward.number)
    return fields


def _short(number: float) -> float:
    return int(number) if number.is_integer() else number
