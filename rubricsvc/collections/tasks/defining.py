"""Define: what a page is about, in the sentence with which it begins, and what a term of an index means."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from rubricsvc.collections.page import Page
from rubricsvc.collections.tasks.task import Library, Task, cites, fact, faults, prose_sentences, quotation, quotes
from rubricsvc.core.rubric import Criterion, Rubric

MIN_TERM_CHARS = 3
_DEFINES = re.compile(r"\b(?:is|are|was|means?|refers? to|consists? of|denotes?|describes?)\b")
_DANGLING = re.compile(r"\b(?:following|below|above)\b", re.IGNORECASE)


def define(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page that begins with a sentence that says what its title is, and for terms of an index.

    A term is taken if a page that the index names for it says “TERM is …”.
    """
    for page in library.shuffled(rng):
        defined = {sentence: term for term, sentence in (*_title(library, page), *_terms(page))}
        for sentence, term in defined.items():
            alternatives = library.pages_with(sentence)
            if alternatives and alternatives[0] == page.id:
                yield _task(library, page, term, sentence, alternatives)


def _title(library: Library, page: Page) -> Iterator[tuple[str, str]]:
    lead = library.first_sentence(page.id)
    if lead is not None and _DEFINES.search(lead) and not _DANGLING.search(lead):
        yield page.title, lead


def _terms(page: Page) -> Iterator[tuple[str, str]]:
    """Yield the terms by which an index leads to a page, each with the sentence of the page that defines it."""
    names = {term.casefold(): term for term in page.terms if term != page.title and len(term) >= MIN_TERM_CHARS}
    if not names:
        return
    named = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    defines = re.compile(
        rf"(?:(?:An?|The) )?({named})s? (?:is|are|means?|refers? to|consists? of|denotes?) ", re.IGNORECASE
    )
    for sentence in prose_sentences(page.text):
        match = defines.match(sentence)
        if match and not _DANGLING.search(sentence) and (term := names.pop(match[1].casefold(), None)):
            yield term, sentence


def _task(library: Library, page: Page, term: str, sentence: str, alternatives: tuple[str, ...]) -> Task:
    question = (
        f"What does “{term}” mean in these documents? Quote the sentence that defines it in quotation marks,"
        " explain it in your own words, and cite the page as [id]."
    )
    criteria = (
        fact("definition", f"Says what this sentence says: “{sentence}”", sentence, page.id, weight=3.0),
        Criterion(key="explains", text="Explains the definition in words of its own.", weight=2.0),
        quotes([sentence]),
        cites([alternatives], [page.title]),
        *faults([sentence]),
    )
    prompt = library.prompt("define", question, quotation(sentence, page.id), [alternatives])
    name = page.id if term == page.title else f"{page.id}-{term}"
    return Task(f"define-{name}", prompt, Rubric(criteria=criteria), (alternatives,))
