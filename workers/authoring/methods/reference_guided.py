"""Reference-guided: a rubric from reference answers, of which there may be several."""

from __future__ import annotations

from rubricsvc.core.authoring import AuthoringTask
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.methods.shown import documents_of, shown, shown_all

NO_REFERENCE = "no_reference"


async def reference_guided(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what makes the references good completions.

    Raises:
        GenerationError: The prompt has no reference.
    """
    if not task.references:
        policy = author.generation.references
        among = f" and no completion of policy {policy!r}" if policy else ""
        raise GenerationError(NO_REFERENCE, f"the prompt has no reference{among}")
    references = {f"reference {number}": text for number, text in enumerate(task.references, start=1)}
    documents = documents_of(task.prompt)
    values = {"prompt": shown("question", task.prompt.text), "references": shown_all("reference", references)}
    if documents:
        values["documents"] = shown_all("document", documents)
    return await author.write("reference_guided", values, documents | references)
