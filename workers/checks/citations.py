"""Checks of citations against `sources`, given or opened: ``cites``, ``quotes`` and ``supported``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from statistics import fmean
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.prose import (
    BRACKETS,
    QUOTATION,
    QUOTED,
    WORD,
    cited_ids,
    occurs_in,
    paragraphs,
    plain,
    report_citations,
    sentences,
)
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sources import sources


class Cites(Args):
    """``min``: distinct documents to cite for full credit."""

    min: int = Field(default=1, ge=1)


@check("cites", Cites, version=6)
def cites(completion: Completion, prompt: Prompt, args: Cites) -> float:
    """Return min(1, cited/min) × cited/(cited + unknown), over distinct ids.

    Citations are ``[id]``, ``[a, b]`` and ``[a; b]``. Code, links and subscripts (``a[i]``) are not.
    """
    known = sources(prompt, completion).keys()
    named = report_citations(completion.text, known)
    cited = len(named & known)
    return min(1.0, cited / args.min) * cited / len(named) if named else 0.0


class Quotes(Args):
    """``min``: true quotations for full credit. ``words``: shorter passages in quotation marks do not count.

    ``passages``: what must be quoted, in place of ``min``.
    ``cited``: a passage must occur in half or more of the documents that are cited with it: in its sentence, else in
    its paragraph. Otherwise in any document.
    """

    min: int = Field(default=1, ge=1)
    words: int = Field(default=4, ge=1)
    passages: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(default=None, min_length=1)
    cited: bool = True


@check("quotes", Quotes, version=9)
def quotes(completion: Completion, prompt: Prompt, args: Quotes) -> CheckResult:
    """Return min(1, true/min) × true/all, over distinct passages in quotation marks and block quotes.

    With ``passages`` the first factor is the mean share of their words that one true quotation has in a row.

    A passage is true where it occurs word for word in the document that is cited with it, or, so that a list of
    citations does not find it a source, in half of them. White space, case, the shape
    of quotation marks and dashes, and punctuation at the ends of a passage do not matter.
    """
    known = {name: plain(text) for name, text in sources(prompt, completion).items()}
    true, false = set[str](), dict[str, str]()
    for quoted, ids in _quoted(completion.text, known):
        passage = plain(quoted).strip(" .,;:…'")
        if len(passage.split()) >= args.words:
            among = known.keys() & (ids if args.cited else known)
            places = sum(occurs_in(known[name], passage) for name in among)
            if places and (2 * places >= len(ids) or not args.cited):
                true.add(passage)
            else:
                false[passage] = "not in the document cited" if ids else "no document cited"
    count = len(true | false.keys())
    lines = [f"{problem}: {passage[:120]}" for passage, problem in sorted(false.items()) if passage not in true]
    shares = [max((_shared(passage, one, args.words) for one in true), default=0) for passage in args.passages or ()]
    first = fmean(shares) if shares else min(1.0, len(true) / args.min)
    value = first * len(true) / count if count else 0.0
    return CheckResult(value, "\n".join([f"{len(true)} of {count} quoted passages", *lines[:20]]))


def _shared(passage: str, quotation: str, least: int) -> float:
    """Return the share of a passage's words that a quotation has in a row; 0 for fewer words than ``least``."""
    words = WORD.findall(plain(passage))
    run = SequenceMatcher(None, words, WORD.findall(quotation), autojunk=False).find_longest_match().size
    return run / len(words) if run >= min(least, len(words)) else 0.0


def _quoted(text: str, known: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each quotation with the ids that are cited on one side of it in its sentence, or else in its paragraph."""
    for paragraph in paragraphs(text):
        passages = iter([_split_tail(match)[0] for match in QUOTED.finditer(paragraph)])
        prose = QUOTED.sub(lambda match: QUOTATION + _split_tail(match)[1], paragraph)
        anywhere = cited_ids(prose, known)
        for sentence in sentences(prose):
            gaps = [cited_ids(gap, known) for gap in sentence.split(QUOTATION)]
            leads, trails = bool(gaps[0]), bool(gaps[-1])
            for before, after in pairwise(gaps):
                near = before | after if leads and trails else (before or after) if leads else (after or before)
                yield next(passages), near or anywhere


def _split_tail(quotation: re.Match[str]) -> tuple[str, str]:
    """Split the citations at the end of a quotation, within the quotation marks, or its full stop, from the passage."""
    text = inside = quotation[quotation.lastindex or 0]
    while (bare := text.rstrip(" .,;\n\t")).endswith("]") and (start := bare.rfind("[")) > 0:
        text = bare[:start]
    return text, inside[len(text) :] or (inside[-1] if inside[-1] in ".!?…" else "")


class Supported(Args):
    """``min``: the share of sentences for full credit. ``words``: shorter sentences need no support.

    ``overlap``: the share of a sentence's words of over three letters that must occur in the cited documents.
    """

    min: float = Field(default=1.0, gt=0.0, le=1.0)
    words: int = Field(default=5, ge=1)
    overlap: float = Field(default=0.0, ge=0.0, le=1.0)


@check("supported", Supported, version=5)
def supported(completion: Completion, prompt: Prompt, args: Supported) -> CheckResult:
    """Return the share of sentences with citations that all resolve, over ``min``.

    Headings and code are no sentences. Whether the document supports the sentence is for a judge to decide.
    """
    known = {name: set(WORD.findall(plain(text))) for name, text in sources(prompt, completion).items()}
    every = [sentence for paragraph in paragraphs(completion.text) for sentence in sentences(paragraph)]
    checked = [sentence for sentence in every if len(BRACKETS.sub(" ", sentence).split()) >= args.words]
    unmet = [sentence for sentence in checked if not _is_supported(sentence, known, args.overlap)]
    met = len(checked) - len(unmet)
    lines = [f"without support: {sentence.strip()[:120]}" for sentence in unmet[:20]]
    value = min(1.0, met / len(checked) / args.min) if checked else 0.0
    return CheckResult(value, "\n".join([f"{met} of {len(checked)} sentences", *lines]))


def _is_supported(sentence: str, known: dict[str, set[str]], overlap: float) -> bool:
    named = cited_ids(sentence, known)
    if not named or not named <= known.keys():
        return False
    words = [word for word in WORD.findall(plain(BRACKETS.sub(" ", sentence))) if len(word) > 3]
    cited = set().union(*(known[name] for name in named))
    return sum(word in cited for word in words) >= overlap * len(words)
