"""What candidates share of the verdicts, and what the judge must be asked."""

from __future__ import annotations

import numpy as np

from rubricsvc.core.evolution import Candidate
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.services.evolution_columns import VerdictColumns

A, B = Criterion(key="a", text="Is a.", weight=2.0), Criterion(key="b", text="Is b.", weight=-1.0, required=True)
SHORT = Criterion(key="s", text="Is short.", check=Check(name="words", args={"max": 9}))
NEW = Criterion(key="n", text="Is new.", weight=3.0)
IDS = np.array([11, 12, 13])
VALUES = np.array([[0.2, 0.8, 1.0], [0.6, np.nan, 0.0], [0.5, 0.1, 1.0]])
ALL = np.ones(3, bool)


def candidate(*criteria: Criterion, **fields: object) -> Candidate:
    return Candidate(rubric=Rubric(criteria=criteria), **fields)  # type: ignore[arg-type]


def columns(**fields: object) -> VerdictColumns:
    judge = Judge.model_validate({"name": "j", "model": "m"} | fields)
    found = VerdictColumns(judge, IDS)
    found.add(candidate(A, B, SHORT), IDS, VALUES)
    return found


def test_columns_ask_nothing_about_other_weights_keys_and_subsets() -> None:
    changed = candidate(A.model_copy(update={"weight": 9.0, "key": "other"}), SHORT, threshold=0.5)
    known = columns()
    assert list(known.to_ask([changed], ALL)) == []
    assert known.values(changed).tolist() == [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]


def test_columns_keep_failed_verdicts_missing_without_asking_again() -> None:
    known = columns()
    one = candidate(A, B, threshold=0.5)
    assert list(known.to_ask([one], ALL)) == [] and np.isnan(known.values(one)[1, 1])
    assert np.isnan(known.outcome(one).rewards[1])


def test_columns_ask_a_new_question_once_for_all_candidates() -> None:
    known = columns()
    several = [candidate(A, NEW), candidate(B, NEW.model_copy(update={"weight": -5.0})), candidate(A, B)]
    ((asked, rows),) = known.to_ask(several, np.array([True, False, True]))
    assert [one.text for one in asked.rubric.criteria] == ["Is new."] and asked.template is None
    assert rows.tolist() == [True, False, True]
    known.add(asked, IDS[:1], np.array([[0.9]]))
    ((_, rest),) = known.to_ask(several, ALL)
    assert rest.tolist() == [False, True, True]
    assert known.values(candidate(A, NEW))[0].tolist() == [0.2, 0.9]


def test_columns_ask_all_judged_criteria_under_another_template() -> None:
    ((asked, rows),) = columns().to_ask([candidate(A, SHORT, template="readout_short")], ALL)
    assert ([one.text for one in asked.rubric.criteria], asked.template) == (["Is a."], "readout_short")
    assert rows.all() and not any(one.required for one in asked.rubric.criteria)


def test_columns_ask_whole_rubrics_if_a_call_has_several_criteria() -> None:
    known = columns(mode="written", criteria_per_call=0)
    assert list(known.to_ask([candidate(B, SHORT, A)], ALL)) != []
    assert list(known.to_ask([candidate(A, B, SHORT, threshold=0.4)], ALL)) == []
    several = [candidate(A), candidate(A.model_copy(update={"weight": 7.0}))]
    ((asked, _),) = known.to_ask(several, ALL)
    assert asked == several[0]
