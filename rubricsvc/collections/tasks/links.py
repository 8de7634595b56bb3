"""Find links: a section with its links removed, whose targets are to be found again. Checks decide everything."""

from __future__ import annotations

import random
from collections.abc import Collection as Ids
from collections.abc import Iterable, Iterator

from rubricsvc.collections.page import Page
from rubricsvc.collections.parts import split
from rubricsvc.collections.tasks.task import Library, Task, cites, faults
from rubricsvc.core.rubric import Rubric

MAX_LINKS = 8
MIN_WORDS = 15
"""Words of a section for each link: fewer are a list of links."""
GAP = "[…]"


def find_links(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each section with links to other pages, in a random order of the pages."""
    for page in library.shuffled(rng):
        start = 0
        for number, text in enumerate(split(page.text), start=1):
            links = _links(page, start, start + len(text), library.near_copies(page.id))
            shown = _without(text, start, links)
            start += len(text)
            if 1 <= len(links) <= MAX_LINKS and len(shown.split()) >= MIN_WORDS * len(links):
                ranked = (sorted(one, key=lambda id_: (len(library.pages[id_].text), id_)) for one in links.values())
                targets = tuple(dict.fromkeys(map(tuple, ranked)))
                yield _task(library, page, number, shown, targets)


def _links(page: Page, start: int, end: int, withheld: Ids[str]) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the targets of the links between two places, by the place of the link, in order; no withheld ones."""
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for link in sorted(page.links):
        if start <= link.start and link.end <= end and link.target not in withheld:
            found[link.start, link.end] = (*found.get((link.start, link.end), ()), link.target)
    return found


def _without(text: str, start: int, links: Iterable[tuple[int, int]]) -> str:
    """Return a text that begins at ``start`` without its links."""
    shown, last = "", 0
    for first, end in links:
        shown += text[last : first - start] + GAP
        last = end - start
    return (shown + text[last:]).strip()


def _task(library: Library, page: Page, number: int, shown: str, targets: tuple[tuple[str, ...], ...]) -> Task:
    question = (
        f"The section below is of the page “{page.title}”. Its links to other pages are replaced by {GAP}. Find the"
        " pages that it links to, say for each what the section takes from it, and cite each one as [id], in brackets"
        f" of its own.\n\n{shown}"
    )
    reference = "The section links to " + ", ".join(f"“{library.pages[one[0]].title}” [{one[0]}]" for one in targets)
    cited = cites(targets, [library.pages[alternatives[0]].title for alternatives in targets], required=False)
    prompt = library.prompt("find-links", question, f"{reference}.", targets, page.id)
    return Task(
        f"find-links-{page.id}-{number}", prompt, Rubric(criteria=(cited, *faults([]))), targets, source=page.id
    )
