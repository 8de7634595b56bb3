"""Generators of questions with known answers."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np
import pytest
import yaml

from bench.bench_claims import untrained_alterations
from recipes.embedded_judge.alterations import ALTERATIONS, alterations
from recipes.embedded_judge.answers import (
    COMPLETE,
    CONCISE,
    ON_TOPIC,
    READABLE,
    RIGHT,
    arithmetic,
    damaged,
    everyday_answers,
    swapped,
)
from recipes.embedded_judge.checks import Question, _Maker
from recipes.embedded_judge.derived import HARD, hard_negatives, scales
from recipes.embedded_judge.statements import document_answers, passages, statements, topics
from rubricsvc.collections.sources import python_reference
from rubricsvc.core.prompt import Completion, Document, Message, Prompt
from rubricsvc.core.rubric import Criterion, Numeric, Ordinal, Rubric
from rubricsvc.stats import agreement as agreement_metrics
from trainer.judge_training.data import Example, Target, questions
from workers import checks
from workers.audit.cases import built_in


def test_arithmetic_labels_agree_with_the_numbers_of_completion_and_reference() -> None:
    for example in arithmetic(0, 600, negated=0.5):
        [given], [reached] = (
            set(re.findall(r"\d+", text.replace("*", " "))[-1:])
            for text in (example.prompt.reference or "", example.completion.text)
        )
        right, stated = sorted(example.targets, key=lambda one: one.family)
        negated = right.criterion.text.rstrip(".") in RIGHT.unmet
        assert right.value == float((given == reached) != negated)
        assert stated.value == float(re.findall(r"\d+", stated.criterion.text) == [reached])


COUNT = 400


@pytest.fixture(scope="module")
def asked() -> list[tuple[Example, tuple[Question, ...]]]:
    maker = _Maker([*everyday_answers(), *document_answers(0, 50)], 0, negated=0.4)
    return list(islice(filter(None, (maker.make() for _ in range(10 * COUNT))), COUNT))


def test_checks_in_words_labels_are_results_of_the_checks(asked: list[tuple[Example, tuple[Question, ...]]]) -> None:
    """Asked of `workers.checks.run`, which scores checked criteria in the service."""
    for example, those in asked[:150]:
        rubric = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=q.text, check=q.check) for n, q in enumerate(those)))
        for verdict, question, target in zip(
            checks.run(rubric, example.prompt, example.completion), those, example.targets, strict=True
        ):
            assert verdict.value is not None, verdict.detail
            assert target.value == (1 - verdict.value if question.negated else verdict.value)
            assert target.criterion.text == question.text and target.criterion.check is None


WORDINGS = (COMPLETE, READABLE, CONCISE)


def test_damaged_asks_about_the_damage_in_both_ways() -> None:
    negated = {text for wordings in WORDINGS for text in wordings.unmet}
    own = {answer.completion.text for answer in everyday_answers()}
    examples = list(damaged(everyday_answers(), 0, 300, negated=0.5))
    for _, target in questions(examples):
        whole = target.value == float(target.criterion.text.rstrip(".") not in negated)
        assert target.variant == ("whole" if whole else "damaged")
    for example in examples:
        if example.completion.text in own:
            assert {target.variant for target in example.targets} == {"whole"}
    assert 0.4 < mean(target.value for _, target in questions(examples)) < 0.6
    for wordings in WORDINGS:
        values = [target.variant == "whole" for _, target in questions(examples) if target.family == wordings.family]
        assert 0.4 < mean(values) < 0.6


ON_CONTENT = list(swapped(everyday_answers(), 0, 100, negated=0.5))
AROUND = {"injection_in", "echo_in", "praise_in", "frame_in"}


def test_hard_negatives_around_a_completion_keep_its_labels() -> None:
    labels = {(e.prompt.text, e.completion.text, t.criterion.text): t.value for e, t in questions(ON_CONTENT)}
    around = [one for one in questions(hard_negatives(ON_CONTENT, 0, 400)) if one[1].variant in AROUND]
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
    ours = {" ".join(text.split()).casefold() for kind in HARD.values() for text in kind} - {""}
    suites = Path(str(files("workers.audit").joinpath("suites"))).rglob("*.yaml")
    for suite in suites:
        for attack in yaml.safe_load(suite.read_text(encoding="utf-8"))["attacks"]:
            assert " ".join(attack["text"].split()).casefold() not in ours, (suite.name, attack["id"])
    marks = {mark.replace("{Criterion}", "{}") for mark in HARD["list_marks"]}
    assert not marks & {"- {}", "[x] {}", "{} Yes.", "“{}”"}  # as workers.audit.suites fills them in


def test_passages_keep_all_words_within_the_length() -> None:
    text = "\n\n".join(
        f"Paragraph {n} has a first sentence. It also has a second one, which is longer." for n in range(9)
    )
    cut = list(passages(Document(id="long", text=text), words=30))
    assert [passage.id for passage in cut[:2]] == ["long", "long.2"]
    assert all(len(passage.text.split()) <= 30 for passage in cut)
    assert " ".join(passage.text for passage in cut).split() == text.split()


def example(*values: float) -> Example:
    targets = tuple(
        Target(Criterion(key=f"c{number}", text=f"Says number {number}."), value) for number, value in enumerate(values)
    )
    prompt = Prompt(messages=(Message(role="user", content="Say numbers."),))
    return Example(prompt, Completion(text="One and two."), targets, "made", group="g")


def test_scales_value_is_the_share_of_criteria_that_are_met() -> None:
    made = list(scales([example(1, 0, 1, 0)], 0, 200))
    for one in made:
        target = one.targets[0]
        joined = target.criterion.text.count("Says number")
        met = sum(text in target.criterion.text for text in ("Says number 0", "Says number 2"))
        assert target.value == met / joined and len(one.targets) == 1 + 4 - joined
        assert one.group == "g"
    kinds = Counter(type(one.targets[0].criterion.scale) for one in made)
    assert kinds[Numeric] > 40 and kinds[Ordinal] > 80


@cache
def made() -> tuple[Example, ...]:
    return tuple(statements(python_reference(), seed=1, count=300, negated=0.1))


def auroc(scores: Sequence[float], values: Sequence[float]) -> float:
    return agreement_metrics.auroc(np.array(scores, dtype=float), np.array(values))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def overlap(example: Example, criterion: str) -> float:
    shared = set(words(example.completion.text))
    asked = words(criterion)
    return sum(word in shared for word in asked) / len(asked)


def test_statements_labels_are_at_chance_given_shared_words() -> None:
    """On answers that say it, in their own words or others, and answers that say the contrary in the same words."""
    asked = [
        (overlap(example, target.criterion.text), target.value)
        for example, target in questions(made())
        if target.family == "says_that" and target.variant in (*ALTERATIONS, "stated", "paraphrased")
    ]
    assert len(asked) > 500
    scores, values = zip(*asked, strict=True)
    assert 0.4 < auroc(scores, values) < 0.6


def test_statements_labels_are_at_chance_given_the_criterion_alone() -> None:
    """A criterion that was met in other examples is as often met as not: no word or length of it shows the label."""
    asked = [(target.criterion.text, target.value) for _, target in questions(made())]
    values = [value for _, value in asked]
    assert 0.45 < sum(values) / len(values) < 0.55
    assert 0.4 < auroc([len(text) for text, _ in asked], values) < 0.6
    altered = ["not" in words(text) or "isn" in words(text) for text, _ in asked]
    assert 0.4 < auroc([float(one) for one in altered], values) < 0.6


def test_alterations_that_the_bench_holds_out_are_not_trained_on() -> None:
    held_out = set[str]()
    for topic in topics(python_reference())[0]:
        for sentence in topic.sentences[:9]:
            made = untrained_alterations(sentence, topic.sentences, Random(0))
            assert not set(made.values()) & set(alterations(sentence, topic.codes, Random(0)).values())
            held_out |= made.keys()
    assert {"word", "splice"} <= held_out and not held_out & set(ALTERATIONS)


def test_statements_leave_out_excluded_texts() -> None:
    sentence = topics(python_reference())[0][0].sentences[0]
    left = topics(python_reference(), exclude=[sentence])[0]
    assert left and not any(sentence in topic.sentences for topic in left)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(swapped(everyday_answers(), 0, 400, negated=0.5))


def test_swapped_labels_follow_from_whose_completion_it_is(examples: list[Example]) -> None:
    own = {answer.prompt.text: answer.completion.text for answer in everyday_answers()}
    for example, target in questions(examples):
        answers = own[example.prompt.text] == example.completion.text
        assert target.variant == "own" if answers else target.variant in ("near", "far")
        negated = target.criterion.text.rstrip(".") in ON_TOPIC.unmet
        assert target.value == float(answers != negated)


def test_swapped_is_met_half_of_the_time_by_each_completion(examples: list[Example]) -> None:
    pairs = zip(examples[::2], examples[1::2], strict=True)  # a completion with its own prompt, and with another one
    assert {sum(target.value for example in pair for target in example.targets) for pair in pairs} == {2.0}
    met = [target.variant == "own" for _, target in questions(examples)]
    assert mean(met) == 0.5
    for text in (*ON_TOPIC.met, *ON_TOPIC.unmet):
        values = [target.value for _, target in questions(examples) if target.criterion.text.rstrip(".") == text]
        assert 0.2 < mean(values) < 0.8, text
