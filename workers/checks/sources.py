"""The documents that a completion may cite: those of its prompt, and those that it opened in its trajectory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall

_PART_SEPARATOR = "\n␞\n"
"""No quotation spans it, so that a policy cannot splice a sentence from parts of its choice."""


def sources(prompt: Prompt, completion: Completion) -> dict[str, str]:
    """Return the text of each document by id. A quotation must stand in one of the parts that were opened.

    Opened is a document in the result of a tool: the result of the tool ``open`` for the document that its argument
    ``id`` names, and any result that is JSON with the strings ``id`` and ``text``, or a list of such. A result that is
    empty, JSON with an ``error``, or any other JSON object opens nothing. Only ``open`` adds to a document of the
    prompt: a tool that echoes its arguments must not.
    """
    texts = defaultdict[str, list[str]](list)
    for document in prompt.documents:
        texts[document.id].append(document.text)
    given = set(texts)
    for call, result in _results(completion):
        for name, text in _documents(call, result):
            if name not in given or (call and call.name == "open"):
                texts[name].append(text)
    return {name: _PART_SEPARATOR.join(parts) for name, parts in texts.items()}


def _results(completion: Completion) -> Iterator[tuple[ToolCall | None, Message]]:
    """Yield the results of tools with their calls, by the id of the call, else in the order of the calls."""
    pending: list[ToolCall] = []
    for message in completion.messages:
        if message.role == "assistant":
            pending = list(message.tool_calls or ())
        elif message.role == "tool":
            named = (call for call in pending if call.id == message.tool_call_id)
            call = next(named if message.tool_call_id else iter(pending), None)
            if call:
                pending.remove(call)
            yield call, message


def _documents(call: ToolCall | None, result: Message) -> Iterator[tuple[str, str]]:
    content = _json(result.content)
    if isinstance(content, dict) and content.get("error"):
        return
    entries = content if isinstance(content, list) else [content]
    documents = [entry for entry in entries if isinstance(entry, dict)]
    documents = [entry for entry in documents if all(isinstance(entry.get(key), str) for key in ("id", "text"))]
    if documents:
        yield from ((entry["id"], entry["text"]) for entry in documents)
    elif call and call.name == "open" and result.content.strip() and not isinstance(content, dict):
        arguments = _json(call.arguments)
        if isinstance(arguments, dict) and isinstance(arguments.get("id"), str):
            yield arguments["id"], result.content


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
