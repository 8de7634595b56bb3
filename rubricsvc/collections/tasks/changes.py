"""Changes: what changed in a version, from the notes that documentation has.

They are those of Sphinx (“Changed in version 3.8: …”), and sentences such as “As of PostgreSQL 14, …”.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from rubricsvc.collections.page import Page
from rubricsvc.collections.tasks.task import Library, Task, cites, fact, faults, prose_sentences, quotation, quotes
from rubricsvc.core.rubric import Check, Criterion, Rubric

MAX_NOTES = 8
_NOTE = re.compile(
    r"\b(?:New|Added|Changed|Deprecated|Removed) (?:in|since) version (\d+(?:\.\d+)*):\s+\S.{10,600}?(?=\n\s*\n|\Z)",
    re.DOTALL,
)
_PRODUCT = r"(?:the )?(?:PostgreSQL|SQLite|Git|Python|MySQL|MariaDB|Linux|GCC)"
_SINCE = r"(?:as of|since|prior to|before|starting (?:in|with)|beginning (?:in|with)|versions? before|releases? before)"
_PROSE = re.compile(
    rf"\b{_SINCE}\s+(?:{_PRODUCT}\s+(?:versions?\s+|releases?\s+)?|(?:versions?|releases?)\s+)v?(\d+(?:\.\d+)*)(?![\w.]*\w)",
    re.IGNORECASE,
)
_CODE = re.compile(r"`([^`\n]{2,40})`")


class Note(NamedTuple):
    """One note of a page, on one line."""

    version: str
    text: str


def changes(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page and version; of pages that repeat each other's notes only for the shortest."""
    done: set[tuple[Note, ...]] = set()
    for page in library.shuffled(rng):
        by_version: dict[str, dict[Note, None]] = {}
        for match in _NOTE.finditer(page.text):
            by_version.setdefault(match[1], {})[Note(match[1], " ".join(match[0].split()))] = None
        for version, sentence in _in_prose(page.text):
            by_version.setdefault(version, {})[Note(version, sentence)] = None
        for version, found in by_version.items():
            notes = tuple(found)
            alternatives = _alternatives(library, notes)
            if len(notes) <= MAX_NOTES and alternatives and alternatives[0] == page.id and notes not in done:
                done.add(notes)
                yield _task(library, page, version, notes, alternatives)


def _in_prose(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences that name one version since which something holds, each with the version."""
    for sentence in prose_sentences(text):
        if len(versions := _PROSE.findall(sentence)) == 1:
            yield versions[0], sentence


def _alternatives(library: Library, notes: tuple[Note, ...]) -> tuple[str, ...]:
    """Return the pages that have all of the notes, the shortest first."""
    first, *others = (library.pages_with(note.text) for note in notes)
    return tuple(id_ for id_ in first if all(id_ in other for other in others))


def _task(library: Library, page: Page, version: str, notes: tuple[Note, ...], alternatives: tuple[str, ...]) -> Task:
    question = (
        f"What is new, changed or deprecated in version {version} in what the page “{page.title}” describes? Name"
        " everything that the documentation names, and nothing of other versions. Quote the notes on it in quotation"
        " marks, and cite the page as [id]."
    )
    stated = [
        fact(f"note-{place}", f"Says what this note says: “{note.text}”", note.text, page.id)
        for place, note in enumerate(notes, start=1)
    ]
    terms = list(dict.fromkeys(term for note in notes for term in _CODE.findall(note.text)))
    named = Criterion(
        key="terms",
        text="Names " + ", ".join(terms) + ".",
        weight=2.0,
        check=Check(name="mentions", args={"terms": [*terms]}),
    )
    wrong = f"Presents a change as one of version {version} that its note says is of another version."
    criteria = (
        *stated,
        *([named] if terms else []),
        Criterion(key="other-version", text=wrong, weight=-3.0),
        quotes([note.text for note in notes]),
        cites([alternatives], [page.title]),
        *faults([note.text for note in notes]),
    )
    reference = " ".join(quotation(note.text, page.id) for note in notes)
    prompt = library.prompt("changes", question, reference, [alternatives])
    return Task(f"changes-{page.id}-{version}", prompt, Rubric(criteria=criteria), (alternatives,))
