"""A training of a judge from its configuration to its files: plan, weights, examination, passport."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import ConflictError
from rubricsvc.stats import OnProgress
from trainer.history import Metrics
from trainer.judge_training.asking import base_judge
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data.files import reasons
from trainer.judge_training.examination import examine
from trainer.judge_training.examples import questions, sample
from trainer.judge_training.export import FOLDER, export, open_base, write_judge, write_passport
from trainer.judge_training.ingredients import OpenStore, load_ingredients
from trainer.judge_training.model import JudgeModel
from trainer.judge_training.passport import passport_of
from trainer.judge_training.preparation import Prepared, encode, prepare
from trainer.judge_training.splits import PARTS
from trainer.judge_training.training import EncodedData, Trained, train
from workers.engines import make_engine
from workers.judges import validate


def check_judge(config: JudgeTrainConfig, stored: Judge | None) -> None:
    """Check before a training that its judge can be asked, and stored under its name, where ``stored`` is.

    Raises:
        InvalidError: There is no such template, or it does not fit the mode.
        UnavailableError: The engine requires a package that is not installed.
        ConflictError: The stored judge has other weights.
    """
    validate(config.judge)
    make_engine(config.judge)
    folder = (config.out / FOLDER).resolve()
    if stored and Path(stored.adapter or stored.model).resolve() != folder:
        hint = "give judge.name another value, or train with --no-add"
        raise ConflictError(f"judge {stored.name!r} exists and is another one", hint=hint, path="judge.name")


def load_data(config: JudgeTrainConfig, open_store: OpenStore) -> Prepared:
    """Return the data of a training, divided into train, validation and test.

    Args:
        config: The training.
        open_store: Returns the labels and verdicts of the database; called if an ingredient needs it.
    """
    return prepare(config, load_ingredients(config, open_store))


def plan(config: JudgeTrainConfig, prepared: Prepared) -> list[dict[str, Any]]:
    """Return what each of the data has, by column."""
    rows = []
    for entry in config.data:
        one = prepared.ingredients[entry.name]
        rows.append(
            {
                "data": entry.name,
                "weight": entry.weight,
                "completions": len(one.examples),
                "questions": sum(len(example.targets) for example in one.examples),
                "pairs": prepared.pair_count(entry.name),
                "duplicates": one.duplicates,
                "contradictions": one.contradictions,
                "left_out": one.absent or reasons(one.left_out),
            }
        )
    return rows


def split_sizes(prepared: Prepared) -> dict[str, Any]:
    """Return what the split keeps on one side, the completions of each part, and the targets in none."""
    split = prepared.split
    return {"by": split.by, **{name: len(split.part(name)) for name in PARTS}, "left_out": split.left_out}


def families(prepared: Prepared) -> list[dict[str, Any]]:
    """Return what ``split.held_out`` may name, but by source: families, with the questions of each part, by column."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for part in PARTS:
        for example, target in questions(prepared.split.part(part)):
            counts[example.source, target.family_name][part] += 1
    return [
        {"data": source, "family": family} | {part: found[part] for part in PARTS}
        for (source, family), found in sorted(counts.items())
    ]


@dataclass(frozen=True)
class OpenTraining:
    """A base to train, the rows of each step, and what of the data cannot be learned, by its name and reason."""

    model: JudgeModel
    tokenizer: Any
    rows: EncodedData
    left_out: dict[str, Counter[str]]


def open_training(config: JudgeTrainConfig, prepared: Prepared, on_progress: OnProgress) -> OpenTraining:
    """Load the base and encode the data."""
    before = {name: Counter(one.left_out) for name, one in prepared.ingredients.items()}
    model, encoder, tokenizer = open_base(config)
    rows = encode(prepared, encoder, config, on_progress)
    left_out = {name: one.left_out - before[name] for name, one in prepared.ingredients.items()}
    return OpenTraining(model, tokenizer, rows, left_out)


def train_judge(
    config: JudgeTrainConfig, opened: OpenTraining, *, on_step: Callable[[Metrics], None], stop: Event, resume: bool
) -> tuple[Judge | None, Trained]:
    """Train the weights and write them; return the judge that is asked with them, None if ``stop`` was set.

    Args:
        config: The training.
        opened: Its model and rows.
        on_step: Called with the metrics of each step.
        stop: When set, the training ends after the current step, with a checkpoint.
        resume: Continue from the newest intact checkpoint.
    """
    trained = train(opened.model, opened.rows, config, on_step=on_step, stop=stop, resume=resume)
    if trained.history.stopped:
        return None, trained
    return export(opened.model, opened.tokenizer, config), trained


def examine_judge(
    config: JudgeTrainConfig,
    prepared: Prepared,
    judge: Judge,
    trained: Trained,
    *,
    audited: bool,
    on_progress: OnProgress,
) -> tuple[Judge, Passport, int]:
    """Examine a trained judge, write its passport, and return both with the number of failed verdicts.

    The judge is calibrated where that helped.
    """
    examination = examine(
        judge,
        base_judge(config.judge),
        prepared.split.train,
        sample(prepared.split.validation, config.test_examples),
        sample(prepared.split.test, config.test_examples),
        held_out=prepared.split.held_out,
        audited=audited,
        on_progress=on_progress,
    )
    passport = passport_of(config, prepared, trained, examination)
    write_judge(config.out / FOLDER, examination.judge)
    write_passport(config.out / FOLDER, passport)
    return examination.judge, passport, examination.failed
