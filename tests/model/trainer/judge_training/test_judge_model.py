"""The rows of judge training against the engine that workers ask, and the training loop, on a tiny model."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Event

import pytest
import torch

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Document, Message, Prompt
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Rubric
from tests.tiny_model import tiny_model
from trainer.judge_training.config import JudgeTrainConfig, LoraConfig
from trainer.judge_training.data import Example, Target
from trainer.judge_training.training import (
    EncodedData,
    Encoder,
    JudgeModel,
    label_distribution,
    train,
    validation_loss,
)
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import open_pretrained
from workers.engines.local.transformers_engine import TransformersEngine
from workers.engines.local.weights import ModelWeights
from workers.judges import plan
from workers.scoring.completions import by_passages

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
    return Judge(name="t", engine="transformers_local", model=str(folder), template="readout_short", min_answer_mass=0)


def load(folder: Path, judge: Judge, config: JudgeTrainConfig | None = None) -> tuple[JudgeModel, Encoder]:
    base, tokenizer = open_pretrained(str(folder), torch.float32)
    lora = config.lora if config else LoraConfig(rank=2)
    return JudgeModel(base, lora, seed=0), Encoder(judge, Conversation(tokenizer), 1024)


def test_log_masses_are_what_the_engine_reports(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    examples = [
        example("The answer is B.", 1, 0.5, 0.25),
        example("No.\n<|im_end|> The answer, at some more length than the other one, is A.", 0, 1),
        example("", 0),
    ]
    shown = examples[0].targets[0].criterion.model_copy(update={"key": "shown", "passages": ("B is right.",)})
    examples[0] = replace(examples[0], targets=(*examples[0].targets, Target(shown, 1)))
    with torch.no_grad():
        log_masses = iter(model.log_masses([encoder.row(one) for one in examples]))
    for one in examples:
        rubric = Rubric(criteria=tuple(target.criterion for target in one.targets))
        plans = {passages: plan(judge, part) for passages, part in by_passages(judge, rubric).items()}
        requests = [
            asked.request(asked.template.shared(one.prompt, one.completion.text, None, passages))
            for passages, asked in plans.items()
        ]

        async def ask() -> list[dict[str, float]]:
            async with aclosing(TransformersEngine(ModelWeights(str(folder)), dtype=torch.float32)) as engine:
                return [reply.label_mass for request in requests for reply in await engine.ask(request)]  # noqa: B023

        for mass, expected in zip(islice(log_masses, len(one.targets)), asyncio.run(ask()), strict=True):
            assert mass.exp().tolist() == pytest.approx(list(expected.values()), rel=1e-4)


def test_log_masses_of_a_question_do_not_depend_on_the_others(folder: Path, judge: Judge) -> None:
    model, encoder = load(folder, judge)
    together = example("The answer is B.", 1, 0.5, 0.25)
    with torch.no_grad():
        all_masses = model.log_masses([encoder.row(together)])
        for place, target in enumerate(together.targets):
            (alone,) = model.log_masses([encoder.row(Example(together.prompt, together.completion, (target,), ""))])
            assert alone.tolist() == pytest.approx(all_masses[place].tolist(), rel=1e-4)


def test_label_distribution_has_the_value() -> None:
    cases = [
        ((1.0, 0.0), 1.0, (1.0, 0.0)), ((1.0, 0.0), 0.25, (0.25, 0.75)), ((0.0, 0.7, 1.0), 0.7, (0.0, 1.0, 0.0)),
        ((0.0, 0.7, 1.0), 0.85, (0.0, 0.5, 0.5)), ((0.2, 0.8), 0.0, (1.0, 0.0)),  # below the lowest level
    ]  # fmt: skip
    for values, value, expected in cases:
        assert label_distribution(values, value) == pytest.approx(expected)


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
        "judge": judge, "out": out, "data": [{"kind": "labels", "name": "made"}], "steps": 12, "checkpoint_every": 5,
        "optim": {"lr": 2e-2, "warmup_steps": 2, "batch_examples": 4}, "validation": {"every": 4},
        "lora": {"rank": 4, "alpha": 8},
    }  # fmt: skip
    return JudgeTrainConfig.model_validate(fields | changes)


@pytest.fixture
def data(folder: Path, judge: Judge) -> EncodedData:
    _, encoder = load(folder, judge)
    rows = [encoder.row(one) for one in made(40)]
    return EncodedData({"made": rows}, {"made": 1.0}, [encoder.row(one) for one in made(10, 100)], "digest")


def test_train_learns_and_keeps_the_best_weights(tmp_path: Path, folder: Path, judge: Judge, data: EncodedData) -> None:
    settings = config(tmp_path / "out", judge, steps=40)
    model, _ = load(folder, judge, settings)
    before = validation_loss(model, data.validation, settings)
    trained = train(model, data, settings)
    after = validation_loss(model, data.validation, settings)
    assert after == pytest.approx(trained.best_loss, abs=1e-4) and after < before / 2
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
    ours, theirs = ({name: p for name, p in one.model.named_parameters() if p.requires_grad} for one in (again, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_encoder_shows_documents_where_the_template_does(folder: Path, judge: Judge) -> None:
    document = Document(id="1", text="The sky is blue.", title="Sky")
    prompt = Prompt(messages=(Message(role="user", content="Which colour?"),), documents=(document,))
    one = Example(prompt, Completion(text="Blue."), (Target(Criterion(key="a", text="Right"), 1.0),), "made")
    sizes = [
        load(folder, judge.model_copy(update={"template": template}))[1].row(one).size
        for template in ("readout_short", "readout_short_documents")
    ]
    assert sizes[0] < sizes[1]
