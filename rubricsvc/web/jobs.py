"""The page of a job: what each completion got, and why."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rubricsvc.core.reward import Contribution
from rubricsvc.core.verdict import Evidence
from rubricsvc.services.job_results import ItemDetail, JobResults
from rubricsvc.web.pages import render

ROWS_SHOWN, MAX_ROWS = 12, 60
"""Rows of the tables of criteria, the largest gains first: at once, and after a click."""
MAX_NAMES = 12  # rubrics, policies and reasons that are listed
TEXT_CHARS = 20_000  # characters shown of a prompt or a completion


class QuoteSpan(NamedTuple):
    """A quoted part of a text, and the number of the criterion that it is evidence for."""

    start: int
    end: int
    number: int


class Segment(NamedTuple):
    """A part of a text that the same quotes cover; ``ends`` are the criteria whose quote ends with it."""

    text: str
    numbers: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class CriterionView:
    """A row of the verdicts on a completion; ``missing`` are the quotes that its text does not have."""

    number: int
    part: Contribution
    missing: Sequence[str]


@dataclass(frozen=True)
class CompletionView:
    """A completion with its quotes marked; ``omitted`` counts the characters that are not shown."""

    detail: ItemDetail
    text: Sequence[Segment]
    omitted: int
    rows: Sequence[CriterionView]


def render_job(results: JobResults) -> str:
    """Return the page of a job as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "job.html.j2",
        text_chars=TEXT_CHARS,
        results=results,
        job=results.job,
        worst=[view(detail) for detail in results.worst],
        best=[view(detail) for detail in results.best],
        missing=[view(detail) for detail in results.without_reward],
        rows_shown=ROWS_SHOWN,
        max_rows=MAX_ROWS,
        max_names=MAX_NAMES,
        total_gain=sum(row.gain for row in results.criteria) or 1.0,
    )


def view(detail: ItemDetail) -> CompletionView:
    """Return a completion with its quotes marked and its verdicts in the rubric's order."""
    full = detail.completion.full_text
    text = full[:TEXT_CHARS]
    spans: list[QuoteSpan] = []
    rows = []
    for place, part in enumerate(detail.parts, 1):
        missing = []
        for quote in part.verdict.evidence if part.verdict else ():
            at = locate(full, quote, is_original=not detail.completion.messages)
            if at is None:
                missing.append(quote.quote)
            else:
                spans.append(QuoteSpan(*at, place))
        rows.append(CriterionView(place, part, missing))
    return CompletionView(detail, segments(text, spans), len(full) - len(text), rows)


def locate(text: str, quote: Evidence, *, is_original: bool) -> tuple[int, int] | None:
    """Return where ``text`` has the quote; None if it does not.

    The offsets of a quote count in the completion's text, the ``original``; elsewhere the quote is searched, ignoring
    white space.
    """
    if quote.start is None or quote.end is None:
        return None
    if is_original:
        return (quote.start, quote.end) if 0 <= quote.start < quote.end <= len(text) else None
    found = re.search(r"\s+".join(map(re.escape, quote.quote.split())), text) if quote.quote.split() else None
    return found.span() if found else None


def segments(text: str, spans: Iterable[QuoteSpan]) -> list[Segment]:
    """Split a text where a quote begins or ends, so that overlapping quotes are nested nowhere."""
    inside = (one for one in spans if one.start < len(text) and one.end > 0)
    spans = [QuoteSpan(max(one.start, 0), min(one.end, len(text)), one.number) for one in inside]
    cuts = sorted({0, len(text), *(edge for one in spans for edge in one[:2])})
    opening: dict[int, list[QuoteSpan]] = {}
    for span in spans:
        opening.setdefault(span.start, []).append(span)
    found: list[Segment] = []
    covering: list[QuoteSpan] = []
    for start, end in pairwise(cuts):
        covering = [one for one in (*covering, *opening.get(start, ())) if one.end > start]
        numbers = tuple(sorted({one.number for one in covering}))
        ends = tuple(sorted({one.number for one in covering if one.end == end}))
        found.append(Segment(text[start:end], numbers, ends))
    return found
