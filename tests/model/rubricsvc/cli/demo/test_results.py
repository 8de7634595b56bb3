"""The figures of the demo."""

from __future__ import annotations

import pytest

from rubricsvc.cli.demo.questions import Question
from rubricsvc.cli.demo.report import reason
from rubricsvc.cli.demo.results import (
    MAX_PARTS,
    QuestionResult,
    ScoredCompletion,
    by_key,
    examples,
    judged_share,
    main_tables,
    mean_change,
)
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from tests.made_passport import made_passport

RUBRIC = Rubric(criteria=[Criterion(key="cites", text="Cites."), Criterion(key="length", text="Is short.")])


def result(
    before: list[float | None], after: list[float | None], rubric: Rubric = RUBRIC, *, held_out: bool = False
) -> QuestionResult:
    question = Question("q", "Q?", Prompt.of("Q?"), rubric, held_out)
    return QuestionResult(question, rubric, *([scored(reward) for reward in part] for part in (before, after)))


def scored(reward: float | None, **values: float) -> ScoredCompletion:
    verdicts = {key: Verdict.scored(key, value) for key, value in values.items()}
    return ScoredCompletion("It is so.", False, reward, None, verdicts)


def test_mean_change_uses_questions_with_rewards_before_and_after() -> None:
    results = [result([0.1, None], [0.2]), result([0.2], [0.5]), result([None], [0.9])]
    assert mean_change(results) == pytest.approx((0.2, 0.1))
    assert mean_change([result([0.1], [0.2]), result([0.1], [None])]) == (None, None)


def test_by_key_averages_over_questions() -> None:
    other = Rubric(criteria=[Criterion(key="cites", text="Cites it.")])
    results = [
        QuestionResult(
            result([], []).question,
            RUBRIC,
            [scored(0.5, cites=0.0, length=1.0), scored(0.5, cites=0.4)],
            [scored(0.5, cites=1.0, length=0.5)],
        ),
        QuestionResult(result([], [], other).question, other, [scored(0.5, cites=0.4)], [scored(None)]),
    ]
    first, second = by_key(results)
    assert first.criterion == RUBRIC.criteria[0] and [first.before, first.after] == pytest.approx([0.3, 1.0])
    assert (second.criterion.key, second.before, second.after) == ("length", 1.0, 0.5)


def test_judged_share_counts_weights_of_written_rubrics_without_their_signs() -> None:
    check = Check(name="cites")
    written = Rubric(
        criteria=[
            Criterion(key="judged", text="Says it.", weight=2),
            Criterion(key="pitfall", text="Claims it.", weight=-1),
            Criterion(key="checked", text="Cites.", check=check),
        ]
    )
    one = result([], [], written)
    generated = QuestionResult(one.question, RUBRIC, [], [])
    assert judged_share([one, generated]) == 0.75


def test_main_tables_are_whole_sets_criteria_like_the_demos_and_parts_of_sets_with_few() -> None:
    made = made_passport()
    (parts_only,) = [table for table in made.tables if not table.whole]
    names = ["says_that", *(f"kind {number}" for number in range(MAX_PARTS))]
    rows = [row.model_copy(update={"part": name}) for name in names for row in parts_only.rows[:8]]
    many = parts_only.model_copy(update={"name": "by criterion", "rows": tuple(rows)})
    found = [
        table.name for table in main_tables(made.model_copy(update={"tables": (made.tables[1], many, parts_only)}))
    ]
    assert found == [made.tables[1].name, "says_that", *(part.name for part in parts_only.parts)]


def test_examples_are_chosen_by_rank_of_change() -> None:
    ranked = [result([0.0], [change]) for change in (0.1, 0.2, 0.3)]
    held_out = result([0.5], [0.0], held_out=True)
    assert examples([ranked[2], held_out, ranked[0], ranked[1]]) == [ranked[1], ranked[2], held_out]


def test_reason_is_the_failure_rationale_or_check() -> None:
    judged = Criterion(key="c", text="Is good.")
    terms = judged.model_copy(update={"check": Check(name="contains", args={"terms": ["a\n", "b"], "mode": "share"})})
    scored = Verdict.scored("c", 0.5, probability=0.5)
    assert reason(terms, scored) == 'contains: terms ["a\\n", "b"]; mode "share"'
    assert reason(judged.model_copy(update={"check": Check(name="cites")}), scored) == "cites"
    assert reason(judged, scored) == "the judge's P(yes)"
    assert reason(judged, Verdict.scored("c", 0.5, rationale="So it is.")) == "So it is."
    assert reason(judged, Verdict.failed("c", "timeout", detail="after 60 s")) == "after 60 s"
    assert reason(judged, Verdict.abstained("c")) == ""
