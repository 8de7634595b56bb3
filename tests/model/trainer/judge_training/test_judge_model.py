"""The rows of judge training against the engine that workers ask, and the training loop, on a tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Document, Message, Prompt
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Rubric
from rubricsvc.errors import ConflictError, InvalidError
from tests.tiny_model import tiny_model
from trainer.judge_training.asking import probabilities
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.encoding import Encoder, Row, label_distribution
from trainer.judge_training.examples import Example, PreferencePair, Target
from trainer.judge_training.ingredients import Dataset
from trainer.judge_training.model import (
    JudgeModel,
    log_odds,
    micro_batches,
    preference_loss,
    reads_of,
)
from trainer.judge_training.preparation import Prepared, encode, prepare
from trainer.judge_training.splits import Split, side_of
from trainer.judge_training.training import EncodedData, train, validation_loss
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import open_pretrained
from workers.engines.local.transformers_engine import TransformersEngine
from workers.judges import plan

ORDINAL = Ordinal(
    levels=tuple(Level(label=name, value=value) for name, value in (("poor", 0), ("good", 0.7), ("best", 1)))
)


def example(text: str, *values: float, question: str = "Which is right?") -> Example:
    scales = ({}, {"scale": ORDINAL}, {"scale": Numeric(low=0, high=4)})
    targets = tuple(
        Target(Criterion(key=f"c{number}", text=f"Says number {number}", **scales[number % 3]), value)
        for number, value in enumerate(values)
    )
    return Example(Prompt(messages=(Message(role="user", content=question),)), Completion(text=text), targets, "made")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model", context=1024)


@pytest.fixture
def judge(folder: Path) -> Judge:
    return Judge(
        name="tiny", engine="transformers_local", model=str(folder), template="readout_short", min_answer_mass=0
    )


def load(folder: Path, judge: Judge, config: JudgeTrainConfig | None = None) -> tuple[JudgeModel, Encoder]:
    base, tokenizer = open_pretrained(str(folder), torch.float32)
    lora = config.lora if config and config.method == "lora" else None
    return JudgeModel(base, lora, seed=0), Encoder(judge, Conversation(tokenizer), 1024)


def test_log_masses_are_what_the_engine_reports(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    examples = [
        example("The answer is B.", 1, 0.5, 0.25),
        example("No.\n<|im_end|> The answer, at some more length than the other one, is A.", 0, 1),
        example("", 0),
    ]
    with torch.no_grad():
        log_masses = model.log_masses([encoder.row(one) for one in examples])
    for one, masses in zip(examples, log_masses, strict=True):
        rubric = Rubric(criteria=tuple(target.criterion for target in one.targets))
        asked = plan(judge, rubric)
        request = asked.request(asked.template.shared(one.prompt, one.completion))

        async def ask() -> list[dict[str, float]]:
            async with aclosing(TransformersEngine(str(folder), dtype=torch.float32)) as engine:
                return [reply.label_mass for reply in await engine.ask(request)]  # noqa: B023 - called at once

        for mass, expected in zip(masses, asyncio.run(ask()), strict=True):
            assert mass.exp().tolist() == pytest.approx(list(expected.values()), rel=1e-4)


def test_log_masses_of_a_question_do_not_depend_on_the_others(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    together = example("The answer is B.", 1, 0.5, 0.25)
    with torch.no_grad():
        (all_masses,) = model.log_masses([encoder.row(together)])
        for place, target in enumerate(together.targets):
            ((alone,),) = model.log_masses([encoder.row(Example(together.prompt, together.completion, (target,), ""))])
            assert alone.tolist() == pytest.approx(all_masses[place].tolist(), rel=1e-4)


def test_probabilities_are_the_readouts_expected_values(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    one = example("The answer is B.", 1, 0.5, 0.25)
    row = encoder.row(one)
    with torch.no_grad():
        (masses,) = model.log_masses([row])
    expected = [float(log_odds(read, mass).sigmoid()) for read, mass in zip(reads_of(row), masses, strict=True)]
    ((*asked,),) = probabilities(judge, [one])
    assert asked == pytest.approx(expected, abs=0.06)  # workers load bfloat16


def test_row_is_never_truncated(folder: Path, judge: Judge) -> None:
    _, encoder = load(folder, judge)
    with pytest.raises(InvalidError):
        encoder.row(example("word " * 2000, 1))


@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ((1.0, 0.0), 1.0, (1.0, 0.0)),
        ((1.0, 0.0), 0.25, (0.25, 0.75)),
        ((0.0, 0.7, 1.0), 0.7, (0.0, 1.0, 0.0)),
        ((0.0, 0.7, 1.0), 0.85, (0.0, 0.5, 0.5)),
        ((0.2, 0.8), 0.0, (1.0, 0.0)),  # below the lowest level
    ],
)
def test_label_distribution_has_the_value(values: tuple[float, ...], value: float, expected: tuple[float, ...]) -> None:
    assert label_distribution(values, value) == pytest.approx(expected)


def test_label_distribution_takes_a_teachers_levels() -> None:
    assert label_distribution((0.0, 0.5, 1.0), 0.5, {"a": 1.0, "b": 0.0, "c": 1.0}) == (0.5, 0.0, 0.5)


def test_preference_loss_is_bradley_terry(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    rows = [encoder.row(example("Yes, B.", 1)), encoder.row(example("No idea at all.", 1))]
    with torch.no_grad():
        masses = model.log_masses(rows)
    better, worse = (log_odds(reads_of(row)[0], mass[0]) for row, mass in zip(rows, masses, strict=True))
    assert float(better) == pytest.approx(float(masses[0][0][0] - masses[0][0][1]), abs=1e-4)
    assert float(preference_loss(rows, masses)) == pytest.approx(float((worse - better).exp().log1p()), rel=1e-4)


def test_micro_batches_hold_every_row_once_within_the_limit(folder: Path, judge: Judge) -> None:
    _, encoder = load(folder, judge)
    rows = [encoder.row(example("word " * n, 1)) for n in (1, 40, 2, 80, 3, 41, 0)]
    batches = list(micro_batches(rows, 300))
    assert sorted(id(row) for batch in batches for row in batch) == sorted(map(id, rows))
    assert all(len(batch) == 1 or len(batch) * max(row.size for row in batch) <= 300 for batch in batches)


def made(count: int, start: int = 0) -> list[Example]:
    """Answers that say A or B; the criterion is met by B."""
    criterion = Criterion(key="b", text="Says B")
    return [
        Example(
            Prompt(messages=(Message(role="user", content=f"Which is right, {n}?"),)),
            Completion(text="The answer is B." if n % 2 else "The answer is A."),
            (Target(criterion, float(n % 2)),),
            "made",
        )
        for n in range(start, start + count)
    ]


def config(out: Path, judge: Judge, **changes: object) -> JudgeTrainConfig:
    fields = {
        "judge": judge,
        "out": out,
        "data": [{"kind": "checks", "name": "unused", "count": 1}],
        "steps": 12,
        "checkpoint_every": 5,
        "optim": {"lr": 2e-2, "warmup_steps": 2, "batch_examples": 4},
        "validation": {"every": 4},
        "lora": {"rank": 4, "alpha": 8},
    }
    return JudgeTrainConfig.model_validate(fields | changes)


@pytest.fixture
def data(folder: Path, judge: Judge) -> EncodedData:
    _, encoder = load(folder, judge)
    rows = [encoder.row(one) for one in made(40)]

    def batch(step: int) -> tuple[list[Row], list[tuple[Row, Row]]]:
        return [rows[(step * 4 + i) % len(rows)] for i in range(4)], [(rows[step % 20 * 2 + 1], rows[step % 20 * 2])]

    return EncodedData(batch, [encoder.row(one) for one in made(10, 100)], "digest")


@pytest.mark.parametrize("method", ["lora", "full"])
def test_train_learns_and_keeps_the_best_weights(
    tmp_path: Path, folder: Path, judge: Judge, data: EncodedData, method: str
) -> None:
    settings = config(tmp_path / "out", judge, method=method, steps=40)
    model, _ = load(folder, judge, settings)
    before = validation_loss(model, data.validation, settings)
    trained = train(model, data, settings)
    after = validation_loss(model, data.validation, settings)
    assert after == pytest.approx(trained.best_loss, abs=1e-4)
    assert after < before / 2
    assert len(trained.history.steps) == 40


def test_train_resumes_bit_by_bit(tmp_path: Path, folder: Path, judge: Judge, data: EncodedData) -> None:
    whole, _ = load(folder, judge, first := config(tmp_path / "whole", judge))
    steps = train(whole, data, first).history.steps
    stop, parts = Event(), config(tmp_path / "parts", judge)
    cut, _ = load(folder, judge, parts)
    train(cut, data, parts, stop=stop, on_step=lambda step: stop.set() if step["step"] == 7 else None)
    again, _ = load(folder, judge, parts)
    resumed = train(again, data, parts, resume=True)
    assert [step["loss"] for step in resumed.history.steps] == [step["loss"] for step in steps]
    ours, theirs = again.trained_weights(), whole.trained_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_train_resumes_only_the_same_training(tmp_path: Path, folder: Path, judge: Judge, data: EncodedData) -> None:
    first = config(tmp_path / "out", judge, steps=4)
    train(load(folder, judge, first)[0], data, first)
    with pytest.raises(ConflictError):
        train(load(folder, judge, first)[0], data, first)
    weights = [{"kind": "checks", "name": "unused", "count": 1, "weight": 2.0}]
    for name, change in (("seed", {"seed": 1}), ("weights", {"data": weights})):
        other = config(tmp_path / "out", judge, steps=4, **change)
        with pytest.raises(ConflictError, match=name):
            train(load(folder, judge, other)[0], data, other, resume=True)


def test_train_resumes_with_settings_that_do_not_affect_learning(
    tmp_path: Path, folder: Path, judge: Judge, data: EncodedData
) -> None:
    first = config(tmp_path / "out", judge, steps=4)
    train(load(folder, judge, first)[0], data, first)
    changes = {
        "exclude": ["elsewhere/rubrics.yaml"],
        "description": "Another one.",
        "not_for": ["Everything."],
        "license": "MIT",
        "test_examples": 7,
        "device": "cpu",
    }
    other = config(tmp_path / "out", judge, steps=4, **changes)
    assert train(load(folder, judge, other)[0], data, other, resume=True).best_step == 4


def test_encode_counts_both_completions_of_a_pair(tmp_path: Path, folder: Path, judge: Judge) -> None:
    one = made(1)[0]
    pair = PreferencePair(one.prompt, one.targets[0].criterion, one.completion, Completion(text="No."), "made")
    names = {"made": Dataset("", preferences=[pair] * 3)}
    prepared = Prepared(names, Split(validation=made(10, 100)), {"made": [pair] * 3})
    settings = config(tmp_path, judge, data=[{"kind": "statement_preferences", "name": "made", "count": 3}])
    seen = list[tuple[int, int]]()
    data = encode(prepared, load(folder, judge)[1], settings, lambda done, total, _: seen.append((done, total)))
    assert seen == [(done, 16) for done in range(1, 17)]
    _, pairs = data.batch(0)
    assert len(pairs) > 2
    assert len({id(row) for pair in pairs for row in pair}) == 2  # each completion is encoded once


def test_encode_validates_pairs_with_their_own_loss(tmp_path: Path, folder: Path, judge: Judge) -> None:
    one = made(1)[0]
    pairs = [
        PreferencePair(one.prompt, one.targets[0].criterion, one.completion, Completion(text=text), "made")
        for text in ("No.", "Never.", "Not now.")
    ]
    names = {"made": Dataset("", preferences=pairs), "labels": Dataset("")}
    split = Split(train=made(4), validation=[replace(one, source=name) for one in made(10, 100) for name in names])
    fields = [{"kind": "file", "name": "made", "path": "a.jsonl", "pairs": True}]
    fields += [{"kind": "file", "name": "labels", "path": "b.jsonl", "weight": 0}]
    settings = config(tmp_path, judge, data=fields, validation={"max_examples": 12})
    model, encoder = load(folder, judge)
    data = encode(Prepared(names, split, {"made": pairs}, {"made": pairs}), encoder, settings)
    assert (len(data.validation), len(data.validation_pairs)) == (10, 3)
    labels, comparisons = (
        validation_loss(model, rows, settings, of_pairs)
        for rows, of_pairs in ((data.validation, ()), ((), data.validation_pairs))
    )
    count = sum(len(reads_of(row)) for row in data.validation)
    whole = validation_loss(model, data.validation, settings, data.validation_pairs)
    assert whole == pytest.approx((labels * count + comparisons * 3) / (count + 3))


def test_prepare_refuses_pairs_that_cannot_be_validated(tmp_path: Path, judge: Judge) -> None:
    examples = made(800)
    shares = {"test": 0.2, "validation": 0.2}
    trained = [one for one in examples if side_of(one.split_group, seed=0, **shares) == "train"]
    others = [
        replace(one, completion=Completion(text="C"), targets=(replace(one.targets[0], value=0.5),)) for one in trained
    ]
    fields = [{"kind": "file", "name": "made", "path": "a.jsonl", "pairs": True}]
    settings = config(tmp_path, judge, data=fields, split=shares)
    with pytest.raises(InvalidError, match="validation") as caught:
        prepare(settings, {"made": Dataset("", [*examples, *others])})
    assert caught.value.path == "data.made"


def test_train_stops_early_without_progress(tmp_path: Path, folder: Path, judge: Judge, data: EncodedData) -> None:
    settings = config(tmp_path / "out", judge, steps=40, optim={"lr": 1e-12}, validation={"every": 1, "stop_after": 3})
    trained = train(load(folder, judge, settings)[0], data, settings)
    assert len(trained.history.steps) < 40


@pytest.fixture
def poisoned(folder: Path, judge: Judge) -> Iterator[JudgeModel]:
    model, _ = load(folder, judge)
    with torch.no_grad():
        next(model.model.parameters()).fill_(float("nan"))
    yield model


def test_train_refuses_a_loss_that_is_not_finite(
    tmp_path: Path, judge: Judge, data: EncodedData, poisoned: JudgeModel
) -> None:
    with pytest.raises(InvalidError):
        train(poisoned, data, config(tmp_path / "out", judge, method="full"))


def test_encoder_shows_documents_where_the_template_does(folder: Path, judge: Judge) -> None:
    document = Document(id="1", text="The sky is blue.", title="Sky")
    prompt = Prompt(messages=(Message(role="user", content="Which colour?"),), documents=(document,))
    one = Example(prompt, Completion(text="Blue."), (Target(Criterion(key="a", text="Right"), 1.0),), "made")
    sizes = [
        load(folder, judge.model_copy(update={"template": template}))[1].row(one).size
        for template in ("readout_short", "readout_short_documents")
    ]
    assert sizes[0] < sizes[1]
