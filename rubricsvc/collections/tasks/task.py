"""What the capabilities share: the task that they make, criteria of citations, and the pages that they are made of."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import cast

from pydantic import JsonValue

from rubricsvc.collections.index import Collection
from rubricsvc.collections.near_copies import NearCopies
from rubricsvc.collections.page import Page
from rubricsvc.core.prompt import Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric, Source

LEADS = 2
"""Paragraphs among whose first sentences the one is that says what a page is about."""
MAX_COPIED = 50
"""Words that a report may copy, besides the passages that answer."""
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")
_NO_PROSE = re.compile(r"::=|^\s*(?:>>>|\+-|\||```|#{1,6} |[*-] )|^([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)
_POINTING = re.compile(r"(?:This|These|The following|They|It|See|To|In this|For)\b")
_WORD = re.compile(r"\w{3,}")
_INNER_QUOTES = str.maketrans(dict.fromkeys('"“”„«»', "'"))


OnPage = Callable[[int, int], None]
"""Receives how many pages of how many a capability has read."""


@dataclass(frozen=True)
class Task:
    """A prompt with its rubric.

    Attributes:
        pages: Ids of the documents that answer it: alternatives together.
        source: Id of a document that the prompt shows without its links, and that is not attached to it.
    """

    id: str
    prompt: Prompt
    rubric: Rubric
    pages: tuple[tuple[str, ...], ...]
    source: str | None = None


class Library:
    """The pages of a collection, with what tasks are made of."""

    def __init__(self, collection: Collection, on_page: OnPage = lambda _done, _total: None) -> None:
        self.collection, self._on_page = collection, on_page

    @cached_property
    def pages(self) -> Mapping[str, Page]:
        """All pages, by id."""
        return {page.id: page for page in self.collection.pages()}

    @cached_property
    def _joined(self) -> Mapping[str, str]:
        return {id_: " ".join(page.text.split()) for id_, page in self.pages.items()}

    @cached_property
    def _near_copies(self) -> NearCopies:
        return NearCopies(self.collection)

    def near_copies(self, id_: str) -> frozenset[str]:
        """Return the near copies of a page, which are withheld from a policy that is shown a section of it."""
        return self._near_copies.of(id_)

    def pages_with(self, passage: str) -> tuple[str, ...]:
        """Return the pages with a passage, the shortest first: chapters may repeat their sections."""
        words = " ".join(passage.split())
        found = [id_ for id_, text in self._joined.items() if words in text]
        return tuple(sorted(found, key=lambda id_: (len(self._joined[id_]), id_)))

    def first_sentence(self, id_: str) -> str | None:
        """Return the first sentence of prose on a page that is complete by itself, if it has a word of the title."""
        page = self.pages[id_]
        title = {word.casefold() for word in _WORD.findall(page.title)}
        for sentence in islice(_first_sentences(page.text[:5000]), LEADS):
            if not _POINTING.match(sentence):
                return sentence if {word.casefold() for word in _WORD.findall(sentence)} & title else None
        return None

    def shuffled(self, rng: random.Random) -> Iterator[Page]:
        """Yield all pages in a random order."""
        ids = sorted(self.pages)
        rng.shuffle(ids)
        for number, id_ in enumerate(ids):
            self._on_page(number, len(ids))
            yield self.pages[id_]

    def prompt(
        self, capability: str, text: str, reference: str, pages: Iterable[tuple[str, ...]], source: str | None = None
    ) -> Prompt:
        """Return a prompt that names the collection, the documents that answer it, and the one that it shows."""
        item: dict[str, JsonValue] = {"capability": capability, "collection": self.collection.name}
        item |= {"digest": self.collection.digest, "pages": cast("JsonValue", [list(one) for one in pages])}
        item |= {"source": source} if source is not None else {}
        return Prompt.of(text, reference=reference, tags=(capability,), item=item)


def _first_sentences(text: str) -> Iterator[str]:
    """Yield the first sentence of each paragraph of prose."""
    yield from (sentences[0] for sentences in _paragraphs(text) if _is_complete(sentences[0]))


def prose_sentences(text: str) -> Iterator[str]:
    """Yield the complete sentences of prose in a text, on one line each."""
    yield from (sentence for sentences in _paragraphs(text) for sentence in sentences if _is_complete(sentence))


def _paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the sentences of each paragraph of prose."""
    for paragraph in _PARAGRAPH.split(text):
        if not _NO_PROSE.search(paragraph) and not paragraph.startswith(("  ", "\t")):
            yield _SENTENCE.split(" ".join(paragraph.split()))


def _is_complete(sentence: str) -> bool:
    """Return whether a sentence has enough words to stand by itself, and an end."""
    return len(sentence.split()) >= 8 and len(sentence) <= 400 and sentence.endswith((".", ":"))


def fact(key: str, text: str, passage: str, document: str, *, weight: float = 2.0) -> Criterion:
    """Return a criterion for a judge about a fact, which quotes the passage that states it.

    The passage is no evidence of the criterion: a judge would find in it what the completion does not say.
    """
    source = Source(document=document, passage=passage)
    return Criterion(key=key, text=text, weight=weight, sources=(source,))


def cites(
    pages: Sequence[Iterable[str]], titles: Iterable[str], *, weight: float = 2.0, required: bool = True
) -> Criterion:
    """Return a criterion that a check decides: these documents, given or opened, are cited, and no others.

    If it is required, a report without them gets no reward: a judge may find in it what it does not say.
    """
    alternatives = [list(one) for one in pages]
    named = (
        f"“{title}” ({' or '.join(f'[{id_}]' for id_ in one)})" for title, one in zip(titles, alternatives, strict=True)
    )
    text = f"Cites {' and '.join(named)}, which it was given or has opened, and nothing else."
    check = Check(name="cites_pages", args={"pages": [[*one] for one in alternatives]})
    return Criterion(key="cites", text=text, weight=weight, required=required, check=check)


def quotes(passages: Iterable[str], *, weight: float = 3.0) -> Criterion:
    """Return a criterion that a check decides: these passages are quoted, each with its document."""
    check = Check(name="quotes", args={"passages": [*passages]})
    text = "Quotes what answers word for word, with the page that it is from."
    return Criterion(key="quotes", text=text, weight=weight, check=check)


def faults(passages: Iterable[str]) -> tuple[Criterion, ...]:
    """Return the faults, which checks decide, that leave a report without a reward; it may quote these passages."""
    words = MAX_COPIED + sum(len(passage.split()) for passage in passages)
    found = {
        "copied": ("Copies its sources at length.", Check(name="copied", args={"max": words})),
        "invented": ("Claims actions that never happened.", Check(name="invented_actions", args={})),
    }
    return tuple(
        Criterion(key=key, text=text, weight=-5.0, required=True, check=check) for key, (text, check) in found.items()
    )


def quotation(passage: str, document: str) -> str:
    """Return a passage in quotation marks, those in it as apostrophes, with its citation."""
    return f"“{passage.translate(_INNER_QUOTES)}” [{document}]"


def attach(task: Task, library: Library, count: int, rng: random.Random) -> Task:
    """Return the task with ``count`` documents in its prompt: those that answer it, and others that are like them."""
    gold = [alternatives[0] for alternatives in task.pages]
    known = {id_ for alternatives in task.pages for id_ in alternatives} | {task.source}
    found = (hit.id for hit in library.collection.search(task.prompt.text, count + len(known)))
    chosen = [*dict.fromkeys(gold), *(id_ for id_ in found if id_ not in known)][: max(count, len(set(gold)))]
    rng.shuffle(chosen)
    pages = (library.pages[id_] for id_ in chosen)
    documents = tuple(Document(id=page.id, title=page.title, text=page.text) for page in pages)
    return replace(task, prompt=task.prompt.model_copy(update={"documents": documents}))
