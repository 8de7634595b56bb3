"""Related work: the section of a paper on those of others, written from its abstract; its citations are gold."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from rubricsvc.collections.page import Page
from rubricsvc.collections.tasks.task import Library, Task, faults
from rubricsvc.core.rubric import Check, Criterion, Rubric

MIN_WORKS, MAX_WORKS = 3, 100
MAX_SHOWN = 3000
"""Characters of a paper before its section that the prompt shows."""
_HEADING = re.compile(r"^(?P<level>#{1,6}) +(?:\d[\d.]* +)?related works?[ \t]*$", re.IGNORECASE | re.MULTILINE)


def related_work(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page with a section “Related work” that links to other pages."""
    for page in library.shuffled(rng):
        if (heading := _HEADING.search(page.text)) is None:
            continue
        following = re.compile(rf"^#{{1,{len(heading['level'])}}} ", re.MULTILINE).search(page.text, heading.end())
        end = following.start() if following else len(page.text)
        withheld = library.near_copies(page.id)
        targets = [link.target for link in sorted(page.links) if heading.end() <= link.start < end]
        works = list(dict.fromkeys(target for target in targets if target not in withheld))
        if MIN_WORKS <= len(works) <= MAX_WORKS and (shown := page.text[: heading.start()].strip()[:MAX_SHOWN]):
            yield _task(library, page, shown, works)


def _task(library: Library, page: Page, shown: str, works: list[str]) -> Task:
    question = (
        f"Write the section “Related work” of the paper “{page.title}”, which begins below. Search the documents for"
        " the works that it should discuss, group them by theme, say what each contributes and how the paper differs,"
        f" and cite each as [id], in brackets of its own.\n\n{shown}"
    )
    pages = tuple((one,) for one in works)
    reference = "Related works are " + ", ".join(f"“{library.pages[one].title}” [{one}]" for one in works) + "."
    recall = Check(name="cites_pages", args={"measure": "recall"})
    precision = Check(name="cites_pages", args={"measure": "precision"})
    known = f"Cites {MIN_WORKS} documents that it was given or has opened, and no other."
    criteria = (
        Criterion(key="recall", text="Cites the works that the paper cites.", weight=4.0, check=recall),
        Criterion(key="precision", text="Cites works that the paper cites, and no other.", weight=2.0, check=precision),
        Criterion(key="known", text=known, required=True, check=Check(name="cites", args={"min": MIN_WORKS})),
        Criterion(key="themes", text="Groups the works by theme.", weight=2.0),
        Criterion(key="contributions", text="Says of each work that it cites what that work contributes.", weight=2.0),
        Criterion(key="differs", text="Says how the paper differs from the works that it discusses.", weight=2.0),
        *faults([]),
    )
    prompt = library.prompt("related-work", question, reference, pages, page.id)
    return Task(f"related-work-{page.id}", prompt, Rubric(criteria=criteria), pages, source=page.id)
