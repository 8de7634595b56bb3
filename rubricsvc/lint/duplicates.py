"""Criteria of one rubric that ask the same.

Two criteria are compared by the words that carry their meaning: without stop words, verbs of saying (“mentions”) and
words of polarity (“fails to”), so that a criterion and its negation are found as well. Candidates are found by a prefix
filter (Chaudhuri et al. 2006; Bayardo et al. 2007): texts that are similar enough share one of their rarest words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import ceil

from rubricsvc.core.rubric import Criterion
from rubricsvc.lint.registry import LintHit, Subject, pattern

CONTAINED = 0.8
"""Share of the words of the shorter criterion that are in the other one, if the two ask the same."""
ALIKE = 0.35
"""Share of the words of either that are in both, if one asks the opposite of the other."""
PARAPHRASED = 0.85
"""The same where both have the same sign."""
MOST_IN_A_ROW = 0.4
"""Share of these words in a row from which the two are one template with another word in it: not the same thing."""
RAREST = 4
"""Words by which candidates are found."""
MOST_SHARING = 64
"""Criteria that are compared for one word: a word that more of them share says nothing, and the work stays linear."""

_STOP = {
    "a", "an", "the", "and", "or", "of", "to", "in", "on", "for", "with", "by", "at", "from", "as", "is", "are",
    "be", "been", "was", "were", "it", "its", "this", "that", "these", "those", "their", "there", "which", "who",
    "whose", "if", "than", "then", "so", "such", "any", "all", "each", "both", "into", "over", "per", "via", "not",
    "no", "does", "do", "did", "has", "have", "had", "can", "could", "may", "might", "should", "must", "will",
    "would", "shall", "when", "where", "while", "also", "only", "more", "most", "very", "too", "one", "user",
    "user's", "users",
}  # fmt: skip
_SAYING = pattern("saying")
_WORD = re.compile(r"[^\W_][\w.+%’'-]*(?<![.’'-])")
_JUSTIFICATION = re.compile(r"\(?\bJustification: .*", re.S)


@dataclass(frozen=True, slots=True)
class _Text:
    """A criterion with the words that carry its meaning, in lower case, and those that name something."""

    number: int
    criterion: Criterion
    tokens: frozenset[str]
    names: frozenset[str]
    order: tuple[str, ...]


def near_duplicate(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that ask the same as an earlier one, or its negation."""
    for place, later in near_duplicates(subject.judged):
        first, second = subject.judged[place], subject.judged[later]
        what = "asks the opposite of" if (first.weight < 0) != (second.weight < 0) else "asks the same as"
        for one, other in ((first, second), (second, first)):
            yield one, f"{what} {other.key!r}"


def content_words(text: str) -> frozenset[str]:
    """Return the stems of a text's words and its numbers, without the words that most criteria have."""
    return frozenset(token for _, _, token in _tokens(text))


def named_words(text: str) -> frozenset[str]:
    """Return those of the content words that name something: with a digit, or with capitals within a sentence."""
    return frozenset(
        token
        for place, word, token in _tokens(text)
        if (any(one.isdigit() for one in word) or bool(place and word[0].isupper()) or not word[1:].islower())
    )


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield place, word and stem of the words that say what is asked."""
    for place, word in enumerate(_WORD.findall(_JUSTIFICATION.sub("", text))):
        token = word.casefold().strip("'’-.,")
        if token in _STOP or _SAYING.match(token):
            continue
        endings = (end for end in ("ings", "ing", "ies", "ed", "es", "s") if len(token) - len(end) >= 4)
        yield place, word, token.removesuffix(next(filter(token.endswith, endings), ""))


def near_duplicates(criteria: Sequence[Criterion]) -> Iterator[tuple[int, int]]:
    """Yield the places of criteria that ask the same, or the opposite: each with the most similar earlier one."""
    texts = []
    for number, criterion in enumerate(criteria):
        order = tuple(token for _, _, token in _tokens(criterion.text))
        texts.append(_Text(number, criterion, frozenset(order), named_words(criterion.text), order))
    counts = Counter(token for one in texts for token in one.tokens)
    by_token: defaultdict[str, list[_Text]] = defaultdict(list)
    same: dict[tuple[frozenset[str], str], _Text] = {}
    for text in texts:
        if not text.tokens:
            continue
        whole = text.tokens, " ".join(text.criterion.text.split()).casefold()
        identical = same.get(whole)
        rarest = sorted(text.tokens, key=lambda token: (counts[token], token))
        prefix = rarest[: max(RAREST, len(rarest) - ceil(CONTAINED * len(rarest)) + 1)]
        candidates = {one.number: one for token in prefix for one in by_token[token][-MOST_SHARING:]}
        similar = [one for one in candidates.values() if _asks_the_same(one, text)]
        if match := identical or max(similar, key=lambda one: len(one.tokens & text.tokens), default=None):
            yield match.number, text.number
        same.setdefault(whole, text)
        for token in prefix:
            by_token[token].append(text)


def _asks_the_same(one: _Text, other: _Text) -> bool:
    added, removed = other.tokens - one.tokens, one.tokens - other.tokens
    shared, fewer = len(one.tokens & other.tokens), min(len(one.tokens), len(other.tokens))
    if (one.criterion.weight < 0) != (other.criterion.weight < 0):
        smaller = one if len(removed) <= len(added) else other
        named = (smaller.tokens - (one.tokens & other.tokens)) & smaller.names
        return not named and shared >= max(3, CONTAINED * fewer, ALIKE * (shared + len(added) + len(removed)))
    if not added and not removed:
        return True
    if (added & other.names) or (removed & one.names) or shared < max(6, PARAPHRASED * fewer):
        return False  # another number, name or symbol: another thing
    run = SequenceMatcher(None, one.order, other.order, autojunk=False).find_longest_match().size
    return run < MOST_IN_A_ROW * fewer
