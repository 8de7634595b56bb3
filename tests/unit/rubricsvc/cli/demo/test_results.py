"""The figures of the demo."""

from __future__ import annotations

import pytest

from rubricsvc.cli.demo.results import CriterionResult, QuestionResult, by_key, mean_change
from rubricsvc.cli.demo.summary import reason
from rubricsvc.core.rubric import Check, Criterion
from rubricsvc.core.verdict import Verdict


def question(before: list[float | None], after: list[float | None]) -> QuestionResult:
    return QuestionResult("q", "Q?", held_out=False, before=before, after=after)


def test_mean_change_uses_questions_with_rewards_before_and_after() -> None:
    change = mean_change([question([0.1, None], [0.2]), question([0.2], [0.5]), question([None], [0.9])])
    assert change is not None
    assert [change.mean, change.standard_error, change.questions] == pytest.approx([0.2, 0.1, 2])
    assert mean_change([question([0.1], [0.2]), question([0.1], [None])]) is None


def test_by_key_averages_over_questions() -> None:
    cites = Criterion(key="cites", text="Cites.", weight=4)
    rows = [
        CriterionResult("one", cites, 0.2, 1.0),
        CriterionResult("one", Criterion(key="length", text="Is short."), 1.0, 0.5),
        CriterionResult("two", cites.model_copy(update={"text": "Cites it."}), 0.4, None),
    ]
    first, second = by_key(rows)
    assert first.criterion == cites and [first.before, first.after] == pytest.approx([0.3, 1.0])
    assert (second.criterion.key, second.before, second.after) == ("length", 1.0, 0.5)


def test_reason_is_the_failure_rationale_or_check() -> None:
    judged = Criterion(key="c", text="Is good.")
    terms = judged.model_copy(update={"check": Check(name="contains", args={"terms": ["a\n", "b"], "mode": "share"})})
    scored = Verdict.scored("c", 0.5, probability=0.5)
    assert reason(terms, scored) == 'contains: terms "a\\n", "b"; mode "share"'
    assert reason(judged.model_copy(update={"check": Check(name="cites")}), scored) == "cites"
    assert reason(judged, scored) == "the judge's P(yes)"
    assert reason(judged, Verdict.scored("c", 0.5, rationale="So it is.")) == "So it is."
    assert reason(judged, Verdict.failed("c", "timeout", detail="after 60 s")) == "after 60 s"
    assert reason(judged, Verdict.abstained("c")) == ""
