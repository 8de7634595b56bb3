"""Templates as in OpenAI's graders: ``{{ item.answer }}``, ``{{ sample.output_json.steps[0] }}``.

Placeholders are paths into plain data: no expressions, calls or attributes. They are filled in one pass, so that braces
in the data stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import cut

MAX_LENGTH = 256_000
"""Characters of a template or of a grader's program; OpenAI's limit."""

MAX_PLACEHOLDERS = 256
"""Placeholders of a template."""

_MARKS = re.compile(r"\{\{(.*?)(\}\}|\Z)", re.DOTALL)  # to the end if unclosed, so that the end is searched once
_BEGINS = re.compile(r"\{\{\s*(?:item|sample)\b.*", re.DOTALL)
_PATH = re.compile(r"\s*(item|sample)((?:\.[\w-]+|\[[0-9]{1,6}\])+)\s*")
_INDEX = re.compile(r"[0-9]{1,6}")
_STEP = re.compile(r"[\w-]+")
_SAMPLE = ("output_text", "output_json", "output_tools", "choices")


class PlaceholderError(ValueError):
    """A template refers to a missing value; ``reason`` is that of the failed verdict."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def _safe(text: str) -> str:
    count = sum(bool(_steps(mark)) for mark in _MARKS.finditer(text))
    if count > MAX_PLACEHOLDERS:
        raise ValueError(f"a template has at most {MAX_PLACEHOLDERS} placeholders, found {count}")
    return text


TemplateText = Annotated[str, Field(max_length=MAX_LENGTH), AfterValidator(_safe)]
"""A text with placeholders. Anything but a path in ``{{ }}``, and an unclosed path, is invalid."""


def _steps(mark: re.Match[str]) -> tuple[str, ...]:
    """Return ``item.rows[0]`` as ("item", "rows", "0"), and () for braces that are plain text."""
    if not mark[2]:
        if unclosed := _BEGINS.search(mark[0]):
            raise ValueError(f"unsafe template {cut(unclosed[0], 80)}: add }}}} to close it")
        return ()
    path = _PATH.fullmatch(mark[1])
    steps = (path[1], *_STEP.findall(path[2])) if path else ()
    if not steps or any(step.startswith("__") for step in steps):
        expected = "expected a path such as {{item.answer}} or {{sample.output_text}}"
        raise ValueError(f"unsafe template {cut(mark[0], 80)}: {expected}")
    if steps[0] == "sample" and steps[1] not in _SAMPLE:
        raise ValueError(f"unsafe template {cut(mark[0], 80)}: expected one of {', '.join(_SAMPLE)}")
    return steps


def fill(template: str, data: Mapping[str, JsonValue]) -> str:
    """Return the template with its placeholders filled: text as it is, everything else as JSON.

    Raises:
        PlaceholderError: The item or the sample has no value at such a path.
        ValueError: A placeholder is not a path.
    """

    def filled(mark: re.Match[str]) -> str:
        steps = _steps(mark)
        value = _look_up(steps, data) if steps else mark[0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _MARKS.sub(filled, template)


def _look_up(steps: tuple[str, ...], data: Mapping[str, JsonValue]) -> JsonValue:
    here: JsonValue = dict(data)
    for number, step in enumerate(steps):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and _INDEX.fullmatch(step) and int(step) < len(here):
            here = here[int(step)]
        else:
            raise PlaceholderError(f"{'.'.join(steps[: number + 1])} is missing", Reason.NO_VARIABLE)
        if here is None and steps[: number + 1] == ("sample", "output_json"):
            raise PlaceholderError("sample.output_json: the completion is not JSON", Reason.NOT_JSON)
    return here


def template_data(prompt: Prompt, completion: Completion) -> dict[str, JsonValue]:
    """Return what a grader's templates refer to: the prompt's item, and the completion as OpenAI's sample."""
    return {"item": prompt.item or {}, "sample": openai_sample(completion)}


def openai_sample(completion: Completion) -> dict[str, JsonValue]:
    """Return the completion as OpenAI's sample.

    ``output_json`` is None where the text is not JSON; ``output_tools`` are the calls of the last assistant message.
    """
    last = next((message for message in reversed(completion.messages) if message.role == "assistant"), None)
    tools: list[JsonValue] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in (last and last.tool_calls) or ()
    ]
    message: dict[str, JsonValue] = {"role": "assistant", "content": completion.text, "tool_calls": tools}
    choice: JsonValue = {"index": 0, "finish_reason": "tool_calls" if tools else "stop", "message": message}
    try:
        output_json = strict_json.parse(completion.text)
    except strict_json.JsonError:
        output_json = None
    return {"output_text": completion.text, "output_json": output_json, "output_tools": tools, "choices": [choice]}
