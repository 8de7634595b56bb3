"""Contrastive: a rubric of what distinguishes better completions of the prompt from worse ones."""

from __future__ import annotations

from rubricsvc.core.authoring import AuthoringTask
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.methods.shown import documents_of, shown, shown_all

NO_CONTRAST = "no_contrast"


async def contrastive(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what the better completions do, and of the faults of the worse ones.

    Raises:
        GenerationError: No completion of the prompt is better than another.
    """
    if task.contrast is None:
        settings = author.generation
        policies = f"the policies {settings.better!r} and {settings.worse!r} have no two different completions"
        unknown = "no two completions of the prompt have different overall labels, or different rewards in a job"
        raise GenerationError(NO_CONTRAST, policies if settings.better else unknown)
    documents = documents_of(task.prompt)
    better, worse = (
        {f"{name} {number}": one.text for number, one in enumerate(side, start=1)}
        for name, side in (("better", task.contrast.better), ("worse", task.contrast.worse))
    )
    values = {
        "prompt": shown("question", task.prompt.text),
        "better": shown_all("answer", better),
        "worse": shown_all("answer", worse),
    }
    if documents:
        values["documents"] = shown_all("document", documents)
    return await author.write("contrastive", values, documents, better | worse)
