"""Placeholders as in OpenAI's graders: ``{{ item.answer }}``, ``{{ sample.output_json.steps[0] }}``.

They are paths into plain data and nothing else: no expression, no call, no attribute. They are filled in one pass, so
that what is filled in stays text, whatever it looks like.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, NoReturn

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import cut

LONGEST = 256_000
"""Characters of a template, and of a grader's program; the limit is OpenAI's."""

MOST = 256
"""Placeholders of a template."""

_MARKS = re.compile(r"\{\{(.*?)(\}\}|\Z)", re.DOTALL)  # to the end where none closes: looked for once, not at each {{
_BEGINS = re.compile(r"\{\{\s*(?:item|sample)\b.*", re.DOTALL)
_PATH = re.compile(r"\s*(item|sample)((?:\.[\w-]+|\[[0-9]{1,6}\])+)\s*")
_INDEX = re.compile(r"[0-9]{1,6}")
_STEP = re.compile(r"[\w-]+")
_SAMPLE = ("output_text", "output_json", "output_tools", "choices")

Names = Mapping[str, JsonValue]
"""``item`` and ``sample``."""


class PlaceholderError(ValueError):
    """What a template names is not there; ``reason`` says why."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def _safe(text: str) -> str:
    count = sum(bool(_steps(found)) for found in _MARKS.finditer(text))
    if count > MOST:
        raise ValueError(f"a template has at most {MOST} placeholders, found {count}")
    return text


Template = Annotated[str, Field(max_length=LONGEST), AfterValidator(_safe)]
"""A text with placeholders, each of them a path. Anything else in ``{{ }}`` is refused, and a path that none closes."""


def _steps(found: re.Match[str]) -> tuple[str, ...]:
    """``item.rows[0]`` as ("item", "rows", "0"); none where braces are text: nothing closes them, and no path begins.

    Raises:
        ValueError: it is no path, is not closed, or begins with what there is not.
    """
    if not found[2]:
        if begun := _BEGINS.search(found[0]):
            raise ValueError(f"unsafe template {cut(begun[0], 80)}: no }}}} closes it")
        return ()
    path = _PATH.fullmatch(found[1])
    steps = (path[1], *_STEP.findall(path[2])) if path else ()
    if not steps or any(step.startswith("__") for step in steps):
        words = "expected a path such as {{item.answer}} or {{sample.output_text}}"
        raise ValueError(f"unsafe template {cut(found[0], 80)}: {words}")
    if steps[0] == "sample" and steps[1] not in _SAMPLE:
        raise ValueError(f"unsafe template {cut(found[0], 80)}: a sample has {', '.join(_SAMPLE)}")
    return steps


def fill(template: str, names: Names) -> str:
    """The template with its placeholders filled: text as it is, everything else as JSON.

    Raises:
        PlaceholderError: the item or the sample has nothing at such a path.
        ValueError: a placeholder is no path.
    """
    return _MARKS.sub(
        lambda found: _written(_look_up(steps, names)) if (steps := _steps(found)) else found[0], template
    )


def _look_up(steps: tuple[str, ...], names: Names) -> JsonValue:
    here: JsonValue = dict(names)
    for number, step in enumerate(steps):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and _INDEX.fullmatch(step) and int(step) < len(here):
            here = here[int(step)]
        else:
            so_far = ".".join(steps[: number + 1])
            raise PlaceholderError(f"{so_far} is not there", Reason.NO_VARIABLE)
        if here is None and steps[: number + 1] == ("sample", "output_json"):
            raise PlaceholderError("sample.output_json: the answer is not JSON", Reason.NOT_JSON)
    return here


def _written(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def names_of(prompt: Prompt, completion: Completion) -> dict[str, JsonValue]:
    """What the templates of a grader see: the prompt's item, and the completion as OpenAI's sample."""
    return {"item": prompt.item or {}, "sample": sample_of(completion)}


def sample_of(completion: Completion) -> dict[str, JsonValue]:
    """The completion as OpenAI's sample. ``output_json`` is None where the text is not JSON.

    ``output_tools`` are the calls of a trajectory's last assistant message.
    """
    last = next((message for message in reversed(completion.messages) if message.role == "assistant"), None)
    tools: list[JsonValue] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in (last and last.tool_calls) or ()
    ]
    message: dict[str, JsonValue] = {"role": "assistant", "content": completion.text, "tool_calls": tools}
    choice: JsonValue = {"index": 0, "finish_reason": "tool_calls" if tools else "stop", "message": message}
    return {
        "output_text": completion.text,
        "output_json": _json(completion.text),
        "output_tools": tools,
        "choices": [choice],
    }


def _json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value


def _finite(digits: str) -> float:
    """Raises ValueError for 1e999, which would be infinite."""
    return float(digits) if math.isfinite(float(digits)) else _no_number(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
