"""Grounded: a rubric of facts from documents of a collection, which the model searches and reads first."""

from __future__ import annotations

from dataclasses import replace

from rubricsvc.collections import Collection, open_collection
from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.generation import NO_RUBRIC, Research
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import RubricsvcError
from workers.authoring.author import Author, Draft, GenerationError, rubric_reader
from workers.authoring.grounding import Grounding
from workers.authoring.methods.one_shot import SMALL_MODELS
from workers.authoring.methods.research import investigate
from workers.authoring.methods.shown import documents_of, shown, shown_all

NO_COLLECTION = "no_collection"
OTHER_COLLECTION = "other_collection"
NOTHING_FOUND = "nothing_found"


async def grounded(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric whose criteria cite passages of the collection that the settings name.

    Raises:
        GenerationError: The collection is not on this machine or is another one, or nothing is found in it.
    """
    if author.judge.model in SMALL_MODELS:
        message = f"the model {author.judge.model!r} cannot write JSON; name a judge with another model"
        raise GenerationError(NO_RUBRIC, message)
    research = author.generation.research or Research(collection="")
    with _collection(task, research) as collection:
        _check_digest(collection, research)
        found = await investigate(author, task.prompt, collection, research)
    if not found.shown:
        queries = ", ".join(map(repr, found.notes.queries))
        raise GenerationError(NOTHING_FOUND, f"no document of {research.collection!r} has a word of {queries}")
    own = documents_of(task.prompt)
    values = {"prompt": shown("question", task.prompt.text), "pages": shown_all("document", found.shown | own)}
    grounding = Grounding([task.prompt.text, *found.first_queries], [*found.readable.values(), *own.values()])
    read = rubric_reader("grounded", found.readable | own)

    def reader(text: str, truncated: bool) -> Rubric:
        rubric = read(text, truncated)
        grounding.check(rubric)
        return rubric

    draft = await author.write("grounded", values, found.readable | own, reader=reader)
    of_prompt = tuple(source for source in draft.sources if source.name in own)
    of_collection = tuple(source for source in found.sources if source.name not in own)
    return replace(draft, sources=of_collection + of_prompt, research=found.notes)


def _collection(task: AuthoringTask, research: Research) -> Collection:
    name = research.collection
    if task.collections_dir is None:
        raise GenerationError(NO_COLLECTION, "this worker has no folder of collections")
    try:
        return open_collection(task.collections_dir, name)
    except RubricsvcError as error:
        fix = f"add it on this worker: rubricsvc collections add {name} PATH; then retry the job"
        raise GenerationError(NO_COLLECTION, f"{error}; {fix}") from error


def _check_digest(collection: Collection, research: Research) -> None:
    """Raise a GenerationError unless the collection is the one that the job was submitted for."""
    if research.digest not in (None, collection.digest):
        name, wanted = research.collection, (research.digest or "")[:12]
        fix = f"add the job's documents: rubricsvc collections add {name} PATH --replace; then retry the job"
        message = f"collection {name!r} has the digest {collection.digest[:12]} on this worker, not {wanted}; {fix}"
        raise GenerationError(OTHER_COLLECTION, message)
