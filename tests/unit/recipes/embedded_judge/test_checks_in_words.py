from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

import pytest

from recipes.embedded_judge.checks import CheckFamily, Question, _Maker, check_families, checks_in_words
from recipes.embedded_judge.documents import document_answers
from recipes.embedded_judge.everyday import everyday_answers
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from trainer.judge_training.examples import Example
from workers import checks

COUNT = 400


@pytest.fixture(scope="module")
def asked() -> list[tuple[Example, tuple[Question, ...]]]:
    maker = _Maker([*everyday_answers(), *document_answers(0, 50)], 0, negated=0.4)
    return list(islice(filter(None, (maker.make() for _ in range(10 * COUNT))), COUNT))


def test_checks_in_words_labels_are_the_results_of_the_checks(
    asked: list[tuple[Example, tuple[Question, ...]]],
) -> None:
    """Asked of `workers.checks.run`, which scores checked criteria in the service."""
    for example, questions in asked[:150]:
        rubric = Rubric(
            criteria=tuple(Criterion(key=f"c{n}", text=q.text, check=q.check) for n, q in enumerate(questions))
        )
        for verdict, question, target in zip(
            checks.run(rubric, example.prompt, example.completion), questions, example.targets, strict=True
        ):
            assert verdict.value is not None, verdict.detail
            assert target.value == (1 - verdict.value if question.negated else verdict.value)
            assert target.criterion.text == question.text
            assert target.criterion.check is None


def test_checks_in_words_meets_each_text_as_often_as_not(asked: list[tuple[Example, tuple[Question, ...]]]) -> None:
    surplus, families = Counter[str](), defaultdict(list)
    for example, questions in asked:
        for question, target in zip(questions, example.targets, strict=True):
            surplus[question.form] += 1 if target.value else -1
            families[target.family].append(target.value)
    assert max(map(abs, surplus.values())) <= 4
    assert {family for family in families if not 0.2 < sum(families[family]) / len(families[family]) < 0.8} == set()
    assert len(families) == len(check_families())


def test_checks_in_words_meets_half_of_the_criteria_of_each_completion(
    asked: list[tuple[Example, tuple[Question, ...]]],
) -> None:
    assert {sum(target.value for target in example.targets) / len(example.targets) for example, _ in asked} == {0.5}
    assert {len(example.targets) for example, _ in asked} == {4, 6, 8, 10, 12}


def test_checks_in_words_are_not_decided_by_the_words_of_the_criterion(
    asked: list[tuple[Example, tuple[Question, ...]]],
) -> None:
    """Sum the surplus of each word in one half of the completions, and rank the criteria of the other half by it."""
    surplus = Counter[str]()
    for example, _ in asked[::2]:
        for target in example.targets:
            for word in target.criterion.text.split():
                surplus[word] += 1 if target.value else -1
    rest = [target for example, _ in asked[1::2] for target in example.targets]
    scores = [sum(surplus[word] for word in target.criterion.text.split()) for target in rest]
    met = [score for score, target in zip(scores, rest, strict=True) if target.value]
    unmet = [score for score, target in zip(scores, rest, strict=True) if not target.value]
    pairs = sum((a > b) + (a == b) / 2 for a in met for b in unmet)
    assert 0.42 < pairs / len(met) / len(unmet) < 0.55


def test_checks_in_words_is_deterministic() -> None:
    answers = everyday_answers()
    assert list(checks_in_words(answers, 5, 20, negated=0.4)) == list(checks_in_words(answers, 5, 20, negated=0.4))
    assert list(checks_in_words(answers, 5, 20, negated=0.4)) != list(checks_in_words(answers, 6, 20, negated=0.4))


def test_checks_in_words_keeps_the_group_of_the_prompt() -> None:
    answers = everyday_answers()
    groups = {answer.prompt.text: answer.split_group for answer in answers}
    assert all(groups[example.prompt.text] == example.group for example in checks_in_words(answers, 1, 20, negated=0.4))


def test_checks_in_words_without_completions_is_an_error() -> None:
    with pytest.raises(InvalidError):
        next(checks_in_words([], 0, 1, negated=0.4))


@pytest.mark.parametrize("kind", check_families(), ids=lambda kind: kind.family)
def test_check_family_has_three_wordings_and_three_negated_ones(kind: CheckFamily) -> None:
    assert len(set(kind.wordings)) >= 3
    assert len(set(kind.negated)) >= 3
