"""The documents that a completion may cite: those of its prompt, and those that it opened in its trajectory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.trajectory import is_error, json_of, tool_results

PART_SEPARATOR = "\n␞\n"
"""No quotation spans it, so that a policy cannot splice a sentence from parts of its choice."""


def sources(prompt: Prompt, completion: Completion) -> dict[str, str]:
    """Return the text of each document by id. A quotation must stand in one of the parts that were opened.

    Opened is a document in the result of a tool: the result of the tool ``open`` for the document that its argument
    ``id`` names, and no other, and any other result that is JSON with the strings ``id`` and ``text``, or a list of
    such. A result that is empty, JSON with an ``error``, or any other JSON object opens nothing. Only ``open`` adds to
    a document of the prompt: a tool that echoes its arguments must not.
    """
    texts = defaultdict[str, list[str]](list)
    for document in prompt.documents:
        texts[document.id].append(document.text)
    given = set(texts)
    for call, result in tool_results(completion.messages):
        for name, text in _documents(call, result):
            if name not in given or (call and call.name == "open"):
                texts[name].append(text)
    return {name: PART_SEPARATOR.join(parts) for name, parts in texts.items()}


def _documents(call: ToolCall | None, result: Message) -> Iterator[tuple[str, str]]:
    content = json_of(result.content)
    if is_error(content):
        return
    opened = _argument(call) if call and call.name == "open" else None
    entries = content if isinstance(content, list) else [content]
    documents = [entry for entry in entries if isinstance(entry, dict)]
    documents = [entry for entry in documents if all(isinstance(entry.get(key), str) for key in ("id", "text"))]
    if opened is not None:  # a document whose text looks like another document is not that one
        documents = [entry for entry in documents if entry["id"] == opened]
    if documents:
        yield from ((entry["id"], entry["text"]) for entry in documents)
    elif opened is not None and result.content.strip() and not isinstance(content, dict):
        yield opened, result.content


def _argument(call: ToolCall) -> str | None:
    arguments = json_of(call.arguments)
    id_ = arguments.get("id") if isinstance(arguments, dict) else None
    return id_ if isinstance(id_, str) else None
