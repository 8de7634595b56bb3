"""Research in a collection of documents: search it, open documents, find and quote passages, finish with a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from rubricsvc.collections import Collection, open_collection
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Tool, ToolError

RESULTS = 5
"""Documents that a search shows."""
SNIPPET_CHARS = 160
SHOWN_CHARS = 1200
"""Characters of a document that ``open`` and ``find`` show."""


class Research:
    """A collection with the tools to search it. Cite what was opened by its id, in brackets: ``[id]``.

    A prompt may withhold documents: its ``item`` has the page that it was made of as ``source``.
    """

    tools = (
        Tool("search", "Search the documents; returns ids and titles.", {"query": "Words to search for."}),
        Tool("open", "Open a document at its best part.", {"id": "Id of a document that a search found."}),
        Tool("find", "Show the next part of the open document with these words.", {"text": "Words to look for."}),
        Tool(
            "quote",
            "Check that a passage is in an opened document.",
            {"id": "Its id.", "text": "The passage."},
        ),
        Tool("finish", "End with the report. Cite documents as [id].", {"report": "The report."}),
    )

    def __init__(self, folder: Path, name: str) -> None:
        """Open a collection of the folder of all collections.

        Raises:
            NotFoundError: There is none of that name.
        """
        self.collection = open_collection(folder, name)
        self._lock = Lock()

    def reset(self, prompt: Prompt) -> ResearchEpisode:
        """Begin an episode.

        Raises:
            InvalidError: The prompt was made of another collection.
        """
        item = prompt.item or {}
        if item.get("digest", self.collection.digest) != self.collection.digest:
            raise InvalidError(
                f"prompt {prompt.text[:60]!r} was made of another state of collection {item.get('collection')!r}",
                hint="add the collection again, or make the prompts again: rubricsvc prompts synthesize",
            )
        withheld = {source} if isinstance(source := item.get("source"), str) else set()
        return ResearchEpisode(self.collection, self._lock, frozenset(withheld))


class ResearchEpisode:
    """What one completion has searched and opened."""

    def __init__(self, collection: Collection, lock: Lock, withheld: frozenset[str]) -> None:
        self.report: str | None = None
        self._collection, self._lock, self._withheld = collection, lock, withheld
        self._query, self._open_id = "", ""
        self._shown, self._opened = set[int](), set[str]()

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
        return "\n".join(f"[{hit.id}] {hit.title}: {' '.join(hit.text.split())[:SNIPPET_CHARS]}" for hit in hits)

    def _open(self, id: str) -> str:
        if id in self._withheld:
            raise ToolError(f"no document {id!r}")
        self._shown = set()
        return self._part(id, self._query)

    def _find(self, text: str) -> str:
        if not self._open_id:
            raise ToolError("open a document first")
        shown = self._part(self._open_id, text)
        return strict_json.dump({"id": self._open_id, "text": shown})

    def _part(self, id_: str, query: str) -> str:
        """Return the best part of a document that was not shown yet."""
        parts = self._collection.ranked_parts(query, [id_])
        if not parts:
            raise ToolError(f"no document {id_!r}; search for it")
        part = next((one for one in parts if one.start not in self._shown), None)
        if part is None:
            raise ToolError("the whole document was shown")
        self._open_id = id_
        self._opened.add(id_)
        self._shown.add(part.start)
        return part.text.strip()[:SHOWN_CHARS]

    def _quote(self, id: str, text: str) -> str:
        if id not in self._opened:
            raise ToolError(f"open {id!r} first")
        if " ".join(text.split()) not in " ".join(self._collection.open(id).text.split()):
            raise ToolError("the passage is not in this document, word for word")
        return f"“{text}” [{id}]"
