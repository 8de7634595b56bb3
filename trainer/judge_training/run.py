"""A training of a judge from its configuration to its files: data, weights, examination, passport."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Event

import torch
from safetensors import SafetensorError

from rubricsvc.core.audit import Audit, Repeatability
from rubricsvc.core.judge import Calibration, Judge
from rubricsvc.core.passport import (
    TRAINED,
    UNTRAINED,
    BaseWeights,
    CalibrationReport,
    DataSource,
    DataSplit,
    Form,
    Passport,
    Table,
    Training,
)
from rubricsvc.core.prompt import Completion
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from rubricsvc.stats import OnProgress
from rubricsvc.stats.calibration_fit import MIN_PROMPTS, calibrate
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data import (
    Dataset,
    Example,
    OpenStore,
    Question,
    Split,
    load_dataset,
    questions,
    sample,
    split,
)
from trainer.judge_training.evaluation import By, baselines, probabilities, rows
from trainer.judge_training.model import Encoder, JudgeModel
from trainer.judge_training.training import Trained, encode, train
from trainer.recording import Metrics, replace_text, sync
from workers.audit import cases, runner, suites
from workers.audit.repeatability import group_completions, measure
from workers.audit.suites import AuditPlan
from workers.engines import make_engine
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import default_device, default_dtype, model_folder, open_pretrained
from workers.engines.local.weights import (
    ADAPTER_CONFIG,
    BASE_FILE,
    JUDGE_FILE,
    PASSPORT_FILE,
    ModelWeights,
    base_sha256,
    copy_permissions,
    weights_sha256,
)
from workers.judges import validate
from workers.judges.calls import load

FOLDER = "judge"
"""Folder of the trained judge, in the training's ``out``."""
MIN_PART = 10
"""Questions that a part of the test needs to have figures of its own."""
NOT_FOR = (
    "People's careers, health, rights or money: its figures are of its own test sets, and of nothing else.",
    "Criteria of kinds that its passport has no figures of, until you have compared it with people's labels.",
)

_ASKED = {"mode", "template", "sampling", "threshold", "min_answer_mass", "max_context", "calibration"}
"""Fields of a judge that its training depends on."""
_NO_OPTION = {"judge", "data", "description", "not_for", "license", "device", "seed", "out", "checkpoint_every"}
_NO_OPTION |= {"keep_checkpoints"}
"""Settings that are in other fields of a passport, or without influence on the weights."""


@dataclass(frozen=True)
class Prepared:
    """The data of a training, and its examples divided into train, validation and test."""

    datasets: Mapping[str, Dataset]
    split: Split

    def sources(self, config: JudgeTrainConfig) -> list[DataSource]:
        """Return what each of the data has."""
        total = sum(entry.weight for entry in config.data if not self.datasets[entry.name].absent)
        return [
            DataSource(
                name=entry.name,
                digest=one.digest,
                license=entry.license,
                completions=len(one.examples),
                questions=len(list(questions(one.examples))),
                left_out=dict(one.left_out),
                duplicates=one.duplicates,
                contradictions=one.contradictions,
                absent=one.absent,
                share=0.0 if one.absent or not total else entry.weight / total,
            )
            for entry in config.data
            for one in [self.datasets[entry.name]]
        ]


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
    """Return the data of a training, divided; ``open_store`` is called if an entry is of the database."""
    datasets = {entry.name: load_dataset(entry, open_store) for entry in config.data}
    examples = [example for one in datasets.values() for example in one.examples]
    return Prepared(datasets, split(examples, config.split, config.seed))


def train_judge(
    config: JudgeTrainConfig,
    prepared: Prepared,
    *,
    on_encode: OnProgress = lambda done, total, note: None,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    resume: bool = False,
) -> tuple[Judge | None, Trained]:
    """Train the weights and write them; return the judge that is asked with them, None if ``stop`` was set.

    ``on_encode`` is called with the examples encoded, and their number, ``on_step`` with the metrics of each step.
    """
    model, encoder = open_base(config)
    data = encode(prepared.datasets, prepared.split, encoder, config, on_encode)
    trained = train(model, data, config, on_step=on_step, stop=stop, resume=resume)
    return None if trained.history.stopped else export(model, config), trained


def open_base(config: JudgeTrainConfig) -> tuple[JudgeModel, Encoder]:
    """Return the base to train with a fresh adapter, and the encoder of its judge.

    Raises:
        UnavailableError: It cannot be fetched or read.
        InvalidError: There is no such device, or the model has no modules of these names.
    """
    judge = config.judge
    dtype = getattr(torch, config.dtype or default_dtype(config.device))
    base, tokenizer = open_pretrained(judge.model, dtype, revision=judge.revision)
    try:
        base = base.to(config.device or default_device())
    except (RuntimeError, AssertionError) as error:  # no such device, or torch was built without it
        message = f"device {config.device!r}: {str(error).splitlines()[0]}"
        raise InvalidError(message, hint='leave it out, or use "cpu"', path="device") from error
    if base.device.type == "meta":
        raise InvalidError(f"device {config.device!r} holds no weights", hint='use "cpu"', path="device")
    sha256 = base_sha256(judge.model, model_folder(ModelWeights(judge.model, judge.revision)))
    model = JudgeModel(base, config.lora, seed=config.seed, base_sha256=sha256)
    return model, Encoder(judge, Conversation(tokenizer), base.config.max_position_embeddings)


def export(model: JudgeModel, config: JudgeTrainConfig) -> Judge:
    """Write the adapter to ``out/judge`` in peft's format, and return the judge that is asked with it.

    A folder that has these weights already is kept, with the results of their examination. Equal trainings give equal
    bytes, without paths of a machine.

    Raises:
        UnavailableError: The folder cannot be written.
    """
    final = config.out / FOLDER
    part = final.with_name(f".{FOLDER}.part")
    with _writing(final):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        model.model.save_pretrained(part)  # peft's format
        copy_permissions(part)
        fields = json.loads((part / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        fields |= {"base_model_name_or_path": config.judge.model, "target_modules": sorted(fields["target_modules"])}
        replace_text(part / ADAPTER_CONFIG, json.dumps(fields, indent=2, sort_keys=True) + "\n")
        base = {"model": config.judge.model, "base_sha256": model.base_sha256}
        replace_text(part / BASE_FILE, json.dumps(base, indent=2) + "\n")
        (part / "README.md").unlink(missing_ok=True)
        write(part, config.judge)
        trained = weights_sha256(part)
        try:
            same = weights_sha256(final) == trained
        except UnavailableError:  # no such folder, or no weights in it
            same = False
        if not same:
            shutil.rmtree(final, ignore_errors=True)
            part.rename(final)
            sync(final.parent)
        shutil.rmtree(part, ignore_errors=True)
    place = {"adapter": str(final.resolve()), "weights_sha256": trained}
    return Judge.model_validate(config.judge.model_dump() | place)


def write(folder: Path, value: Judge | Passport) -> None:
    """Write ``passport.json``, or the fields of a judge that the weights were trained for to ``judge.json``."""
    if isinstance(value, Passport):
        name, text = PASSPORT_FILE, value.model_dump_json(exclude_none=True)
    else:
        fields = value.model_dump(mode="json", include=_ASKED, exclude_defaults=True)
        name, text = JUDGE_FILE, json.dumps(fields, indent=2, sort_keys=True)
    with _writing(folder):
        replace_text(folder / name, text + "\n")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        hint = "check the free disk space and the permissions, then continue with --resume"
        raise UnavailableError(f"cannot write the trained judge to {folder}: {error}", hint=hint) from error


def examine_judge(
    config: JudgeTrainConfig,
    prepared: Prepared,
    judge: Judge,
    trained: Trained,
    *,
    audited: bool,
    on_progress: OnProgress = lambda done, total, note: None,
) -> tuple[Judge, Passport, int]:
    """Examine a trained judge, write its passport, and return both with the number of failed verdicts.

    The judge is asked as workers ask it, with the exported weights, beside its untrained base and baselines that are
    fitted to the training part. It is calibrated on the validation part where that helps; all figures are of the test.
    Questions whose verdict failed count as the value 0.5. With ``audited`` the repeatability is measured, and the judge
    is audited.

    Raises:
        InvalidError: All verdicts of the trained judge failed.
    """
    # the base without adapter and calibration; untrained it gives the labels little probability
    bare = {"adapter": None, "weights_sha256": None, "calibration": None, "min_answer_mass": 0.0}
    untrained, parts = config.judge.model_copy(update=bare), prepared.split.parts
    validation, test = (sample(parts[name], config.test_examples) for name in ("validation", "test"))

    def noted(what: str) -> OnProgress:
        return lambda done, total, _: on_progress(done, total, what)

    calibration = _calibration(validation, probabilities(judge, validation, noted("calibration"), some=True))
    asked = probabilities(judge, test, noted(TRAINED), some=True)
    before, base = (
        [0.5 if value is None else value for each in answers for value in each]
        for answers in (asked, probabilities(untrained, test, noted(UNTRAINED)))
    )
    pairs = list(questions(test))
    after = [
        calibration.value(target.criterion, score) if calibration else score
        for (_, target), score in zip(pairs, before, strict=True)
    ]
    on_progress(0, 1, "baselines")
    scores = {**baselines(list(questions(parts["train"])), pairs), UNTRAINED: base, TRAINED: after}
    judge = judge.model_copy(update={"calibration": calibration})

    raw, fitted = rows(pairs, {"before": before, "after": after})
    part = "fitted to the validation part, measured on the test" if calibration else "no curve was better than none"
    audit = asyncio.run(_audited(judge, noted("audit"))) if audited else {}
    passport = _passport(config, prepared, judge, trained).model_copy(
        update={
            "tables": tuple(_tables(pairs, scores, config.split.held_out)),
            "calibration": CalibrationReport(
                part=part, calibration=calibration, before=raw["ece"], after=fitted["ece"]
            ),
            **audit,
        }
    )
    for value in (judge, passport):
        write(config.out / FOLDER, value)
    return judge, passport, sum(value is None for each in asked for value in each)


async def _audited(judge: Judge, on_progress: OnProgress) -> dict[str, Repeatability | Audit]:
    """Measure how repeatable a judge's verdicts on built-in completions are, and audit it."""
    plan = AuditPlan(cases.built_in(), suites.built_in()).adapted(judge)
    built_in = group_completions((c.rubric, c.prompt, Completion(text=c.text)) for c in cases.built_in())[:40]
    async with aclosing(make_engine(judge)) as engine:
        repeatability = await measure(engine, judge, built_in, source="built-in cases")
        return {"repeatability": repeatability, "audit": await runner.run(engine, judge, plan, on_progress=on_progress)}


def _calibration(examples: Sequence[Example], asked: Sequence[Sequence[float | None]]) -> Calibration | None:
    """Return the curves of a readout; None where there are too few labels, or no curve is better than none."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(one.split_group for one in examples))}
    labels = []
    for number, (example, values) in enumerate(zip(examples, asked, strict=True)):
        for target, value in zip(example.targets, values, strict=True):
            key = target.criterion.key
            verdicts = {} if value is None else {key: Verdict.scored(key, value, probability=value)}
            label = Label(criterion=key, annotator="target", value=target.value)
            labels.append(JudgedLabel(number, groups[example.split_group], 0, label, target.criterion, verdicts))
    if len({label.prompt_id for label in labels if label.verdicts}) < MIN_PROMPTS:
        return None
    curves = {one.family: one.curve for one in calibrate(labels) if one.curve and one.curve.method != "none"}
    return Calibration(families=curves) if curves else None


def _tables(pairs: Sequence[Question], scores: Mapping[str, Sequence[float]], held_out: Sequence[str]) -> list[Table]:
    """Return the tables of the whole test, of what was held out, and by source, criterion and variant.

    Parts have `MIN_PART` questions.
    """
    parts: dict[str, tuple[str, By]] = {
        "by data set": ("held-out questions by data set", "source"),
        "by criterion": (f"by criterion or kind of criterion, with {MIN_PART} questions or more", "family"),
        "by variant": (f"questions by construction, by how the case was made, with {MIN_PART} or more", "variant"),
    }
    tables = [Table(name="test", description="all held-out questions", rows=tuple(rows(pairs, scores)))]
    if places := [place for place, (_, target) in enumerate(pairs) if target.family_name in held_out]:
        part = {name: [values[place] for place in places] for name, values in scores.items()}
        kept = rows([pairs[place] for place in places], part)
        text = "criteria and kinds of criteria that were not trained on"
        tables.append(Table(name="held-out criteria", description=text, rows=tuple(kept)))
    for name, (text, by) in parts.items():
        large = [row for row in rows(pairs, scores, by=by, resamples=0) if row.part and row.n >= MIN_PART]
        tables += [Table(name=name, description=text, rows=tuple(large))] if large else []
    return tables


def _passport(config: JudgeTrainConfig, prepared: Prepared, judge: Judge, trained: Trained) -> Passport:
    """Return the passport of a trained judge, without figures."""
    template, asked = load(judge), [target for _, target in questions(prepared.split.parts["train"])]
    kept = [step for step in trained.history.steps if step["step"] <= trained.best_step]
    options = config.model_dump(mode="json", exclude=_NO_OPTION)
    options["data"] = {one.name: {"kind": one.kind, "weight": one.weight} for one in config.data}
    return Passport(
        created_at=datetime.now(UTC),
        description=config.description,
        not_for=config.not_for or NOT_FOR,
        base=BaseWeights(
            name=config.judge.model, revision=config.judge.revision, license=config.license, sha256=trained.base_sha256
        ),
        weights_sha256=judge.weights_sha256 or "",
        form=Form(
            mode=judge.mode,
            template=template.name,
            template_digest=template.digest,
            scales=tuple(sorted({target.criterion.scale.kind for target in asked})),
        ),
        training=Training(
            method="lora",
            rank=config.lora.rank,
            seed=config.seed,
            steps=trained.best_step,
            tokens=sum(step["tokens"] for step in kept),
            seconds=sum(step["step_time"] for step in kept),
            machine=f"{torch.get_num_threads()} threads, {platform.machine()} {config.device}".strip(),
            versions={name: version(name) for name in ("torch", "transformers", "peft", "rubricsvc")},
            options=options,
        ),
        data=tuple(prepared.sources(config)),
        split=DataSplit(
            by="prompt",
            sizes={name: len(list(questions(part))) for name, part in prepared.split.parts.items()},
            held_out=config.split.held_out,
        ),
    )
