"""The reason of a verdict in a table."""

from __future__ import annotations

import pytest

from rubricsvc.cli.verdicts import reason_of
from rubricsvc.core.verdict import Evidence, Verdict


@pytest.mark.parametrize(
    ("starts", "text"),
    [([0, None], "[1 of 2 quotes not in the completion] So it is."), ([0], "So it is."), ([], "So it is.")],
)
def test_reason_of_counts_quotes_that_are_not_found(starts: list[int | None], text: str) -> None:
    quotes = tuple(Evidence(quote="q", start=start, end=start and start + 1) for start in starts)
    assert reason_of(Verdict.scored("c", 1.0, rationale="So it is.", evidence=quotes)) == text
