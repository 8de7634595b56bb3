from __future__ import annotations

from collections import Counter
from statistics import mean

from trainer.judge_training.data.edits import sentences
from trainer.judge_training.data.everyday import entries, everyday_criteria
from trainer.judge_training.examples import questions


def test_entries_have_a_criterion_for_each_of_two_sentences() -> None:
    assert len(entries()) > 200
    for entry in entries():
        assert len(sentences(entry.answer)) == 2, entry.question
        assert all(entry.criteria), entry.question
    assert not [text for text, n in Counter(entry.question for entry in entries()).items() if n > 1]


def test_everyday_criteria_are_met_by_the_sentence_that_belongs_to_them() -> None:
    owner = {
        (entry.question, text): sentence
        for entry in entries()
        for text, sentence in zip(entry.criteria, sentences(entry.answer), strict=True)
    }
    asked = list(questions(everyday_criteria(0, 1000)))
    for example, target in asked:
        says = owner[example.prompt.text, target.criterion.text] in example.completion.text
        assert target.value == float(says)
    assert 0.45 < mean(target.value for _, target in asked) < 0.55
    assert len({target.variant for _, target in asked}) == 5


def test_everyday_criteria_are_deterministic() -> None:
    assert list(everyday_criteria(2, 30)) == list(everyday_criteria(2, 30))
