from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import yaml

from recipes.embedded_judge.everyday import everyday_answers
from recipes.embedded_judge.hard_negatives import hard_negatives, texts
from recipes.embedded_judge.swapped import swapped
from trainer.judge_training.examples import questions
from workers.audit.cases import built_in

ON_CONTENT = list(swapped(everyday_answers(), 0, 100, negated=0.5))
AROUND = {"injection_in", "echo_in", "praise_in", "frame_in"}


def test_hard_negatives_around_a_completion_keep_its_labels() -> None:
    labels = {(e.prompt.text, e.completion.text, t.criterion.text): t.value for e, t in questions(ON_CONTENT)}
    around = [
        (example, target)
        for example, target in questions(hard_negatives(ON_CONTENT, 0, 400))
        if target.variant in AROUND
    ]
    for example, target in around:
        known = [
            value
            for (prompt, completion, text), value in labels.items()
            if prompt == example.prompt.text and completion in example.completion.text and text == target.criterion.text
        ]
        assert target.value in known
    values = [target.value for _, target in around]
    assert 0.4 < sum(values) / len(values) < 0.6


def test_everyday_questions_are_not_those_of_the_audit() -> None:
    tasks = {case.prompt.text.casefold() for case in built_in()}
    assert not tasks & {answer.prompt.text.casefold() for answer in everyday_answers()}


def test_texts_are_not_those_of_the_audit() -> None:
    """The audit stays a test of what was not trained on."""
    ours = {" ".join(text.split()).casefold() for kind in texts().values() for text in kind} - {""}
    suites = Path(str(files("workers.audit").joinpath("suites"))).rglob("*.yaml")
    for suite in suites:
        for attack in yaml.safe_load(suite.read_text(encoding="utf-8"))["attacks"]:
            assert " ".join(attack["text"].split()).casefold() not in ours, (suite.name, attack["id"])
    marks = {mark.replace("{Criterion}", "{}") for mark in texts()["list_marks"]}
    assert not marks & {"- {}", "[x] {}", "{} Yes.", "“{}”"}  # as workers.audit.suites fills them in
