"""`rubricsvc runs`: train a policy against rubric rewards, and show training runs."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli import run_comparison, run_preflight, run_report, run_sweep, run_transcripts, run_views
from rubricsvc.cli.output import Json, group, progress_bar, show
from rubricsvc.cli.run_baselines import baselines_of, check_prompts
from rubricsvc.cli.run_controls import control_changes, controls
from rubricsvc.cli.run_data import RunTasks
from rubricsvc.cli.run_difficulty import DifficultyOptions, show_difficulty
from rubricsvc.cli.run_evaluation import evaluations, evaluator_of, show_evaluations
from rubricsvc.cli.run_folders import read_invocation
from rubricsvc.cli.run_judge import judge_of_run
from rubricsvc.cli.run_preparation import PreparedRun, prepare, print_plan
from rubricsvc.cli.run_recording import baseline_recorder
from rubricsvc.cli.run_references import check_references
from rubricsvc.cli.run_training import RunOptions, exit_stopped, stop_on_interrupt, train_run
from rubricsvc.errors import InvalidError

app = group("Training runs.")


Config = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Training configuration (docs/training.md).")]
Drafts = Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")]


@app.command()
def start(
    config: Config,
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    allow_drafts: Drafts = False,
    force: Annotated[bool, typer.Option("--force", help="Start although the preflight refuses; recorded.")] = False,
    control: Annotated[str | None, typer.Option(help="Control: random, shuffled or frozen rewards.")] = None,
    preflight: Annotated[
        bool | None,
        typer.Option(
            "--preflight/--no-preflight",
            help="Sample completions for the preflight.",
            show_default=f"where they are at most {run_preflight.SHARE:.0%} of the run's",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a policy. Ctrl-C stops after the current step and saves a checkpoint.

    Exits with 4 where the preflight refuses the run (`runs preflight`).
    """
    changes = control_changes(config, control) if control is not None else {}
    options = RunOptions(resume, allow_drafts, force, changes, preflight)
    _start(config, options, as_json, f" --control {control}" if control else "")


def _start(config: Path, options: RunOptions, as_json: bool, arguments: str = "") -> None:
    telemetry.configure("WARNING", human=True)
    trained = train_run(config, options)
    if trained.record:
        show(trained.record, as_json)
    if trained.stopped:
        exit_stopped(f"runs start {config}{arguments} --resume")


@app.command()
def baselines(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run, with [eval].")],
    allow_drafts: Drafts = False,
    as_json: Json = False,
) -> None:
    """Evaluate the baselines that `eval.baselines` names, or all of them.

    What is missing in the folder of the run is done; run the command again to continue after an interrupt.
    """
    from trainer.config import load_config

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config)
    if loaded.eval is None:
        raise InvalidError(
            f"{config} has no table [eval]", hint="name held-out prompts (docs/training.md)", path="eval"
        )
    prepared = prepare(loaded, allow_drafts)
    run, tasks = prepared.config, prepared.tasks
    print_plan(prepared, resume=False)
    check_prompts(run, tasks)
    with (
        prepared.rewards() as rewards,
        progress_bar("baselines") as bar,
        stop_on_interrupt() as stop,
        evaluator_of(run, tasks.held_out, rewards, prepared.rewards, on_progress=bar.note, stop=stop) as evaluator,
        baseline_recorder(run) as recorder,
    ):
        assert evaluator is not None  # noqa: S101 - the run has [eval]
        options: dict[str, Any] = {"source_of": prepared.rewards, "bar": bar, "stop": stop, "recorder": recorder}
        lines = baselines_of(run, tasks, rewards, evaluator, **options)
    if lines is None:
        exit_stopped(f"runs baselines {config}")
    show_evaluations(lines, as_json)


@app.command()
def difficulty(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run.")],
    *,
    samples: Annotated[int, typer.Option(min=2, help="Completions of each prompt.")] = 8,
    pass_reward: Annotated[float, typer.Option(help="Reward from which a completion passes.")] = 0.5,
    stored: Annotated[bool, typer.Option("--stored", help="Use stored rewards of the policy; sample nothing.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="beside the configuration")] = None,
    as_json: Json = False,
) -> None:
    """Measure pass rate and spread of rewards by prompt, for `data.difficulty`.

    Prompts that the file (difficulty.jsonl) has already are not measured again.
    """
    from trainer.config import load_config
    from trainer.local_only import check_local

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config, measures_difficulty=True)
    check_references(loaded)
    judge, audit, repeatability = judge_of_run(loaded)
    run = loaded.model_copy(update={"judge": judge})
    check_local(run)
    prepared = PreparedRun(run, judge, audit, repeatability, RunTasks([], []), allow_drafts=True)
    path = out or loaded.data.difficulty or config.with_name("difficulty.jsonl")
    show_difficulty(run, prepared.rewards, path, DifficultyOptions(samples, pass_reward, stored), as_json=as_json)


@app.command()
def resume(
    run: run_views.Run,
    allow_drafts: Drafts = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its folder, with the configuration file that it was started with."""
    folder = run_views.local_folder(run, ended=True)
    working_folder, file, changes = read_invocation(folder)
    with chdir(working_folder):  # names of policies in files are as they were, and so is what is compared
        _start(file, RunOptions(True, allow_drafts, changes=changes), as_json)


app.command("list")(run_views.list_)
app.command("show")(run_views.show_)
app.command()(run_views.watch)
app.command()(run_views.stop)
app.command()(run_views.delete)
app.command()(evaluations)
app.command()(run_report.report)
app.command()(run_report.plot)
app.command()(run_transcripts.transcripts)
app.command()(run_comparison.compare)
app.command()(controls)
app.command()(run_sweep.sweep)
app.command()(run_preflight.preflight)
