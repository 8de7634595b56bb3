"""Compare: two pages, of which one links to the other or that are alike."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rubricsvc.collections.page import Page
from rubricsvc.collections.tasks.task import Library, Task, cites, fact, faults, quotation
from rubricsvc.core.rubric import Check, Criterion, Rubric

MAX_IN_VAIN = 200
"""Pages in a row without another one to compare after which no more are tried: each is a search."""


def compare(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page with another one that it links to, or else with the one whose text is most alike.

    It ends after `MAX_IN_VAIN` pages in a row without one.
    """
    done: set[frozenset[str]] = set()
    in_vain = 0
    for page in library.shuffled(rng):
        if (first := library.first_sentence(page.id)) is None:
            continue
        if in_vain == MAX_IN_VAIN:
            return
        in_vain += 1
        for other in _others(library, page):
            second, pair = library.first_sentence(other), frozenset((page.id, other))
            if second is None or pair in done:
                continue
            if pair <= set(library.pages_with(first)) or pair <= set(library.pages_with(second)):
                continue  # one page repeats the other
            done.add(pair)
            in_vain = 0
            yield _task(library, (page, library.pages[other]), (first, second))
            break


def _others(library: Library, page: Page) -> Iterator[str]:
    yield from sorted({link.target for link in page.links})
    yield from (hit.id for hit in library.collection.search(page.title, 10) if hit.id != page.id)


def _task(library: Library, pages: tuple[Page, Page], leads: tuple[str, str]) -> Task:
    a, b = (page.title for page in pages)
    alternatives = tuple(library.pages_with(lead) or (page.id,) for page, lead in zip(pages, leads, strict=True))
    question = (
        f"Compare “{a}” and “{b}”, as the pages of these titles describe them: what each one is, what they have in"
        " common, and where they differ. Quote a sentence of each page in quotation marks, and cite each page as [id],"
        " in brackets of its own."
    )
    sides = list(zip(("first", "second"), pages, leads, alternatives, strict=True))
    reference = " ".join(quotation(lead, found[0]) for _, _, lead, found in sides)
    stated = [
        fact(name, f"Says of “{page.title}”, in its own words or quoted: “{lead}”", lead, page.id)
        for name, page, lead, _ in sides
    ]
    criteria = (
        *stated,
        Criterion(key="difference", text=f"Names a difference between “{a}” and “{b}”.", weight=3.0),
        Criterion(key="in-common", text=f"Names something that “{a}” and “{b}” have in common.", weight=2.0),
        Criterion(key="mixed-up", text=f"Says of “{a}” what is true only of “{b}”, or the reverse.", weight=-3.0),
        cites(alternatives, (a, b)),
        Criterion(
            key="quotes",
            text="Quotes two sentences word for word, each with the page that it is from.",
            weight=2.0,
            check=Check(name="quotes", args={"min": 2}),
        ),
        *faults(leads),
    )
    prompt = library.prompt("compare", question, reference, alternatives)
    return Task(f"compare-{pages[0].id}-{pages[1].id}", prompt, Rubric(criteria=criteria), alternatives)
