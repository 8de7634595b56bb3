"""One-shot: a rubric from the prompt alone, and the documents that come with it."""

from __future__ import annotations

from rubricsvc.core.authoring import AuthoringTask
from workers.authoring.author import Author, Draft
from workers.authoring.methods.shown import documents_of, shown, shown_all

SMALL_MODELS = frozenset({"embedded"})
"""Models that cannot write JSON: they are asked for a numbered list."""


async def one_shot(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric that is written from the prompt."""
    documents = documents_of(task.prompt)
    values = {"prompt": shown("question", task.prompt.text)}
    if documents:
        values["documents"] = shown_all("document", documents)
    template = "list" if author.judge.model in SMALL_MODELS else "one_shot"
    return await author.write(template, values, documents)
