"""Define: what a page is about, in the sentence with which it begins."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from rubricsvc.collections.tasks.task import Library, Task, cites, cites_known, fact
from rubricsvc.core.rubric import Check, Criterion, Rubric

_DEFINES = re.compile(r"\b(?:is|are|was|means?|refers? to|consists? of|denotes?|describes?)\b")
_DANGLING = re.compile(r"\b(?:following|below|above)\b", re.IGNORECASE)


def define(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page that begins with a sentence that says what its title is."""
    for page in library.shuffled(rng):
        lead = library.first_sentence(page.id)
        if lead is None or not _DEFINES.search(lead) or _DANGLING.search(lead):
            continue
        alternatives = library.pages_with(lead)
        if not alternatives or alternatives[0] != page.id:
            continue
        question = (
            f"What does “{page.title}” mean in these documents? Quote the sentence that defines it in quotation marks,"
            " explain it in your own words, and cite the page as [id]."
        )
        quoted = Check(name="quotes", args={"min": 1})
        criteria = (
            fact("definition", f"Says what this sentence says: “{lead}”", lead, page.id, weight=3.0),
            Criterion(key="explains", text="Explains the definition in words of its own.", weight=2.0),
            Criterion(key="quotes", text="Quotes the page that it cites word for word.", weight=2.0, check=quoted),
            cites("page", page.title, alternatives, weight=2.0),
            cites_known(1),
        )
        prompt = library.prompt("define", question, f"“{lead}” [{page.id}]", [alternatives])
        yield Task(f"define-{page.id}", prompt, Rubric(criteria=criteria), (alternatives,))
