"""Research in a collection of documents: search it, open documents, find and quote passages, finish with a report."""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from rubricsvc.collections import open_collection
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Environment, Episode, Tool, ToolError
from trainer.environments.leaks import LeakGuard, LeakGuards

RESULTS = 5
"""Documents that a search shows."""
SHOWN_CHARS = 1200
"""Maximum characters of a document that ``open`` and ``find`` show."""
_PARAGRAPH = re.compile(r"\n\s*\n")
_WORD = re.compile(r"\w+(?:\.\w+)*")


class Research:
    """A collection with the tools to search it. Cite what was opened by its id, in brackets: ``[id]``.

    A prompt may withhold documents: its ``item`` has the page that it was made of as ``source``; see
    `trainer.environments.leaks`.
    """

    tools = (
        Tool("search", "Search the documents; returns ids and titles.", {"query": "Words to search for."}),
        Tool("open", "Open a document at its best part.", {"id": "Id of a document that a search found."}),
        Tool("find", "Show the next part of the open document with these words.", {"text": "Words to look for."}),
        Tool(
            "quote",
            "Check that a passage is in what was shown of a document.",
            {"id": "Its id.", "text": "The passage."},
        ),
        Tool("finish", "End with the report. Cite documents as [id].", {"report": "The report."}),
    )

    def __init__(self, folder: Path, name: str, snippet_chars: int = 160, shown_chars: int = SHOWN_CHARS) -> None:
        """Open a collection of the folder of all collections.

        Args:
            folder: Folder of all collections.
            name: Name of the collection.
            snippet_chars: Characters of a document that a search shows.
            shown_chars: Characters of a document that `open` and `find` show.
        """
        self.collection = open_collection(folder, name)
        self.snippet_chars, self.shown_chars = snippet_chars, shown_chars
        self.lock = Lock()
        self._guards = LeakGuards(self.collection)

    def reset(self, prompt: Prompt) -> ResearchEpisode:
        """Begin an episode."""
        item = prompt.item or {}
        if item.get("digest", self.collection.digest) != self.collection.digest:
            raise InvalidError(
                f"prompt {prompt.text[:60]!r} was made of another state of collection {item.get('collection')!r}",
                hint="add the collection again, or make the prompts again: rubricsvc prompts synthesize",
            )
        return ResearchEpisode(self, self.leak_guard(prompt).withheld)

    def leak_guard(self, prompt: Prompt) -> LeakGuard:
        """Return what must not be shown of a prompt's answer."""
        with self.lock:
            return self._guards.of(prompt)


class ResearchEpisode:
    """What one completion has searched and opened."""

    def __init__(self, environment: Research, withheld: frozenset[str]) -> None:
        self.report: str | None = None
        self._collection, self._lock, self._withheld = environment.collection, environment.lock, withheld
        self._snippet_chars, self._shown_chars = environment.snippet_chars, environment.shown_chars
        self._query, self._open_id = "", ""
        self._shown, self._read = set[int](), defaultdict[str, list[str]](list)

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the result of a call."""
        if name == "finish":
            self.report = arguments["report"]
            return ""
        with self._lock:
            return str(getattr(self, f"_{name}")(**arguments))

    def _search(self, query: str) -> str:
        found = self._collection.search(query, RESULTS + len(self._withheld))
        hits = [hit for hit in found if hit.id not in self._withheld][:RESULTS]
        if not hits:
            raise ToolError("no document has these words")
        self._query = query
        return "\n".join(hit.line(self._snippet_chars) for hit in hits)

    def _open(self, id: str) -> str:
        if id in self._withheld:
            raise ToolError(f"no document {id!r}")
        self._shown = set()
        return self._part(id, self._query)

    def _find(self, text: str) -> str:
        if not self._open_id:
            raise ToolError("open a document first")
        return self._document(self._part(self._open_id, text))

    def _part(self, id_: str, query: str) -> str:
        """Return the best part of a document that was not shown yet."""
        parts = self._collection.ranked_parts(query, [id_])
        if not parts:
            raise ToolError(f"no document {id_!r}; search for it")
        part = next((one for one in parts if one.start not in self._shown), None)
        if part is None:
            raise ToolError("the whole document was shown")
        self._open_id = id_
        self._shown.add(part.start)
        text = _best(part.text, query, self._shown_chars)
        self._read[id_].append(" ".join(text.split()))
        return text

    def _document(self, text: str) -> str:
        """Return a part of the open document as JSON that is not longer than results may be: cut, it would be none."""
        while len(shown := strict_json.dump({"id": self._open_id, "text": text})) > self._shown_chars and text:
            text = text[: len(text) - max(1, len(shown) - self._shown_chars)]
        return shown

    def _quote(self, id: str, text: str) -> str:
        if id not in self._read:
            raise ToolError(f"open {id!r} first")
        passage = " ".join(text.split())
        if not passage or not any(passage in part for part in self._read[id]):
            raise ToolError("the passage is not in what was shown of this document, word for word")
        return f"“{text}” [{id}]"


def _best(text: str, query: str, chars: int) -> str:
    """Return so many characters of a text, from the paragraph with most words of the query on if it is longer."""
    text = text.strip()
    if len(text) > chars:
        words = set(_WORD.findall(query.casefold()))
        paragraphs = _PARAGRAPH.split(text)
        counts = [len(words & set(_WORD.findall(one.casefold()))) for one in paragraphs]
        text = "\n\n".join(paragraphs[counts.index(max(counts)) :])
    return text[:chars]


MAX_CHARS = 200
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Calculator:
    """Evaluates sums, differences, products and quotients."""

    tools = (Tool("calculate", "Evaluate an expression.", {"expression": "An expression, such as 2 * (3 + 4)."}),)
    report = None

    def reset(self, prompt: Prompt) -> Calculator:
        """Return the episode: it has no state."""
        return self

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the value of the expression."""
        text = arguments["expression"]
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"at most {MAX_CHARS} characters")
            return f"{_value(ast.parse(text.strip(), mode='eval').body):.10g}"
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            raise ToolError(f"{text[:MAX_CHARS]!r} has no value: {error}") from error


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("expected numbers, + - * / and parentheses")


class EmptyResults:
    """An environment with the same tools, whose results are empty until one ends the episode. Calls are made."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of the environment."""
        return self._environment.tools

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""
        return _EmptyEpisode(self._environment.reset(prompt))


class _EmptyEpisode:
    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    @property
    def report(self) -> str | None:
        return self._episode.report

    def step(self, name: str, arguments: Mapping[str, Any]) -> str:
        with suppress(ToolError):  # "no such document" would be a result, too
            self._episode.step(name, arguments)
        return ""
