"""Distillation: a teacher's stored verdicts become soft targets, and a judge learns its probabilities."""

from pathlib import Path

import pytest
import torch

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from tests.rows import item_result
from tests.tiny_model import tiny_model
from trainer.judge_training.config import JudgeTrainConfig, VerdictData
from trainer.judge_training.data import load_dataset
from trainer.judge_training.training import EncodedData, Encoder, JudgeModel, train, validation_loss
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import open_pretrained

TEACHER = Judge(name="teacher", model="m")
RUBRIC = Rubric(criteria=(Criterion(key="b", text="Says B"),))
YES, NO = 0.9, 0.2
"""The teacher's probabilities for completions that say B, and that do not."""


def store_verdicts(db: Database, count: int) -> None:
    """Let the teacher score completions of as many prompts."""
    with db.write() as session:
        judge_id, pairs = judges.add(session, TEACHER).id, []
        rubric_id = rubrics.add(session, RUBRIC, name="r").id
        for n in range(count):
            prompt = completions.add_prompt(session, Prompt.of(f"Which is right, {n}?"))
            text = "The answer is B." if n % 2 else "The answer is A."
            pairs.append((prompt.id, Completion(text=text)))
        items = [(id_, rubric_id) for id_ in completions.add_many(session, pairs)]
        jobs.submit(session, judge_id=judge_id, items=items, key="all")
        for lease in leases.claim(session, judge_id, limit=count, worker="w", seconds=60):
            value = YES if lease.completion_id % 2 == items[1][0] % 2 else NO
            verdict = Verdict.scored("b", value, probability=value)
            leases.record(session, [item_result(lease, RUBRIC, [verdict])])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model", context=1024)


def test_train_on_stored_verdicts_gives_the_teachers_probabilities(db: Database, tmp_path: Path, folder: Path) -> None:
    store_verdicts(db, 32)
    entry = VerdictData(kind="verdicts", name="teacher", judge="teacher")
    examples = load_dataset(entry, lambda: LocalService(db)).examples
    expected = {("The answer is B.", YES), ("The answer is A.", NO)}
    assert {(one.completion.text, one.targets[0].value) for one in examples} == expected
    student = Judge(name="s", engine="transformers_local", model=str(folder), template="readout_short")
    base, tokenizer = open_pretrained(str(folder), torch.float32)
    encoder = Encoder(student, Conversation(tokenizer), 1024)
    rows = [encoder.row(one) for one in sorted(examples, key=lambda one: one.prompt.text)]
    learned, new = rows[:24], rows[24:]

    fields = {
        "judge": student, "out": tmp_path / "out",
        "data": [{"kind": "verdicts", "name": "teacher", "judge": "teacher"}], "steps": 120,
        "optim": {"lr": 2e-2, "warmup_steps": 2, "batch_examples": 4}, "validation": {"every": 10, "stop_after": 12},
        "lora": {"rank": 4, "alpha": 8},
    }  # fmt: skip
    config = JudgeTrainConfig.model_validate(fields)
    model = JudgeModel(base, config.lora, seed=0)
    before = validation_loss(model, new, config)
    trained = train(model, EncodedData({"teacher": learned}, {"teacher": 1.0}, new, "digest"), config)
    assert trained.best_loss < before / 2
    with torch.no_grad():
        masses = model.log_masses(new)
    for row, mass in zip(new, masses, strict=True):
        yes, no = mass.exp().tolist()
        assert yes / (yes + no) == pytest.approx(row.branches[0].target[0], abs=0.15)
