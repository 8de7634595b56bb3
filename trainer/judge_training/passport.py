"""The passport of a training: base, method, data and figures, as a value."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import torch
from pydantic import JsonValue

from rubricsvc.core.passport import BaseWeights, DataSource, DataSplit, Form, Passport, Training
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.examination import Examination
from trainer.judge_training.examples import questions
from trainer.judge_training.preparation import Prepared
from trainer.judge_training.training import Trained
from workers.judges.template import load

_PACKAGES = ("torch", "transformers", "peft", "rubricsvc")
_OTHER_FIELDS = {"judge", "data", "description", "not_for", "license", "device", "method", "seed"}
"""Settings that are in other fields of a passport."""
_OF_ONE_PLACE = {"out", "exclude", "checkpoint_every", "keep_checkpoints"}
"""Settings without influence on the weights, or whose influence is in the digests of the data."""
_OF_DATA = {"kind", "weight", "count", "negated", "pairs"}

NOT_FOR = (
    "People's careers, health, rights or money: its figures are of its own test sets, and of nothing else.",
    "Criteria of kinds that its passport has no figures of, until you have compared it with people's labels.",
)


def passport_of(config: JudgeTrainConfig, prepared: Prepared, trained: Trained, examination: Examination) -> Passport:
    """Return the passport of a trained judge."""
    judge, base = examination.judge, config.judge.model
    assert judge.weights_sha256 is not None  # noqa: S101 - set by the export
    template = load(judge)
    parts = {"train": prepared.split.train, "validation": prepared.split.validation, "test": prepared.split.test}
    scales = {target.criterion.scale.kind for _, target in questions(prepared.split.train)}
    return Passport(
        created_at=datetime.now(UTC),
        description=config.description,
        not_for=config.not_for or NOT_FOR,
        base=BaseWeights(
            name=base,
            revision=config.judge.revision,
            license=config.license,
            sha256=trained.base_sha256,
        ),
        weights_sha256=judge.weights_sha256,
        form=Form(
            mode=judge.mode, template=template.name, template_digest=template.digest, scales=tuple(sorted(scales))
        ),
        training=_training(config, trained),
        data=tuple(_sources(config, prepared)),
        split=DataSplit(
            by=prepared.split.by,
            sizes={name: len(list(questions(part))) for name, part in parts.items()},
            held_out=prepared.split.held_out,
        ),
        tables=examination.tables,
        calibration=examination.calibration,
        repeatability=examination.repeatability,
        agreement=examination.agreement,
        audit=examination.audit,
        audit_untrained=examination.audit_untrained,
    )


def _training(config: JudgeTrainConfig, trained: Trained) -> Training:
    kept = [step for step in trained.history.steps if step["step"] <= trained.best_step]
    return Training(
        method=config.method,
        rank=config.lora.rank if config.method == "lora" else None,
        seed=config.seed,
        steps=trained.best_step,
        tokens=sum(step["tokens"] for step in kept),
        seconds=sum(step["step_time"] for step in kept),
        machine=f"{torch.get_num_threads()} threads, {platform.machine()} {config.device}".strip(),
        versions={name: version(name) for name in _PACKAGES},
        options=_options(config),
    )


def _options(config: JudgeTrainConfig) -> dict[str, JsonValue]:
    """Return the settings that decide the weights and the split, but for those in other fields of the passport."""
    options = config.model_dump(mode="json", exclude=_OTHER_FIELDS | _OF_ONE_PLACE)
    return options | {"data": {one.name: one.model_dump(mode="json", include=_OF_DATA) for one in config.data}}


def _sources(config: JudgeTrainConfig, prepared: Prepared) -> list[DataSource]:
    total = sum(entry.weight for entry in config.data if not prepared.ingredients[entry.name].absent)
    found = []
    for entry in config.data:
        one = prepared.ingredients[entry.name]
        found.append(
            DataSource(
                name=entry.name,
                digest=one.digest,
                license=one.license,
                completions=len(one.examples),
                questions=sum(len(example.targets) for example in one.examples),
                pairs=prepared.pair_count(entry.name),
                left_out=dict(one.left_out),
                duplicates=one.duplicates,
                absent=one.absent,
                contradictions=one.contradictions,
                share=0.0 if one.absent else entry.weight / total,
            )
        )
    return found
