from __future__ import annotations

from itertools import islice

import pytest

from recipes.embedded_judge.checks import Question, _Maker
from recipes.embedded_judge.documents import document_answers
from recipes.embedded_judge.everyday import everyday_answers
from rubricsvc.core.rubric import Criterion, Rubric
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
