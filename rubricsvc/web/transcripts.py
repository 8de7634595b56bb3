"""Transcripts of episodes for pages: what the policy wrote, its calls, and what the tools answered."""

from __future__ import annotations

from typing import NamedTuple

from rubricsvc.core.prompt import Message, ToolCall
from rubricsvc.core.run_report import Sample
from rubricsvc.core.trajectory import is_error, json_of, turns_of


class ShownCall(NamedTuple):
    """A call with its arguments by name, and its result; ``name`` is empty where the call was malformed."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str | None
    is_error: bool


class ShownTurn(NamedTuple):
    """A message of the policy, and its calls."""

    text: str
    calls: tuple[ShownCall, ...]


def shown_turns(sample: Sample) -> list[ShownTurn]:
    """Return the turns of an episode before its report; a report that is an argument is not shown twice."""
    turns = [
        ShownTurn(one.text, tuple(_shown(*pair, sample.text) for pair in one.calls))
        for one in turns_of(sample.messages)
    ]
    return [one for one in turns if one.calls or one.text != sample.text]


def _shown(call: ToolCall | None, result: Message | None, report: str) -> ShownCall:
    data = json_of(call.arguments) if call is not None else {}
    named = data if isinstance(data, dict) else {"": call.arguments if call is not None else ""}
    arguments = tuple((name, str(value)) for name, value in named.items() if not report or value != report)
    content = result.content if result is not None else None
    return ShownCall(call.name if call is not None else "", arguments, content, is_error(json_of(content or "")))
