"""The leak guard: what a prompt withholds from the search, and tool results that hold its answer nevertheless.

A prompt that was made of a page, its ``source``, is answered by that page: the page and its near copies are withheld.
The pages that are to be found (``pages``) never are. A tool result that has most of a sentence of the source with the
answer, from whatever page or tool, is a leak: the completion is no evidence of anything, and gets no reward.
"""

from __future__ import annotations

import re
from collections.abc import Collection as Ids
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from rubricsvc.collections import Collection, Page
from rubricsvc.collections.index import THRESHOLD, NearCopies
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion, Prompt, ToolCall
from rubricsvc.core.shingles import Shingles, containment, shingles

if TYPE_CHECKING:
    from trainer.data.tasks import Task

LEAKS = "leaks.jsonl"
LEAK = "leak"
"""Why a completion has no reward."""
MIN_WORDS = 8
"""Words of a sentence that answers: shorter ones are on many pages."""
MAX_PAGES = 5
"""Pages that have a sentence: what is on more of them is boilerplate, and answers nothing."""
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


@dataclass(frozen=True)
class LeakGuard:
    """The documents that a prompt withholds, and the sentences that answer it, with their shingles."""

    source: str
    withheld: frozenset[str]
    answers: tuple[tuple[str, Shingles], ...]

    def leak(self, call: ToolCall, result: str) -> dict[str, JsonValue] | None:
        """Return what a tool's result leaks: the call, the source, and the sentence; None if it is nothing."""
        shown = shingles(result)
        for sentence, part in self.answers:
            if containment(part, shown) >= THRESHOLD:
                return {"tool": call.name, "arguments": call.arguments, "source": self.source, "sentence": sentence}
        return None


class LeakGuards:
    """The guards of the prompts of a collection. Use it from one thread at a time."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._known: dict[str, LeakGuard] = {}

    @cached_property
    def _near_copies(self) -> NearCopies:
        return NearCopies(self._collection)

    def of(self, prompt: Prompt) -> LeakGuard:
        """Return the guard of a prompt; it withholds nothing where the prompt was made of no page."""
        if prompt.digest not in self._known:
            self._known[prompt.digest] = self._made(prompt)
        return self._known[prompt.digest]

    def _made(self, prompt: Prompt) -> LeakGuard:
        source, ids, gold = (prompt.item or {}).get("source"), set(self._collection.ids()), pages_of(prompt)
        if not isinstance(source, str) or source not in ids:
            return LeakGuard("", frozenset(), ())
        found = [shingles(self._collection.open(id_).text) for id_ in sorted(gold & ids)]
        sentences = ((one, shingles(one)) for one in _answers(self._collection.open(source), gold))
        answers = [
            (one, part)
            for one, part in sentences
            if all(containment(part, page) < THRESHOLD for page in found) and self._near_copies.count(part) <= MAX_PAGES
        ]
        return LeakGuard(source, frozenset({source}) | (self._near_copies.of(source) - gold), tuple(answers))


def pages_of(prompt: Prompt) -> frozenset[str]:
    """Return the ids of the pages that answer a prompt (`rubricsvc prompts synthesize`), alternatives included."""
    pages = (prompt.item or {}).get("pages")
    groups = [one for one in pages if isinstance(one, list)] if isinstance(pages, list) else []
    return frozenset(str(id_) for one in groups for id_ in one)


def leaks_of(completion: Completion) -> list[dict[str, JsonValue]]:
    """Return what the tools of a completion leaked."""
    leaks = completion.sampling.get("leaks")
    return [leak for leak in leaks if isinstance(leak, dict)] if isinstance(leaks, list) else []


def log_leaks(out: Path | None, tasks: Sequence[Task], completions: Sequence[Completion]) -> None:
    """Add a line for each leak in the completions of tasks, with the step; nothing without a folder or leaks."""
    lines = [
        {"step": one.step, "prompt": task.name, "prompt_digest": task.prompt.digest, **leak}
        for task, one in zip(tasks, completions, strict=True)
        for leak in leaks_of(one)
    ]
    if lines and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LEAKS).open("a", encoding="utf-8") as file:
            file.write("".join(f"{strict_json.dump(line)}\n" for line in lines))


def _answers(page: Page, gold: Ids[str]) -> Iterator[str]:
    """Yield the sentences of a source that answer: those with links to the pages to be found, or all without such."""
    places = [link.start for link in page.links if link.target in gold]
    start = 0
    for end in [*(match.end() for match in _SENTENCE.finditer(page.text)), len(page.text)]:
        sentence = " ".join(page.text[start:end].split())
        if len(sentence.split()) >= MIN_WORDS and (not gold or any(start <= place < end for place in places)):
            yield sentence
        start = end
