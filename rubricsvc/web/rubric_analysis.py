"""The page of an analysis of rubrics: criteria, the variance of the reward, correlations, advice."""

from __future__ import annotations

from collections.abc import Sequence

from rubricsvc.core.rubric_analysis import MIN_VERDICTS, RubricAnalysis
from rubricsvc.web.pages import render

MAX_RUBRICS, MAX_CRITERIA, MAX_MAP = 20, 60, 40
"""Rubrics of a page, the most advice first; criteria of a rubric; and criteria in the picture of correlations."""


def render_analysis(found: Sequence[RubricAnalysis]) -> str:
    """Return the page of these analyses as HTML. Texts are escaped, and the page loads nothing."""
    ordered = sorted(found, key=lambda one: -len(one.advice))
    return render(
        "rubric_analysis.html.j2",
        found=ordered[:MAX_RUBRICS],
        total=len(found),
        max_criteria=MAX_CRITERIA,
        max_map=MAX_MAP,
        min_verdicts=MIN_VERDICTS,
    )
