"""`rubricsvc judges train`: train a judge, examine it, and add it with its passport."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc import telemetry
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.cli.output import INTERRUPTED, Json, cell, counted, echo, progress_bar, show
from rubricsvc.cli.runs import Terminal
from rubricsvc.cli.service import local_service
from rubricsvc.core.passport import LESS_IS_BETTER
from rubricsvc.errors import ConflictError
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.passport import Passport
    from trainer.judge_training.config import JudgeTrainConfig
    from trainer.judge_training.run import Prepared
    from trainer.recording import Metrics


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
    from trainer.judge_training.run import FOLDER, check_judge, load_data

    telemetry.configure("WARNING", human=True)
    loaded, known = load_config(config), None
    if add:
        with local_service() as s:
            known = s.judges.find(loaded.judge.name)
    check_judge(loaded, known)
    if not dry_run:
        checkpoint.check_folder(loaded.out, resume=resume)
    echo("loading the data")
    with ExitStack() as stack:
        prepared = load_data(loaded, cache(lambda: stack.enter_context(local_service()).judges))
    hidden = {"digest", "license", "pairs"}
    plan = [one.model_dump(mode="json", exclude=hidden) for one in prepared.sources(loaded)]
    sizes = {name: len(part) for name, part in prepared.split.parts.items()} | {"left_out": prepared.split.left_out}
    if dry_run:
        show({"data": plan, "split": sizes}, as_json)
        return
    for row in plan:
        echo(f"data: {cell(row)}")
    echo(f"split by prompt: {cell(sizes)}")
    if loaded.judge.model == EMBEDDED:
        fetch_embedded()
    with checkpoint.locked(loaded.out):
        try:
            judge, passport, numbers = _train(loaded, prepared, resume=resume, audit=audit)
        except KeyboardInterrupt:
            switches = [option for option, on in (("--no-audit", not audit), ("--no-add", not add)) if on]
            switches += ["--resume"] if (loaded.out / "config.json").is_file() else []
            command = shlex.join(["rubricsvc", "judges", "train", str(config), *switches])
            echo(f"\nstopped; continue with: {command}")
            raise typer.Exit(INTERRUPTED) from None
        if add:
            with local_service() as s:
                try:
                    s.judges.add_all([judge], passport)
                except ConflictError as error:
                    hint = "give judge.name another value, and add it with --resume, which does not train again"
                    raise ConflictError(error.message, hint=hint, path="judge.name") from error
    fields = {"name": judge.name, "folder": str(loaded.out / FOLDER), "added": add, **numbers}
    table = next((table for table in passport.tables if table.trained), None)
    if table and (trained := table.trained):
        figure, best = trained[table.measure], table.best_baseline
        fields |= {"test_set": table.name, "measure": table.measure, "n": trained.n, **figure.model_dump()}
        fields["best_baseline"] = best and {"scorer": best.scorer, "value": best[table.measure].value}
        value, other = figure.value, best[table.measure].value if best else None
        sign = -1 if table.measure in LESS_IS_BETTER else 1
        if best and value is not None and other is not None and sign * value <= sign * other:
            baseline = f"{best.scorer} {cell(best[table.measure].value)}"
            echo(f"warning: on {table.name} the judge does not beat the best baseline ({baseline})")
    show(fields | {"audit": passport.audit and passport.audit.result, "not_for": passport.not_for}, as_json)


def _train(
    config: JudgeTrainConfig, prepared: Prepared, *, resume: bool, audit: bool
) -> tuple[Judge, Passport, dict[str, float]]:
    """Train and examine a judge; return it with its passport and the numbers of the training."""
    from trainer.judge_training.run import examine_judge, train_judge

    with progress_bar("training") as bar, Terminal().stopping() as stop:

        def on_step(step: Metrics) -> None:
            rate = step["tokens"] / step["step_time"]
            validation = f", validation {cell(step['validation_loss'])}" if "validation_loss" in step else ""
            bar.update(step["step"], config.steps, f"loss {cell(step['loss'])}{validation}, {rate:.0f} tokens/s")

        judge, trained = train_judge(config, prepared, on_encode=bar.update, on_step=on_step, stop=stop, resume=resume)
    for name, one in prepared.datasets.items():
        if one.left_out:
            echo(f"left out of {name}: {one.reasons}")
    if judge is None:
        raise KeyboardInterrupt
    with progress_bar("examination") as bar:
        examined, passport, failed = examine_judge(
            config, prepared, judge, trained, audited=audit, on_progress=bar.update
        )
    if failed:
        echo(f"warning: {counted(failed, 'verdict')} of the test failed, and counts as 0.5")
    return examined, passport, {"steps": trained.best_step, "validation_loss": trained.best_loss}
