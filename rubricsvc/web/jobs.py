"""The page of a job: what each completion got, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rubricsvc import __version__
from rubricsvc.core.contributions import Contribution
from rubricsvc.services.job_items import ItemDetail
from rubricsvc.services.job_results import CriterionTotals, JobResults
from rubricsvc.web.pages import render, weight
from rubricsvc.web.quotes import QuoteSpan, Segment, locate, segments

ROWS_SHOWN, MAX_ROWS = 12, 60
"""Rows of the tables of criteria, the largest gains first: at once, and after a click."""
MAX_NAMES = 12
"""Rubrics, policies and reasons that are listed."""
TEXT_CHARS = 20_000
"""Characters shown of a prompt or a completion."""


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

    @property
    def most_gain(self) -> float:
        """The largest gain of its criteria."""
        return max((row.part.gain or 0.0 for row in self.rows), default=0.0)


def render_job(results: JobResults) -> str:
    """Return the page of a job as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "job.html.j2",
        weights_text=weights_text,
        cut=cut_text,
        results=results,
        job=results.job,
        worst=[view(detail) for detail in results.worst],
        best=[view(detail) for detail in results.best],
        missing=[view(detail) for detail in results.without_reward],
        rows_shown=ROWS_SHOWN,
        max_rows=MAX_ROWS,
        max_names=MAX_NAMES,
        version=__version__,
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


def weights_text(row: CriterionTotals) -> str:
    """Return the weight of a criterion, or the lowest and the highest if rubrics differ."""
    return " to ".join(map(weight, sorted({min(row.weights), max(row.weights)})))


def cut_text(text: str) -> str:
    """Return the beginning of a text, with a note how much is left out."""
    rest = len(text) - TEXT_CHARS
    return text if rest <= 0 else f"{text[:TEXT_CHARS]}… ({rest:,} more characters)"
