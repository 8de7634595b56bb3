"""The demo's questions and rubrics: as many and as made as the demo promises, and answerable from their passages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rubricsvc.cli.demo.questions import FILE, PASSAGE_WORDS, Question, questions
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import load
from trainer.environments.documents import Documents, python_docstrings, python_reference
from trainer.prompting import with_documents
from workers import checks


def _questions() -> list[Question]:
    with Documents() as documents:
        documents.add(python_reference())
        documents.add(python_docstrings())
        return questions(documents)


QUESTIONS = _questions()
each = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)


def terms(criteria: Iterable[Criterion]) -> list[str]:
    found: list[str] = []
    for criterion in criteria:
        if criterion.check and criterion.key in ("names", "wording"):
            given = criterion.check.args["terms"]
            assert isinstance(given, list)
            found += map(str, given)
    return found


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    held_out = [question for question in QUESTIONS if question.held_out]
    assert len(QUESTIONS) - len(held_out) >= 12
    assert len(held_out) >= 4
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS)
    assert len({question.rubric.digest for question in QUESTIONS}) == len(QUESTIONS)


@each
def test_the_rubric_is_made_with_care(question: Question) -> None:
    criteria = question.rubric.criteria
    assert 5 <= len(criteria) <= 9
    assert {criterion.kind for criterion in criteria} == {"judged", "checked"}
    assert min(criterion.weight for criterion in criteria) < 0 < max(criterion.weight for criterion in criteria)
    assert sum(criterion.required for criterion in criteria) == 1
    assert all(criterion.text[0].isupper() and criterion.text.endswith(".") for criterion in criteria)
    checks.validate(question.rubric)


@each
def test_the_passages_hold_what_the_rubric_asks_for(question: Question) -> None:
    """So that an answer can be found in them. A word or two may be put otherwise in another version of Python."""
    text = " ".join(document.text for document in question.prompt.documents).casefold()
    asked = terms(question.rubric.criteria)
    there = [term for term in asked if term.casefold() in text]
    assert len(there) >= 0.6 * len(asked), sorted(set(asked) - set(there))


@each
def test_the_prompt_is_short_and_its_documents_are_numbered(question: Question) -> None:
    documents = question.prompt.documents
    assert [document.id for document in documents] == [str(n) for n in range(1, len(documents) + 1)]
    assert 1 <= sum(len(document.text.split()) for document in documents) <= PASSAGE_WORDS + 50
    assert with_documents(question.prompt).text.startswith("[1] ")
    assert question.text in question.prompt.text
    assert "[1]" not in question.prompt.text.removesuffix("[1].")


@each
def test_the_reference_answer_meets_the_checks(question: Question) -> None:
    """The rubric must be kind to the answer that its author holds for good, once that cites the document."""
    answer = Completion(text=f"{question.prompt.reference} [1]")
    verdicts = checks.run(question.rubric, question.prompt, answer)
    judged = [
        Verdict.scored(criterion.key, float(criterion.weight > 0))
        for criterion in question.rubric.criteria
        if criterion.kind == "judged"
    ]
    found = reward(question.rubric, [*verdicts, *judged])
    assert found.vetoed_by is None
    assert found.value is not None and found.value >= 0.75, {v.criterion: v.value for v in verdicts}


@each
def test_an_empty_answer_and_mere_chatter_get_nothing(question: Question) -> None:
    for text in ("", "I hope this helps! Let me know if you have more questions."):
        verdicts = checks.run(question.rubric, question.prompt, Completion(text=text))
        judged = [Verdict.scored(c.key, 0.5) for c in question.rubric.criteria if c.kind == "judged"]
        assert reward(question.rubric, [*verdicts, *judged]).value == 0.0


def test_the_file_is_one_that_people_can_import() -> None:
    records = load(FILE)
    assert all(record.prompt and record.prompt.reference and record.rubric for record in records)
