"""The leak guard: what a prompt withholds from the search, and tool results that hold its answer nevertheless.

A prompt that was made of a page, its ``source``, is answered by that page: the page and its near copies are withheld.
The pages that are to be found (``pages``) never are. A tool result that has most of a sentence of the source with the
answer, from whatever page or tool, is a leak: the completion is no evidence of anything, and gets no reward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from rubricsvc.collections import Collection
from rubricsvc.collections.index import THRESHOLD, NearCopies
from rubricsvc.core import strict_json
from rubricsvc.core.fingerprint import Shingles, containment, shingles
from rubricsvc.core.prompt import Completion, Prompt, ToolCall

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


def guard_of(collection: Collection, prompt: Prompt, near_copies: Callable[[], NearCopies]) -> LeakGuard:
    """Return the guard of a prompt; it withholds nothing where the prompt was made of no page.

    The sentences that answer are those of the source with links to the pages to be found, or all without such pages
    (`rubricsvc prompts synthesize`), alternatives included. ``near_copies`` returns those of the collection.
    """
    item, ids = prompt.item or {}, set(collection.ids())
    source, pages = item.get("source"), item.get("pages")
    if not isinstance(source, str) or source not in ids:
        return LeakGuard("", frozenset(), ())
    near = near_copies()
    groups = [one for one in pages if isinstance(one, list)] if isinstance(pages, list) else []
    gold = {str(id_) for one in groups for id_ in one}
    found = [shingles(collection.open(id_).text) for id_ in sorted(gold & ids)]
    page, start, answers = collection.open(source), 0, []
    places = [link.start for link in page.links if link.target in gold]
    for end in [*(match.end() for match in _SENTENCE.finditer(page.text)), len(page.text)]:
        sentence = " ".join(page.text[start:end].split())
        answering = not gold or any(start <= place < end for place in places)
        start = end
        if not answering or len(sentence.split()) < MIN_WORDS:
            continue
        part = shingles(sentence)
        if all(containment(part, one) < THRESHOLD for one in found) and near.count(part) <= MAX_PAGES:
            answers.append((sentence, part))
    return LeakGuard(source, frozenset({source}) | (near.of(source) - gold), tuple(answers))


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
