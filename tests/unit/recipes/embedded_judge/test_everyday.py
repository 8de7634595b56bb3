from __future__ import annotations

from collections import Counter
from statistics import mean

from recipes.embedded_judge.edits import sentences
from recipes.embedded_judge.everyday import entries, everyday_answers, everyday_criteria
from trainer.judge_training.examples import questions


def test_entries_have_a_criterion_for_each_of_two_sentences() -> None:
    assert len(entries()) > 200
    for entry in entries():
        assert len(sentences(entry.answer)) == 2, entry.question
        assert len(list(filter(None, entry.criteria))) == 2, entry.question
        assert entry.contradicted in (0, 1)
        assert len(sentences(entry.contrary)) == 1, entry.question
    assert not [text for text, n in Counter(entry.question for entry in entries()).items() if n > 1]


def test_everyday_criteria_are_met_by_the_sentence_that_belongs_to_them() -> None:
    owner = {
        (answer.split_group, text): sentence
        for entry, answer in zip(entries(), everyday_answers(), strict=True)
        for text, sentence in zip(entry.criteria, sentences(entry.answer), strict=True)
    }
    asked = [(e, t) for e, t in questions(everyday_criteria(0, 1000)) if not t.family]
    for example, target in asked:
        says = owner[example.split_group, target.criterion.text] in example.completion.text
        assert target.value == float(says)
    assert 0.45 < mean(target.value for _, target in asked) < 0.55
    assert len({target.variant for _, target in asked}) == 7
