"""What the demo computes of what it finds."""

from __future__ import annotations

import pytest

from rubricsvc.cli.demo.figures import CriterionResult, QuestionResult, by_key, change
from rubricsvc.cli.demo.results import why
from rubricsvc.core.rubric import Check, Criterion
from rubricsvc.core.verdict import Verdict


def question(before: list[float | None], after: list[float | None]) -> QuestionResult:
    return QuestionResult("q", "Q?", held_out=False, before=before, after=after)


def test_a_change_is_over_the_questions_that_have_a_reward_at_both_ends() -> None:
    found = change([question([0.1, None], [0.2]), question([0.2], [0.5]), question([None], [0.9])])
    assert found is not None
    assert [found.mean, found.standard_error, found.questions] == pytest.approx([0.2, 0.1, 2])
    assert change([question([0.1], [0.2]), question([0.1], [None])]) is None


def test_a_criterion_of_many_rubrics_is_told_as_the_mean_over_them() -> None:
    cites = Criterion(key="cites", text="Cites.", weight=4)
    rows = [
        CriterionResult("one", cites, 0.2, 1.0),
        CriterionResult("one", Criterion(key="length", text="Is short."), 1.0, 0.5),
        CriterionResult("two", cites.model_copy(update={"text": "Cites it."}), 0.4, None),
    ]
    first, second = by_key(rows)
    assert first.criterion == cites and [first.before, first.after] == pytest.approx([0.3, 1.0])
    assert (second.criterion.key, second.before, second.after) == ("length", 1.0, 0.5)


def test_why_a_verdict_is_what_it_is() -> None:
    judged = Criterion(key="c", text="Is good.")
    terms = judged.model_copy(update={"check": Check(name="contains", args={"terms": ["a\n", "b"], "mode": "share"})})
    scored = Verdict.scored("c", 0.5, probability=0.5)
    assert why(terms, scored) == 'contains: terms "a\\n", "b"; mode "share"'
    assert why(judged.model_copy(update={"check": Check(name="cites")}), scored) == "cites"
    assert why(judged, scored) == "the judge's P(yes)"
    assert why(judged, Verdict.scored("c", 0.5, rationale="So it is.")) == "So it is."
    assert why(judged, Verdict.failed("c", "timeout", detail="after 60 s")) == "after 60 s"
    assert why(judged, Verdict.abstained("c")) == ""
