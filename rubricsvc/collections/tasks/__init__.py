"""Prompts with rubrics, made of a collection without a model: what answers them is known exactly.

To add a capability, write a function that yields tasks of a library, and name it in `Capability` and
`CAPABILITIES`::

    def mine(library: Library, rng: random.Random) -> Iterator[Task]:
        for page in library.shuffled(rng):
            pages = ((page.id,),)
            yield Task(f"mine-{page.id}", library.prompt("mine", question, reference, pages), rubric, pages)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

from rubricsvc.collections.index import Collection
from rubricsvc.collections.screening import addresses_model
from rubricsvc.collections.tasks.changes import changes
from rubricsvc.collections.tasks.comparing import compare
from rubricsvc.collections.tasks.defining import define
from rubricsvc.collections.tasks.links import find_links
from rubricsvc.collections.tasks.related_work import related_work
from rubricsvc.collections.tasks.task import Library, OnPage, Task, attach

__all__ = ["CAPABILITIES", "Capability", "Library", "Task", "synthesize"]

Capability = Literal["find-links", "compare", "changes", "define", "related-work"]


class Synthesis(NamedTuple):
    """The function that yields tasks of a capability, and what of a collection they are made of."""

    tasks: Callable[[Library, random.Random], Iterator[Task]]
    made_of: str


CAPABILITIES: dict[Capability, Synthesis] = {
    "find-links": Synthesis(find_links, "sections of prose with links to other pages"),
    "compare": Synthesis(
        compare, "two pages that are linked or alike, each with a first sentence that has a word of its title"
    ),
    "changes": Synthesis(changes, "notes such as “Changed in version 3.8: …”"),
    "define": Synthesis(define, "a first sentence that has a word of the title"),
    "related-work": Synthesis(related_work, "sections “# Related work” with links to other pages"),
}


def synthesize(
    collection: Collection,
    capabilities: Iterable[Capability] = tuple(CAPABILITIES),
    *,
    limit: int | None = None,
    documents: int = 0,
    seed: int = 0,
    on_page: OnPage = lambda _done, _total: None,
) -> Iterator[Task]:
    """Yield tasks of a collection, the same ones for the same seed.

    A task is left out if its prompt or one of its criteria addresses a model: they may quote a document, and the policy
    and a judge read them.

    Args:
        collection: The collection.
        capabilities: What the tasks ask for.
        limit: Maximum number of tasks for each capability.
        documents: Documents that are attached to each prompt: those that answer it, and others that are like them.
        seed: Seed of the choice.
        on_page: Receives how many pages of how many a capability has read.
    """
    library, prompts = Library(collection, on_page), set[str]()

    def is_new(task: Task) -> bool:
        known = task.prompt.text in prompts
        prompts.add(task.prompt.text)
        texts = (task.prompt.text, *(criterion.text for criterion in task.rubric.criteria))
        return not known and not any(map(addresses_model, texts))

    for name in capabilities:
        rng = random.Random(f"{seed} {name}")
        for task in islice(filter(is_new, CAPABILITIES[name].tasks(library, rng)), limit):
            yield attach(task, library, documents, random.Random(f"{seed} {task.id}")) if documents else task
