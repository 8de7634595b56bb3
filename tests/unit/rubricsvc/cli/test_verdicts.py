from __future__ import annotations

import pytest

from rubricsvc.cli.verdicts import why
from rubricsvc.core.verdict import Evidence, Verdict


@pytest.mark.parametrize(
    ("starts", "words"),
    [([0, None], "[1 of 2 quotes not in the answer] So it is."), ([0], "So it is."), ([], "So it is.")],
)
def test_a_quote_that_is_not_there_is_marked(starts: list[int | None], words: str) -> None:
    quotes = tuple(Evidence(quote="q", start=start, end=start and start + 1) for start in starts)
    assert why(Verdict.scored("c", 1.0, rationale="So it is.", evidence=quotes)) == words


def test_what_there_is_to_say_of_a_scored_verdict_is_said() -> None:
    torn = "the two orders disagree in 2 of 3 pairs"
    assert why(Verdict.scored("c", 0.5, detail=torn)) == f"[{torn}]"
    assert why(Verdict.scored("c", 0.5, detail=torn, rationale="A.")) == f"[{torn}] A."
    assert why(Verdict.failed("c", "timeout", detail="slow")) == "timeout: slow"
