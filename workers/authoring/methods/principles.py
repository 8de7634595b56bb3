"""Principles: a rubric of the clauses of a specification that matter for the prompt; each criterion cites its own."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.generation import SourceText, Specification
from rubricsvc.core.rubric import Criterion, Rubric, Source
from rubricsvc.core.untrusted import clean
from workers.authoring.author import Author, Draft, GenerationError, Reader, rubric_reader
from workers.authoring.clauses import clauses_of
from workers.authoring.methods.shown import documents_of, shown, shown_all
from workers.authoring.rubric_replies import Documents

TEMPLATE = "principles"
NO_SPECIFICATION = "no_specification"


async def principles(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what the specification says about the prompt.

    Raises:
        GenerationError: The settings have no specification.
    """
    specification = task.specification
    if specification is None or not (clauses := clauses_of(clean(specification.text or "").text)):
        raise GenerationError(NO_SPECIFICATION, "the settings have no specification, or it has no clauses")
    documents = documents_of(task.prompt)
    values = {"clauses": shown_all("clause", clauses), "prompt": shown("question", task.prompt.text)}
    if documents:
        values["documents"] = shown_all("document", documents)
    reader = cited_reader(specification, clauses, rubric_reader(TEMPLATE, documents, clauses))
    draft = await author.write(TEMPLATE, values, documents, clauses, reader=reader)
    digest = sha256((specification.text or "").encode()).hexdigest()
    others = tuple(one for one in draft.sources if one.name not in clauses)
    return replace(draft, sources=(SourceText(name=specification.name, digest=digest), *others))


def cited_reader(specification: Specification, clauses: Documents, read: Reader) -> Reader:
    """Return a reader of rubrics whose criteria each cite a clause, as a source in the specification."""

    def reader(text: str, truncated: bool) -> Rubric:
        rubric = read(text, truncated)
        return rubric.model_copy(update={"criteria": tuple(map(cited, range(len(rubric.criteria)), rubric.criteria))})

    def cited(number: int, criterion: Criterion) -> Criterion:
        sources = criterion.sources or ()
        if not any(one.document in clauses for one in sources):
            raise ValueError(f"criteria.{number}.sources: expected a clause, as document, with a passage of it")
        return criterion.model_copy(update={"sources": tuple(map(of_specification, sources))})

    def of_specification(source: Source) -> Source:
        if source.document not in clauses:
            return source
        return source.model_copy(update={"document": specification.name, "clause": source.document})

    return reader
