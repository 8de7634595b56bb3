"""The placeholders of custom prompts and templated checks, filled from a prompt's item and a completion.

All are filled in one pass, so that braces in the data stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import PLACEHOLDER, placeholder_path
from rubricsvc.core.verdict import Reason

_INDEX = re.compile(r"[0-9]{1,6}")


class PlaceholderError(ValueError):
    """A template refers to a missing value; ``reason`` is that of the failed verdict."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def fill(template: str, data: Mapping[str, JsonValue]) -> str:
    """Return the template with its placeholders filled: text as it is, everything else as JSON.

    Raises:
        PlaceholderError: The item or the sample has no value at such a path.
        ValueError: A placeholder is not a path.
    """

    def filled(mark: re.Match[str]) -> str:
        here: JsonValue = dict(data)
        steps = placeholder_path(mark)
        for number, step in enumerate(steps, start=1):
            if isinstance(here, dict) and step in here:
                here = here[step]
            elif isinstance(here, list) and _INDEX.fullmatch(step) and int(step) < len(here):
                here = here[int(step)]
            else:
                raise PlaceholderError(f"{'.'.join(steps[:number])} is missing", Reason.NO_VARIABLE)
            if here is None and steps[:number] == ("sample", "output_json"):
                raise PlaceholderError("sample.output_json: the completion is not JSON", Reason.NOT_JSON)
        value = here if steps else mark[0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return PLACEHOLDER.sub(filled, template)


def template_data(prompt: Prompt, completion: Completion) -> dict[str, JsonValue]:
    """Return what a grader's templates refer to: the prompt's item, and the completion as OpenAI's sample.

    ``output_json`` is None where the text is not JSON; ``output_tools`` are the calls of the last assistant message.
    """
    last = next((message for message in reversed(completion.messages) if message.role == "assistant"), None)
    tools: list[JsonValue] = last.openai.get("tool_calls", []) if last else []
    message: dict[str, JsonValue] = {"role": "assistant", "content": completion.text, "tool_calls": tools}
    choice: JsonValue = {"index": 0, "finish_reason": "tool_calls" if tools else "stop", "message": message}
    sample: dict[str, JsonValue] = {"output_text": completion.text, "output_tools": tools, "choices": [choice]}
    try:
        sample["output_json"] = strict_json.parse(completion.text)
    except strict_json.JsonError:
        sample["output_json"] = None
    return {"item": prompt.item or {}, "sample": sample}
