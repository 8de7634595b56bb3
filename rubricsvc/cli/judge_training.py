"""`rubricsvc judges train`: train a judge, examine it, and add it with its passport."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli.db import database
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.cli.output import INTERRUPTED, Json, cell, counted, echo, print_table, progress_bar, show, show_list
from rubricsvc.cli.passport import figure_texts
from rubricsvc.cli.runs import stop_on_interrupt
from rubricsvc.errors import ConflictError
from rubricsvc.services.training_data import TrainingData
from rubricsvc.store import judges
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.passport import Passport
    from trainer.judge_training.config import JudgeTrainConfig
    from trainer.judge_training.preparation import Prepared
    from trainer.judge_training.training import Trained
    from trainer.metrics import Metrics


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the training (docs/judge-training.md).")
    ],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Load and divide the data; train nothing.")] = False,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit the judge and measure its repeatability.")
    ] = True,
    add: Annotated[bool, typer.Option("--add/--no-add", help="Add the judge to the database.")] = True,
    as_json: Json = False,
) -> None:
    """Train a judge from labels, stored verdicts or questions by construction, and add it with its passport.

    Ctrl-C stops after the current step and saves a checkpoint; --resume continues, also an examination that was
    interrupted: without training again. The weights, judge.json and passport.json are written to
    the folder judge/ in the training's folder.
    """
    from trainer import checkpoint
    from trainer.judge_training.config import load_config

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config)
    if dry_run:
        show_list(_plan(loaded, prepared := _prepare(loaded)), as_json)
        _print_split(prepared)
        return
    checkpoint.check_folder(loaded.out, resume=resume)
    if add:
        _check_name(loaded)
    with checkpoint.locked(loaded.out):
        _train_and_add(config, loaded, resume=resume, audit=audit, add=add, as_json=as_json)


def _train_and_add(
    config: Path, loaded: JudgeTrainConfig, *, resume: bool, audit: bool, add: bool, as_json: bool
) -> None:
    prepared = _prepare(loaded)
    plan = _plan(loaded, prepared)
    print_table(list(plan[0]), [row.values() for row in plan], print_line=echo)
    _print_split(prepared)
    if loaded.judge.model == EMBEDDED:
        fetch_embedded()
    with _continue_hint(config, loaded.out):
        judge, trained = _train(loaded, prepared, resume)
        if trained.history.stopped:
            raise KeyboardInterrupt
        judge, passport = _examine(loaded, prepared, judge, trained, audit)
    if add:
        with database() as db, db.write() as session:
            row = judges.add(session, judge)
            judges.set_passport(session, row.id, passport)
    summary = {"name": judge.name, "folder": str(loaded.out / "judge"), "steps": trained.best_step, "added": add}
    show(summary | {"validation_loss": trained.best_loss, **figure_texts(passport)}, as_json)


def _check_name(config: JudgeTrainConfig) -> None:
    """Check before the training that its judge can be added under its name.

    Raises:
        ConflictError: A judge with other weights has the name.
    """
    from trainer.judge_training.export import FOLDER

    name, folder = config.judge.name, (config.out / FOLDER).resolve()
    with database() as db, db.read() as session:
        row = judges.find(session, name)
        stored = row.value if row else None
    if stored and Path(stored.adapter or stored.model).resolve() != folder:
        hint = "give judge.name another value, or train with --no-add"
        raise ConflictError(f"judge {name!r} exists and is another one", hint=hint, path="judge.name")


@contextmanager
def _continue_hint(config: Path, out: Path) -> Iterator[None]:
    """After an interrupt, print the command that continues; exit with `INTERRUPTED`.

    Trained weights are kept: a training that has all its steps is examined and added without training again.
    """
    try:
        yield
    except KeyboardInterrupt:
        started = (out / "config.json").is_file()
        echo(f"\nstopped; continue with: rubricsvc judges train {config}{' --resume' if started else ''}")
        raise typer.Exit(INTERRUPTED) from None


def _prepare(config: JudgeTrainConfig) -> Prepared:
    from trainer.judge_training.ingredients import load_ingredients
    from trainer.judge_training.preparation import prepare

    echo("loading the data")
    with ExitStack() as stack:
        open_store = cache(lambda: TrainingData(stack.enter_context(database())))
        return prepare(config, load_ingredients(config, open_store))


def _plan(config: JudgeTrainConfig, prepared: Prepared) -> list[dict[str, Any]]:
    """Return what each of the data has, by column."""
    rows = []
    for entry in config.data:
        one = prepared.ingredients[entry.name]
        questions = sum(len(example.targets) for example in one.examples)
        left_out = one.absent or _reasons(one.left_out)
        counts = (len(one.examples), questions, prepared.pairs(entry.name), one.duplicates, one.contradictions)
        rows.append([entry.name, entry.weight, *counts, left_out])
    columns = ("data", "weight", "completions", "questions", "pairs", "duplicates", "contradictions", "left_out")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _print_split(prepared: Prepared) -> None:
    split = prepared.split
    sizes = ", ".join(f"{name} {len(split.part(name))}" for name in ("train", "validation", "test"))
    echo(f"split by {split.by}: {sizes} completions; {counted(split.left_out, 'target')} left out of all parts")


def _reasons(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in left_out.items() if count)


def _train(config: JudgeTrainConfig, prepared: Prepared, resume: bool) -> tuple[Judge, Trained]:
    from trainer.judge_training.export import export, open_base
    from trainer.judge_training.preparation import encode
    from trainer.judge_training.training import train

    model, encoder, tokenizer = open_base(config)
    with progress_bar("tokens") as bar:
        before = {name: Counter(one.left_out) for name, one in prepared.ingredients.items()}
        data = encode(prepared, encoder, config, lambda done, total: bar.update(done, total, ""))
    for name, one in prepared.ingredients.items():
        if reasons := _reasons(one.left_out - before[name]):
            echo(f"left out of {name}: {reasons}")
    start = time.monotonic()
    with progress_bar("training") as bar, stop_on_interrupt() as stop:

        def on_step(step: Metrics) -> None:
            rate = step["tokens"] / step["step_time"]
            validation = f", validation {cell(step['validation_loss'])}" if "validation_loss" in step else ""
            bar.update(step["step"], config.steps, f"loss {cell(step['loss'])}{validation}, {rate:.0f} tokens/s")

        bar.update(0, config.steps, "")
        trained = train(model, data, config, on_step=on_step, stop=stop, resume=resume)
    if trained.history.stopped:
        return config.judge, trained
    echo(f"trained in {time.monotonic() - start:.0f} s; best after {counted(trained.best_step, 'step')}")
    return export(model, tokenizer, config), trained


def _examine(
    config: JudgeTrainConfig, prepared: Prepared, judge: Judge, trained: Trained, audit: bool
) -> tuple[Judge, Passport]:
    from trainer.judge_training.examination import examine
    from trainer.judge_training.examples import sample
    from trainer.judge_training.export import FOLDER, write_judge, write_passport
    from trainer.judge_training.passport import passport_of

    with progress_bar("examination") as bar:
        examination = examine(
            judge,
            config.judge.model_copy(update={"min_answer_mass": 0.0}),  # the base gives labels little probability
            prepared.split.train,
            sample(prepared.split.validation, config.test_examples),
            sample(prepared.split.test, config.test_examples),
            held_out=prepared.split.held_out,
            audited=audit,
            on_progress=lambda what, done, total: bar.update(done, total, what),
        )
    passport = passport_of(config, prepared, trained, examination)
    write_judge(config.out / FOLDER, examination.judge)
    write_passport(config.out / FOLDER, passport)
    if examination.failed:
        echo(f"warning: {counted(examination.failed, 'verdict')} of the test failed, and counts as 0.5")
    return examination.judge, passport
