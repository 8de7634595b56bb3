"""Claims: the sentences of a completion that cite documents, each with the passage to judge it by.

A judge is asked about one claim at a time, as if it were the whole completion, with that passage as the criterion's
evidence: whether a text follows from a passage is a question for natural language inference, which small models answer
for sentences and not for reports (ALCE, arXiv 2305.14627, and AIS, arXiv 2112.12870, ask in this way too).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.prose import BRACKETS, WORD, cited_ids, paragraphs, plain, sentences
from workers.checks.sources import PART_SEPARATOR, sources

VERSION = "1"
"""Part of the questions' fingerprint. Raise it when the same completion would have other claims or passages."""
MAX_CLAIMS = 24
"""Of more, so many are chosen by the hash of their text, which a writer cannot aim at."""
_LEAST_WORDS = 5
_PASSAGE_WORDS = 120


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence without its citations, and one passage for each document that it cites; ``unknown`` are other ids."""

    text: str
    passages: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def claims(prompt: Prompt, completion: Completion) -> list[Claim]:
    """Return the sentences of at least five words that cite something, in order."""
    known = sources(prompt, completion)
    found = list(_citing(completion.text, known))
    ranked = sorted(range(len(found)), key=lambda place: sha256(found[place][0].encode()).digest())
    # passages are looked for last: a hostile completion has any number of sentences, and documents may be long
    return [
        Claim(
            text,
            tuple(nearest_passage(known[name], text) for name in sorted(cited & known.keys())),
            tuple(sorted(cited - known.keys())),
        )
        for text, cited in (found[place] for place in sorted(ranked[:MAX_CLAIMS]))
    ]


def _citing(text: str, known: dict[str, str]) -> Iterator[tuple[str, set[str]]]:
    """Yield the sentences that cite something, without their citations, each with the ids that it cites."""
    for paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            cited, bare = cited_ids(sentence, known), " ".join(BRACKETS.sub(" ", sentence).split())
            if cited and len(bare.split()) >= _LEAST_WORDS:
                yield bare, cited


def nearest_passage(text: str, claim: str, size: int = _PASSAGE_WORDS) -> str:
    """Return the ``size`` words in a row, of one part of a document, that share most words with a claim.

    Each different word counts once. Windows begin every ``size // 4`` words; the first of equal ones is taken.
    """
    wanted = {word for word in WORD.findall(plain(claim)) if len(word) > 3}
    windows = []
    for part in text.split(PART_SEPARATOR):
        words = part.split()
        starts = range(0, max(1, len(words) - size + size // 4), size // 4)
        windows += [" ".join(words[start : start + size]) for start in starts]
    return max(windows, key=lambda window: len(wanted & set(WORD.findall(plain(window)))))
