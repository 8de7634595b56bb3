"""Rules that tie the criteria of a rubric to the question and to the passages that they cite.

They are about words, so that a text that sways the generator cannot put a phrase of its own into a rubric: it would
have to be on the subject of a question that its writer does not know.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from rubricsvc.core.rubric import Criterion, Ordinal, Rubric
from rubricsvc.errors import cut
from rubricsvc.lint.duplicates import content_words, named_words

_QUESTION_WORDS = frozenset(
    {"what", "why", "how", "whom", "you", "your", "we", "our", "i", "me", "my", "please", "about", "before", "after"}
    | {"between", "give", "compare"}
)
_UNSPACED = re.compile("([\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")


class Grounding:
    """The rules, for a question and what was read about it.

    - A criterion with a positive weight that no check decides cites a passage.
    - A passage has a word of the subject: the question, and the queries that were written before anything was read.
    - A criterion has a word of its passages.
    - What it names (names, numbers, code, terms of a check) is in its passages, in the subject, or in two of the
      documents. A fault may name what any passage of the rubric names, and any number.
    """

    def __init__(self, subject: Iterable[str], documents: Iterable[str]) -> None:
        self._subject = _words(subject) - _QUESTION_WORDS
        counts = Counter(chain.from_iterable(_words([text]) for text in documents))
        self._common = {word for word, count in counts.items() if count > 1}

    def check(self, rubric: Rubric) -> None:
        """Raise a ValueError at the first criterion that breaks a rule."""
        cited = _words(passage for one in rubric.criteria for passage in _passages(one))
        for number, criterion in enumerate(rubric.criteria):
            if message := self._broken(criterion, cited):
                raise ValueError(f"criteria.{number}: {message}")

    def _broken(self, criterion: Criterion, cited: set[str]) -> str | None:
        passages = list(_passages(criterion))
        own = _words(passages)
        if criterion.weight > 0 and not criterion.check and not passages:
            return "needs a source: the passage of a document that states the fact"
        for passage in passages:
            if not _words([passage]) & self._subject:
                return f"the passage {cut(repr(passage), 80)} has no word of the question: quote one that is about it"
        if passages and not _words([criterion.text]) & own:
            return "the text and its passages have no word in common: cite the passage that states the fact"
        named = set().union(*(_names(text) for text in _texts(criterion)))
        if criterion.weight < 0:
            named = {name for name in named if not any(map(str.isdigit, name))}
        free = criterion.weight < 0 or criterion.check is not None
        unsupported = sorted(named - self._subject - self._common - (cited if free else own))
        if unsupported:
            return f"names {unsupported[0]!r}, which is in no passage that it cites, nor in the question"
        return None


def _passages(criterion: Criterion) -> Iterator[str]:
    return (source.passage for source in criterion.sources or () if source.passage)


def _texts(criterion: Criterion) -> Iterator[str]:
    """Yield the texts that a judge reads. The terms of a check are made to look like names."""
    yield criterion.text
    yield criterion.reference or ""
    if isinstance(criterion.scale, Ordinal):
        for level in criterion.scale.levels:
            yield level.text
    arguments = criterion.check.args if criterion.check else {}
    terms = arguments.get("terms", ())
    for term in (*(terms if isinstance(terms, list | tuple) else ()), arguments.get("pattern")):
        if isinstance(term, str):
            yield " ".join(f". {word.upper()}" for word in re.findall(r"[^\W\d_]{4,}", term))


def _names(text: str) -> set[str]:
    """Return what a text names; a single letter or character names nothing."""
    return {name for name in named_words(_spaced(text)) if len(name) > 1 or name.isdigit()}


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in content_words(_spaced(text))}


def _spaced(text: str) -> str:
    """Return the text with spaces between the characters of scripts that have none between words."""
    return _UNSPACED.sub(r" \1 ", text)
