"""The demo's questions, their rubrics and their passages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rubricsvc.cli.demo.questions import FORM, QUESTIONS, RULE, SHOWN_WORDS, Question, load_questions
from rubricsvc.core.prompt import Completion, with_documents
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import load
from workers import checks

ALL = load_questions()
each = pytest.mark.parametrize("question", ALL, ids=lambda question: question.name)


def terms(criteria: Iterable[Criterion]) -> list[str]:
    listed: list[str] = []
    for criterion in criteria:
        if criterion.check and criterion.key in ("names", "wording"):
            given = criterion.check.args["terms"]
            assert isinstance(given, list)
            listed += map(str, given)
    return listed


def test_load_questions_returns_enough_distinct_questions() -> None:
    held_out = [question for question in ALL if question.held_out]
    assert len(ALL) - len(held_out) >= 12
    assert len(held_out) >= 4
    assert len({question.name for question in ALL}) == len(ALL)
    assert len({question.text for question in ALL}) == len(ALL)
    assert len({question.rubric.digest for question in ALL}) == len(ALL)


@each
def test_rubric_has_judged_checked_required_and_negative_criteria(question: Question) -> None:
    criteria = question.rubric.criteria
    assert 5 <= len(criteria) <= 10
    assert {criterion.kind for criterion in criteria} == {"judged", "checked"}
    assert min(criterion.weight for criterion in criteria) < 0 < max(criterion.weight for criterion in criteria)
    assert sum(criterion.required for criterion in criteria) == 1
    assert all(criterion.text[0].isupper() and criterion.text.endswith(".") for criterion in criteria)
    checks.validate(question.rubric)


@each
def test_judged_criteria_have_half_of_the_weight_and_are_worded_as_trained(question: Question) -> None:
    criteria = question.rubric.criteria
    judged = [criterion for criterion in criteria if criterion.kind == "judged"]
    assert [criterion.key for criterion in judged] == ["rule", "correct", "mistake"]
    assert all(one.text.startswith(("States the rule that ", "Says that ", "Claims that ")) for one in judged)
    assert [bool(one.reference) for one in judged] == [True, False, False]
    assert question.prompt.reference is None  # a judge is trained on references of criteria
    assert sum(abs(one.weight) for one in judged) == sum(abs(one.weight) for one in criteria) / 2


@each
def test_passages_contain_the_terms_of_the_rubric(question: Question) -> None:
    """Another version of Python may word a term differently."""
    text = " ".join(document.text for document in question.prompt.documents).casefold()
    asked = terms(question.rubric.criteria)
    there = [term for term in asked if term.casefold() in text]
    assert len(there) >= 0.6 * len(asked), sorted(set(asked) - set(there))


@each
def test_prompt_is_short_with_numbered_documents(question: Question) -> None:
    documents = question.prompt.documents
    assert [document.id for document in documents] == [str(n) for n in range(1, len(documents) + 1)]
    assert 1 <= sum(len(document.text.split()) for document in documents) <= SHOWN_WORDS + 50
    assert with_documents(question.prompt).text.startswith("[1] ")
    assert question.text in question.prompt.text
    assert "[1]" not in question.prompt.text.removesuffix("[1].")


@each
def test_reference_answer_meets_the_checks(question: Question) -> None:
    answer = Completion(text=f"{question.rubric.by_key[RULE].reference} [1]")
    verdicts = checks.run(question.rubric, question.prompt, answer)
    judged = [
        Verdict.scored(criterion.key, float(criterion.weight > 0))
        for criterion in question.rubric.criteria
        if criterion.kind == "judged"
    ]
    result = reward(question.rubric, [*verdicts, *judged])
    assert result.vetoed_by is None
    assert result.value is not None and result.value >= 0.75, {v.criterion: v.value for v in verdicts}


@each
def test_reward_of_empty_and_off_topic_completions_is_0(question: Question) -> None:
    for text in ("", "I hope this helps! Let me know if you have more questions."):
        verdicts = checks.run(question.rubric, question.prompt, Completion(text=text))
        judged = [Verdict.scored(c.key, 0.5) for c in question.rubric.criteria if c.kind == "judged"]
        assert reward(question.rubric, [*verdicts, *judged]).value == 0.0


def test_questions_and_form_are_native_files() -> None:
    records = load(QUESTIONS)
    assert all(record.prompt and record.rubric for record in records)
    assert [record.prompt for record in load(FORM)] == [None]
