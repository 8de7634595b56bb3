"""Checks of reports on documents: ``cites_pages``, ``mentions`` and ``copied``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.prose import BRACKETS, INLINE_CODE, WORD, paragraphs, plain, report_citations, sentences
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sources import sources

Id = Annotated[str, Field(min_length=1)]
Pages = tuple[Annotated[tuple[Id, ...], Field(min_length=1)], ...]
_PAGES = TypeAdapter(Annotated[Pages, Field(min_length=1)])


class CitesPages(Args):
    """``pages``: the documents that answer, alternatives together, by default ``pages`` of the prompt's item.

    ``measure``: recall, precision, or f1, their harmonic mean.
    """

    pages: Pages | None = Field(default=None, min_length=1)
    measure: Literal["f1", "recall", "precision"] = "f1"


@check("cites_pages", CitesPages, version=2)
def cites_pages(completion: Completion, prompt: Prompt, args: CitesPages) -> CheckResult:
    """Return recall and precision of the citations, over distinct ids; alternatives count once.

    A citation is right where the document answers and is one of the `sources`, given or opened. The document that the
    prompt shows (``source`` of its item) is not counted.
    """
    item = prompt.item or {}
    if args.pages is None and "pages" not in item:
        raise ValueError("nothing to compare with: set `pages`, or the pages of the prompt's item")
    pages = args.pages or _PAGES.validate_python(item["pages"])
    known = sources(prompt, completion).keys()
    named = report_citations(completion.text, known) - {item.get("source")}
    found = sum(not named.isdisjoint(known & set(alternatives)) for alternatives in pages)
    wrong = sorted(named - (known & {id_ for alternatives in pages for id_ in alternatives}))
    missing = [alternatives[0] for alternatives in pages if named.isdisjoint(known & set(alternatives))]
    recall, precision = found / len(pages), found / (found + len(wrong)) if found else 0.0
    f1 = 2 * recall * precision / (recall + precision) if found else 0.0
    lines = [f"{found} of {len(pages)} pages, {len(wrong)} other citations"]
    lines += [f"not cited: {id_}" for id_ in missing[:20]] + [f"other: {id_[:120]}" for id_ in wrong[:20]]
    return CheckResult({"f1": f1, "recall": recall, "precision": precision}[args.measure], "\n".join(lines))


class Mentions(Args):
    """``terms``: what must be named. ``words``: other words that a sentence needs for each. ``case``: match case."""

    terms: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    words: int = Field(default=1, ge=0)
    case: bool = True


@check("mentions", Mentions)
def mentions(completion: Completion, prompt: Prompt, args: Mentions) -> CheckResult:
    """Return the share of terms that occur, as whole words, in a sentence.

    A sentence with fewer other words than ``words`` for each term and each code span counts in proportion: a list of
    terms says nothing about them. Headings, code blocks and citations are no sentences.
    """
    flags = re.NOFLAG if args.case else re.IGNORECASE
    patterns = {term: re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", flags) for term in args.terms}
    credit = dict.fromkeys(args.terms, 0.0)
    for sentence in _bare_sentences(completion.text):
        present = [term for term, pattern in patterns.items() if pattern.search(sentence)]
        rest = re.sub("|".join(pattern.pattern for pattern in patterns.values()), " ", sentence, flags=flags)
        others = len(WORD.findall(INLINE_CODE.sub(" ", rest)))
        needed = args.words * max(len(present), len(INLINE_CODE.findall(sentence)))
        share = min(1.0, others / needed) if needed else 1.0
        credit |= {term: max(credit[term], share) for term in present}
    lines = [f"missing: {term[:120]}" for term, share in credit.items() if not share][:20]
    lines += [f"in a list of terms only: {term[:120]}" for term, share in credit.items() if 0 < share < 1][:20]
    full = sum(share == 1.0 for share in credit.values())
    return CheckResult(sum(credit.values()) / len(credit), "\n".join([f"{full} of {len(credit)} terms", *lines]))


def _bare_sentences(text: str) -> Iterator[str]:
    """Yield the sentences without their citations."""
    for paragraph in paragraphs(text):
        yield from (BRACKETS.sub(" ", sentence) for sentence in sentences(paragraph))


class Copied(Args):
    """``max``: copied words that cost nothing. ``run``: so many words in a row are copied where a source has them."""

    max: int = Field(default=100, ge=0)
    run: int = Field(default=8, ge=2, le=100)


@check("copied", Copied)
def copied(completion: Completion, prompt: Prompt, args: Copied) -> CheckResult:
    """Return 0 up to ``max`` copied words, quoted or not, and 1 from twice as many on; linear between.

    Copied from are the `sources`. Case, punctuation and citations do not matter.
    """
    words = WORD.findall(plain(BRACKETS.sub(" ", completion.text)))
    starts: dict[tuple[str, ...], list[int]] = {}
    for start, run in enumerate(_runs(words, args.run)):
        starts.setdefault(run, []).append(start)
    places = set[int]()
    for text in sources(prompt, completion).values():
        for run in _runs(WORD.findall(plain(text)), args.run):
            places.update(at for start in starts.pop(run, ()) for at in range(start, start + args.run))
    value = min(1.0, max(0, len(places) - args.max) / max(args.max, 1))
    return CheckResult(value, f"{len(places)} of {len(words)} words are copied")


def _runs(words: list[str], count: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + count]) for start in range(len(words) - count + 1))
