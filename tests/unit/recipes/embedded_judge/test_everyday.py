from __future__ import annotations

from collections import Counter
from statistics import mean

from recipes.embedded_judge.edits import sentences
from recipes.embedded_judge.everyday import entries, everyday_answers, everyday_criteria
from recipes.embedded_judge.swapped import _shared_words
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


def test_everyday_facts_of_the_prompt_are_met_only_where_the_completion_has_them() -> None:
    sentence = {
        text: sentence
        for entry in entries()
        for text, sentence in zip(entry.criteria, sentences(entry.answer), strict=True)
    }
    values = [
        target.value
        for example, target in questions(everyday_criteria(0, 1000))
        if not target.family and sentence[target.criterion.text] in example.prompt.text
    ]
    assert len(values) > 300
    assert 0.4 < mean(values) < 0.6


def test_everyday_sentences_asked_about_in_full_are_met_where_they_occur() -> None:
    asked = [(e, t) for e, t in questions(everyday_criteria(0, 1000)) if t.family == "everyday_sentence"]
    for example, target in asked:
        sentence = target.criterion.text.partition('"')[2].removesuffix('"')
        assert target.value == float(sentence in example.completion.text)
    assert 0.4 < mean(target.value for _, target in asked) < 0.6


def test_everyday_contraries_share_words_with_the_criterion_that_they_do_not_meet() -> None:
    contraries = [
        (_shared_words(target.criterion.text, example.completion.text), target.value)
        for example, target in questions(everyday_criteria(0, 1000))
        if target.variant == "contrary" and not target.family
    ]
    unmet = mean(share for share, value in contraries if value == 0)
    met = mean(share for share, value in contraries if value == 1)
    assert unmet > 0.8 * met


def test_everyday_criteria_are_deterministic() -> None:
    assert list(everyday_criteria(2, 30)) == list(everyday_criteria(2, 30))


def test_everyday_agrees_with_the_reference_unless_a_sentence_is_the_contrary() -> None:
    asked = [(e, t) for e, t in questions(everyday_criteria(0, 1000)) if t.family == "agrees"]
    groups = (answer.split_group for answer in everyday_answers())
    contraries = {group: entry.contrary for group, entry in zip(groups, entries(), strict=True)}
    assert {target.value for _, target in asked} == {0.0, 1.0}
    for example, target in asked:
        assert example.prompt.reference
        assert target.value == float(contraries[example.split_group] not in example.completion.text)
