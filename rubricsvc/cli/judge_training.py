"""`rubricsvc judges train`: train a judge, examine it, and add it with its passport."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli.db import database
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.cli.output import (
    INTERRUPTED,
    Json,
    cell,
    counted,
    echo,
    number,
    print_json,
    print_table,
    progress_bar,
    show,
    show_list,
)
from rubricsvc.cli.passport import figure_fields, figure_texts, measured_texts
from rubricsvc.cli.run_training import stop_on_interrupt
from rubricsvc.errors import ConflictError, cut
from rubricsvc.services.training_data import TrainingData
from rubricsvc.store import judges
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.passport import Passport
    from trainer.history import Metrics
    from trainer.judge_training.config import JudgeTrainConfig
    from trainer.judge_training.preparation import Prepared
    from trainer.judge_training.training import Trained

MAX_FAMILIES = 200
"""Rows of the table of what can be held out."""


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
    from trainer.judge_training.run import check_judge

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config)
    check_judge(loaded, _stored(loaded.judge.name) if add else None)
    if dry_run:
        _print_plan(loaded, as_json)
        return
    checkpoint.check_folder(loaded.out, resume=resume)
    with checkpoint.locked(loaded.out):
        _train_and_add(config, loaded, resume=resume, audit=audit, add=add, as_json=as_json)


def _stored(name: str) -> Judge | None:
    judges.check_name(name)
    with database() as db, db.read() as session:
        row = judges.find(session, name)
        return row.value if row else None


def _print_plan(config: JudgeTrainConfig, as_json: bool) -> None:
    from trainer.judge_training.run import families, plan, split_sizes

    prepared = _load_data(config)
    rows = plan(config, prepared)
    if as_json:
        print_json({"data": rows, "split": split_sizes(prepared), "families": families(prepared)})
        return
    show_list(rows)
    _print_split(prepared)
    _print_families(families(prepared))


def _train_and_add(
    config: Path, loaded: JudgeTrainConfig, *, resume: bool, audit: bool, add: bool, as_json: bool
) -> None:
    from trainer.judge_training.export import FOLDER
    from trainer.judge_training.run import plan

    prepared = _load_data(loaded)
    rows = plan(loaded, prepared)
    print_table(list(rows[0]), [row.values() for row in rows], print_line=echo)
    _print_split(prepared)
    if loaded.judge.model == EMBEDDED:
        fetch_embedded()
    switches = [option for option, on in (("--no-audit", not audit), ("--no-add", not add)) if on]
    with _continue_hint([str(config), *switches], loaded.out):
        judge, trained = _train(loaded, prepared, resume)
        judge, passport = _examine(loaded, prepared, judge, trained, audit)
    if add:
        _add(judge, passport)
    summary = {"name": judge.name, "folder": str(loaded.out / FOLDER), "steps": trained.best_step, "added": add}
    summary |= {"validation_loss": trained.best_loss}
    texts = figure_texts(passport) | {"audit": measured_texts(passport)["audit"]}
    show(summary | (figure_fields(passport) if as_json else texts), as_json)


def _add(judge: Judge, passport: Passport) -> None:
    with database() as db, db.write() as session:
        try:
            row = judges.add(session, judge)
        except ConflictError as error:
            hint = "give judge.name another value, and add it with --resume, which does not train again"
            raise ConflictError(error.message, hint=hint, path="judge.name") from error
        judges.set_passport(session, row.id, passport)


@contextmanager
def _continue_hint(arguments: Sequence[str], out: Path) -> Iterator[None]:
    """After an interrupt, print the command that continues; exit with `INTERRUPTED`.

    Trained weights are kept: a training that has all its steps is examined and added without training again.
    """
    try:
        yield
    except KeyboardInterrupt:
        resume = ["--resume"] if (out / "config.json").is_file() else []
        command = shlex.join(["rubricsvc", "judges", "train", *arguments, *resume])
        echo(f"\nstopped; continue with: {command}")
        raise typer.Exit(INTERRUPTED) from None


def _load_data(config: JudgeTrainConfig) -> Prepared:
    from trainer.judge_training.run import load_data

    echo("loading the data")
    with ExitStack() as stack:
        return load_data(config, cache(lambda: TrainingData(stack.enter_context(database()))))


def _print_split(prepared: Prepared) -> None:
    from trainer.judge_training.run import split_sizes

    sizes = split_sizes(prepared)
    parts = ", ".join(f"{name} {sizes[name]}" for name in ("train", "validation", "test"))
    echo(f"split by {sizes['by']}: {parts} completions; {counted(sizes['left_out'], 'target')} left out of all parts")


def _print_families(rows: list[dict[str, Any]]) -> None:
    """Print what ``split.held_out`` may name; of many criteria, such as each completion's own, the first ones."""
    shown = [[cut(str(value), 60) for value in row.values()] for row in rows[:MAX_FAMILIES]]
    print_table(list(rows[0]), shown, print_line=echo)
    if len(rows) > MAX_FAMILIES:
        echo(f"and {len(rows) - MAX_FAMILIES} more")


def _train(config: JudgeTrainConfig, prepared: Prepared, resume: bool) -> tuple[Judge, Trained]:
    from trainer.judge_training.data.files import reasons
    from trainer.judge_training.run import open_training, train_judge

    with progress_bar("tokens") as bar:
        opened = open_training(config, prepared, bar.update)
    for name, left_out in opened.left_out.items():
        if left_out:
            echo(f"left out of {name}: {reasons(left_out)}")
    start = time.monotonic()
    with progress_bar("training") as bar, stop_on_interrupt() as stop:

        def on_step(step: Metrics) -> None:
            rate = step["tokens"] / step["step_time"]
            validation = f", validation {cell(step['validation_loss'])}" if "validation_loss" in step else ""
            bar.update(step["step"], config.steps, f"loss {cell(step['loss'])}{validation}, {rate:.0f} tokens/s")

        bar.update(0, config.steps, "")
        judge, trained = train_judge(config, opened, on_step=on_step, stop=stop, resume=resume)
    if judge is None:
        raise KeyboardInterrupt
    echo(f"trained in {time.monotonic() - start:.0f} s; best after {counted(trained.best_step, 'step')}")
    return judge, trained


def _examine(
    config: JudgeTrainConfig, prepared: Prepared, judge: Judge, trained: Trained, audit: bool
) -> tuple[Judge, Passport]:
    from trainer.judge_training.run import examine_judge

    with progress_bar("examination") as bar:
        examined, passport, failed = examine_judge(
            config, prepared, judge, trained, audited=audit, on_progress=bar.update
        )
    if failed:
        echo(f"warning: {counted(failed, 'verdict')} of the test failed, and counts as 0.5")
    main = next((table for table in passport.tables if table.trained), None)
    if main and (best := main.best_baseline) and main.beats_baselines is False:
        baseline = f"{best.scorer} {number(best[main.measure].value)}"
        echo(f"warning: on {main.name} the judge does not beat the best baseline ({baseline})")
    return examined, passport
