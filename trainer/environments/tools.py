"""The environments that configurations name: research in a collection, the calculator, and those of MCP servers."""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Lock

from rubricsvc.collections import Collection
from rubricsvc.collections.index import NearCopies
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.settings import get_settings
from trainer.config import EnvironmentConfig, ToolsConfig
from trainer.environments.episodes import Acting, EpisodeLimits, LeakGuard, guard_of
from trainer.environments.tool_calls import Environment, Tool, ToolError

RESULTS = 5
"""Documents that a search shows."""
SHOWN_CHARS = 1200
"""Maximum characters of a document that ``open`` and ``find`` show."""
_PARAGRAPH = re.compile(r"\n\s*\n")
_WORD = re.compile(r"\w+(?:\.\w+)*")


class Research:
    """A collection with the tools to search it. Cite what was opened by its id, in brackets: ``[id]``.

    A prompt may withhold documents: its ``item`` has the page that it was made of as ``source``; see
    `trainer.environments.episodes`.
    """

    tools: tuple[Tool, ...] = (
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

    def __init__(
        self, folder: Path, name: str, snippet_chars: int = 160, shown_chars: int = SHOWN_CHARS, *, opens: bool = False
    ) -> None:
        """Open a collection of the folder of all collections.

        A search shows ``snippet_chars`` of each document, and `open` and `find` ``shown_chars`` of one. Where
        it ``opens``, the only tool is a search that opens its first document.
        """
        self.collection = Collection(folder, name)
        self.snippet_chars, self.shown_chars, self.opens = snippet_chars, shown_chars, opens
        if opens:
            self.tools = (Tool("search", "Open the best document at its best part.", dict(self.tools[0].parameters)),)
        self.lock = Lock()
        self._guards: dict[str, LeakGuard] = {}
        self._near_copies = cache(partial(NearCopies, self.collection))  # made once a prompt needs it

    def reset(self, prompt: Prompt) -> ResearchEpisode:
        """Begin an episode.

        Raises:
            InvalidError: The prompt was made of another state of the collection.
        """
        item = prompt.item or {}
        if item.get("digest", self.collection.digest) != self.collection.digest:
            raise InvalidError(
                f"prompt {prompt.text[:60]!r} was made of another state of collection {item.get('collection')!r}",
                hint="add the collection again, or make the prompts again: rubricsvc prompts synthesize",
            )
        return ResearchEpisode(self, self.leak_guard(prompt).withheld)

    def leak_guard(self, prompt: Prompt) -> LeakGuard:
        """Return what must not be shown of a prompt's answer: one guard for all completions of the prompt."""
        with self.lock:
            guard = self._guards.get(prompt.digest)
            if guard is None:
                guard = self._guards[prompt.digest] = guard_of(self.collection, prompt, self._near_copies)
            return guard


@dataclass(eq=False)
class ResearchEpisode:
    """What one completion has searched and opened."""

    environment: Research
    withheld: frozenset[str]
    report: str | None = None
    _query: str = ""
    _open_id: str = ""
    _shown: set[int] = field(default_factory=set)
    _read: defaultdict[str, list[str]] = field(default_factory=partial(defaultdict, list))

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the result of a call."""
        text, id_, limit = arguments.get("text", ""), arguments.get("id", ""), self.environment.shown_chars
        with self.environment.lock:
            match name:
                case "finish":
                    self.report = arguments["report"]
                    return ""
                case "search":
                    found = self.environment.collection.search(arguments["query"], RESULTS + len(self.withheld))
                    hits = [hit for hit in found if hit.id not in self.withheld][:RESULTS]
                    if not hits:
                        raise ToolError("no document has these words")
                    self._query = arguments["query"]
                    if not self.environment.opens:
                        return "\n".join(hit.line(self.environment.snippet_chars) for hit in hits)
                    self._open_id, self._shown, text = hits[0].id, set(), self._query
                case "open":
                    if id_ in self.withheld:
                        raise ToolError(f"no document {id_!r}")
                    self._shown = set()
                    return self._part(id_, self._query)
                case "find":
                    if not self._open_id:
                        raise ToolError("open a document first")
            if name != "quote":
                part = self._part(self._open_id, text)  # as JSON that is no longer than results: cut, it is none
                while len(shown := strict_json.dump({"id": self._open_id, "text": part})) > limit and part:
                    part = part[: len(part) - max(1, len(shown) - limit)]
                return shown
            if id_ not in self._read:
                raise ToolError(f"open {id_!r} first")
            passage = " ".join(text.split())
            if not passage or not any(passage in part for part in self._read[id_]):
                raise ToolError("the passage is not in what was shown of this document, word for word")
            return f"“{text}” [{id_}]"

    def _part(self, id_: str, query: str) -> str:
        """Return the best part of a document that was not shown yet.

        One that is too long begins at the paragraph with most words of the query.
        """
        parts = self.environment.collection.ranked_parts(query, [id_])
        if not parts:
            raise ToolError(f"no document {id_!r}; search for it")
        part = next((one for one in parts if one.start not in self._shown), None)
        if part is None:
            raise ToolError("the whole document was shown")
        self._open_id = id_
        self._shown.add(part.start)
        text = part.text.strip()
        if len(text) > self.environment.shown_chars:
            words = set(_WORD.findall(query.casefold()))
            paragraphs = _PARAGRAPH.split(text)
            counts = [len(words & set(_WORD.findall(one.casefold()))) for one in paragraphs]
            text = "\n\n".join(paragraphs[counts.index(max(counts)) :])[: self.environment.shown_chars]
        self._read[id_].append(" ".join(text.split()))
        return text


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
        """Return the value of the expression.

        Raises:
            ToolError: It is too long, divides by zero, or has more than numbers, + - * / and parentheses.
        """
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


NO_TOOLS = ToolsConfig()


def make_acting(
    config: EnvironmentConfig | None, tools: ToolsConfig = NO_TOOLS, collections_dir: Path | None = None
) -> Acting | None:
    """Return the environment of a configuration, with the limits of an episode and tools of servers; None without."""
    if config is None:
        return None
    environment: Environment | None = None
    if config.name == "research":
        assert config.collection is not None  # noqa: S101 - the configuration was checked
        folder, shown = collections_dir or get_settings().collections_dir, min(SHOWN_CHARS, config.max_result_chars)
        environment = Research(folder, config.collection, config.snippet_chars, shown, opens=config.search_opens)
    elif config.name == "calculator":
        environment = Calculator()
    if environment is None or tools.mcp:
        with needs_extra("mcp"):
            from trainer.environments.mcp_tools import McpTools
        environment = McpTools(tools.mcp, environment, config.tool_timeout_s)
    limits = EpisodeLimits(config.max_turns, config.max_result_chars, config.tool_timeout_s, config.notes)
    return Acting(environment, limits, config.max_tokens)
