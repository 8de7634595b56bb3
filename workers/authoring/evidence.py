"""Stored evidence, verified again: each passage of a rubric's sources must occur in its document of a collection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rubricsvc.collections import Collection
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.untrusted import QuoteIndex
from rubricsvc.errors import NotFoundError
from workers.authoring.rubric_replies import Documents, text_index


class Unverified(NamedTuple):
    """A source whose passage does not occur in its document, or whose document does not exist."""

    rubric: str
    criterion: str
    document: str
    passage: str
    reason: str


@dataclass
class EvidenceReport:
    """How many passages of how many rubrics were looked for, and those that were not found."""

    rubrics: int = 0
    sources: int = 0
    verified: int = 0
    unverified: list[Unverified] = field(default_factory=list)


class EvidenceVerifier:
    """Looks for the passages of rubrics in a collection. Each document is read once."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._indexes: dict[str, QuoteIndex | None] = {}
        self.report = EvidenceReport()

    def verify(self, name: str, rubric: Rubric, own: Documents) -> None:
        """Add the sources of a rubric, called ``name``, to the report; ``own`` are the documents of its prompt."""
        self.report.rubrics += 1
        for criterion, document, passage in _passages(rubric):
            self.report.sources += 1
            index = text_index(own[document]) if document in own else self._index(document)
            if index is not None and index.locate(passage).start is not None:
                self.report.verified += 1
            else:
                reason = "no such document" if index is None else "not in the document"
                self.report.unverified.append(Unverified(name, criterion, document, passage, reason))

    def _index(self, document: str) -> QuoteIndex | None:
        if document not in self._indexes:
            try:
                self._indexes[document] = text_index(self._collection.open(document).text)
            except NotFoundError:
                self._indexes[document] = None
        return self._indexes[document]


def _passages(rubric: Rubric) -> Iterator[tuple[str, str, str]]:
    for criterion in rubric.criteria:
        for source in criterion.sources or ():
            if source.passage is not None:
                yield criterion.key, source.document, source.passage
