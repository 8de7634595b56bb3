"""`rubricsvc runs`: train a policy against rubric rewards, and show training runs."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli import output
from rubricsvc.cli.commands import Service, command, service
from rubricsvc.cli.output import INTERRUPTED, NOT_PASSED, Json, cell, echo, print_json, show
from rubricsvc.errors import InvalidError, NotFoundError, needs_extra
from rubricsvc.queries import Paging
from rubricsvc.schemas.base import every_row
from rubricsvc.schemas.runs import RunReport, StoredRun, measures_beside

app = output.group("Training runs.")

Config = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Training configuration (docs/training.md).")]
Drafts = Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")]
Forced = Annotated[bool, typer.Option("--force", help="Start although the preflight refuses; recorded.")]
_SHARE = "where they are at most 10% of the run's"
_SAMPLE = typer.Option("--preflight/--no-preflight", help="Sample completions for the preflight.", show_default=_SHARE)
Sampled = Annotated[bool | None, _SAMPLE]
RunRef = Annotated[str, typer.Argument(metavar="RUN", help="Id, name or folder of the run.", show_default=False)]
METRICS = ("reward", "reward_std", "unscored_fraction", "entropy", "grad_norm", "completions/mean_length", "step_time")
BY_PROMPT = ("values", "prompt_digests", "rubric_digests")  # the entries of an evaluation with a value for each prompt
ESTIMATES = ("max_at_k", "worst_of_k", "greedy")
"""Estimates of an evaluation beside the mean and its difference to the start."""
POLL_SECONDS = 0.25


@contextmanager
def stopping() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second Ctrl-C raises KeyboardInterrupt."""
    stop = Event()

    def on_signal(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[number])
        echo("\nstopping after this step, with a checkpoint; press Ctrl-C again to stop now")

    before: dict[int, Any] = {one: signal.signal(one, on_signal) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command()
def start(
    config: Config,
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    allow_drafts: Drafts = False,
    force: Forced = False,
    preflight: Sampled = None,
    as_json: Json = False,
) -> None:
    """Train a policy. Ctrl-C stops after the current step and saves a checkpoint.

    Exits with 4 where the preflight refuses the run (`runs preflight`).
    """
    telemetry.configure("WARNING", human=True)
    from trainer.preflight import RefusedError
    from trainer.run import Progress, Run

    try:
        run = Run(config, allow_drafts=allow_drafts, progress=Progress(echo, output.progress_bar, stopping))
        trained = run.train(resume=resume, force=force, preflight=preflight)
    except RefusedError as error:
        echo(f"{error}; {error.hint}")
        raise typer.Exit(NOT_PASSED) from error
    for alarm in trained.alarms():
        echo(f"warning: {alarm.text}")
    if trained.record is not None:
        _show(trained.record, as_json)
    if trained.stopped:
        echo(f"stopped; continue with: rubricsvc runs start {config} --resume")
        raise typer.Exit(INTERRUPTED)


@app.command()
def preflight(
    config: Config,
    *,
    prompts: Annotated[int, typer.Option(min=1, help="Maximum number of prompts to sample.")] = 8,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Completions of each prompt.", show_default="sampling.group_size")
    ] = None,
    allow_drafts: Drafts = False,
    as_json: Json = False,
) -> None:
    """Check a run before it starts: its judge, its sizes, and what its reward does to samples of the policy.

    Exits with 4 if a check refuses the run. The result is stored beside the run's folder; `runs start` uses it.
    """
    telemetry.configure("WARNING", human=True)
    from trainer.preflight import Preflight
    from trainer.run import Progress, prepare

    run = prepare(config, allow_drafts=allow_drafts, progress=Progress(echo, output.progress_bar, stopping))
    run.announce(resume=False)
    checked = Preflight(run)
    checks = [*checked.of_judge(), *checked.sample(prompts, samples)]
    show([check.model_dump(mode="json") for check in checks], as_json)
    if checked.file.is_file():
        echo(f"stored in {checked.file}")
    if refused := [check.name for check in checks if check.is_refusal]:
        echo(f"the run is refused by: {', '.join(refused)}")
        raise typer.Exit(NOT_PASSED)


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Sweep (docs/training.md).")],
    *,
    allow_drafts: Drafts = False,
    force: Forced = False,
    as_json: Json = False,
) -> None:
    """Train the runs of a sweep one after the other, and compare its variants on the held-out prompts.

    Runs that are finished, or that stopped at a divergence, are not repeated; run the command again to continue, also
    after a crash. One that fails is listed, and the others go on; the exit code is 1.
    """
    telemetry.configure("WARNING", human=True)
    from trainer.run import Progress
    from trainer.sweep import StoppedError, train_sweep

    shown = Progress(echo, output.progress_bar, stopping)
    try:
        table, counts = train_sweep(config, allow_drafts=allow_drafts, force=force, progress=shown)
    except StoppedError as error:
        echo(f"stopped; continue with: rubricsvc runs sweep {config}")
        raise typer.Exit(INTERRUPTED) from error
    show({**counts, **table.model_dump(mode="json")}, as_json)
    if table.failures:
        raise typer.Exit(output.WITH_FAILURES)
    if not table.best:
        echo("no variant is higher than every other by the gold score")


@command(app, "show")
def show_(
    query: Paging,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Id, name or folder of the run.", show_default="list runs")
    ] = None,
    *,
    last: Annotated[int, typer.Option(min=0, help="Show the metrics of the last N steps.")] = 0,
    evaluations: Annotated[bool, typer.Option("--evaluations", help="Show its evaluations and baselines.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for its end; exit with 1 if it fails.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run with its alarms, its last steps, or its evaluations on held-out prompts; or list training runs."""
    with service() as s:
        if run is None:
            if last or evaluations or follow:
                raise InvalidError("--last, --evaluations and --follow are of one run", hint="name its id or folder")
            columns = ("id", "name", "status", "steps", "steps_total", "judge", "created_at", "folder")
            empty = "no runs; start one with `rubricsvc runs start CONFIG.toml`"
            show(s.runs.page(after=query.after, limit=query.limit), as_json, columns=columns, empty=empty)
            return
        run_id = _id(s, run)
        if follow:
            _follow(s, run_id)
        record = s.runs.get(run_id)
        has_failed = follow and record.status in ("failed", "lost")
        with output.exit_with(output.WITH_FAILURES if has_failed else output.OK):
            if last:
                first = max(0, (record.metrics or {}).get("step", 0) - last)
                steps = [one.metrics for one in s.runs.steps(run_id, after=first, limit=last)]
                rows = steps if as_json else [{name: step.get(name) for name in ("step", *METRICS)} for step in steps]
                show(rows, as_json, empty="no step is finished yet")
                return
            report = s.runs.report(run_id)
            if evaluations:
                _show_evaluations(report, as_json)
                return
            alarms = []
            for one in report.alarms:
                examples = "; ".join(sample.where for sample in one.examples)
                alarms.append(f"{one.text} Examples: {examples}." if examples else one.text)
            _show(record, as_json, **{"alarms": alarms} if as_json else {})
            for text in () if as_json else alarms:
                echo(f"alarm: {text}")
            if follow and record.status in ("failed", "lost", "stopped"):
                echo("continue it with: rubricsvc runs start CONFIG.toml --resume")


def _follow(s: Service, run_id: int) -> None:
    """Show the progress of a run that another process trains until it ends."""
    from rubricsvc.services.jobs import answered
    from rubricsvc.services.runs import REPORT_SECONDS

    awaited_until, command = 0.0, f"rubricsvc runs show {run_id} --follow"
    with output.continue_hint("the run goes on", command), output.progress_bar(f"run {run_id}") as bar:
        while True:
            asked_at = time.monotonic()
            one = answered(partial(s.runs.get, run_id), echo)
            if (now := time.monotonic()) - asked_at > POLL_SECONDS:  # of a lost run a report is awaited
                awaited_until = now + 2 * REPORT_SECONDS
            metrics, notes = one.metrics or {}, []
            if "reward_std" in metrics:
                notes.append(f"reward {cell(metrics.get('reward'))} ± {cell(metrics['reward_std'])}")
            if one.status != "running":
                notes.append(f"{one.status}: {one.reason}" if one.reason else one.status)
            is_live = one.status in ("running", "paused")
            if one.stop_requested and is_live:
                notes.append("stops after this step")
            bar.update(one.steps, one.steps_total, ", ".join(notes))
            if not is_live and (one.status != "lost" or now >= awaited_until):
                return
            time.sleep(POLL_SECONDS)


def _show_evaluations(report: RunReport, as_json: bool) -> None:
    """Print the evaluations of a run and its baselines on held-out prompts, and where its best checkpoint is."""
    if not report.evaluations:
        hint = "add a table [eval] to its configuration (docs/training.md)"
        raise NotFoundError(f"no evaluations of the run {report.name}", hint=hint)
    lines = [*report.evaluations, *report.baselines]
    if as_json:
        for line in lines:
            print_json({name: value for name, value in line.items() if name not in BY_PROMPT})
    else:
        names = {"mean": "mean", "difference": "mean_difference"} | {one: one for one in ESTIMATES}
        scores = [
            {
                "policy": line.get("baseline", line["policy"]),
                "step": line["step"],
                "score": f"{score}{' (gold)' * (score == line['gold'])}",
                **{title: found.get(name) for title, name in names.items()},
                "unscored": found["unscored_fraction"],
            }
            for line in lines
            for score, found in line["scores"].items()
        ]
        columns, rows = measures_beside(lines)
        means = [{"mean": name} | dict(zip(columns, row, strict=True)) for name, row in rows]
        show({"scores": scores, "measures": means})
        if guarded := [line["leak_hits"] for line in lines if "leak_hits" in line]:
            echo(f"leak_hits: {sum(guarded)}")
    if (folder := Path(str(report.config.get("out", "")))).is_dir():
        from trainer.evaluation import saved_best

        if (best := saved_best(folder)) is not None:
            echo(f"best by {best['gold']}: {best['folder']}")


@app.command()
def stop(run: RunRef, as_json: Json = False) -> None:
    """Stop a run after its current step, with a checkpoint."""
    with service() as s:
        run_id = _id(s, run)
        _show(s.runs.stop(run_id), as_json)
    echo(f"run {run_id} stops after its current step; `rubricsvc runs show {run_id} --follow` follows it")


@app.command("report")
def report_(run: RunRef, *, out: Annotated[Path, typer.Option(help="Page to write.", show_default=False)]) -> None:
    """Write a run as one page: samples, evaluations with intervals, alarms, curves, judge, configuration.

    The page holds everything in itself, needs no script and loads nothing.
    """
    with needs_extra("charts"):
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    from rubricsvc.web.run import render_run

    with service() as s:
        page = render_run(s.runs.report(_id(s, run)))
    with output.open_output(out) as stream:
        stream.write(page)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="Id, name or folder of the run to compare with.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Id, name or folder of the other run.", show_default=False)],
    *,
    as_json: Json = False,
) -> None:
    """Compare two runs: configuration, training rewards, and scores on the held-out prompts that they share.

    Differences are B less A, paired by prompt, with 95 % intervals over prompts.
    """
    from trainer.comparing import compare as compare_runs

    with service() as s:
        ids = [_id(s, ref) for ref in (a, b)]
        found = compare_runs(*map(s.runs.report, ids))
        of_run = {"id", "name", "status", "judge", "steps", "steps_total", "reward_first", "reward_last"}
        runs = [s.runs.get(one).model_dump(mode="json", include=of_run) for one in ids]
    show({"runs": runs, **found.model_dump(mode="json")}, as_json)


def _id(s: Service, ref: str) -> int:
    """Return the id of a run on record, which may be named by its folder, or by a name that no other run has."""
    if ref.isdecimal():
        return int(ref)
    if not Path(ref).is_dir() and (ids := [run.id for run in every_row(s.runs.page) if run.name == ref]):
        if len(ids) > 1:
            raise InvalidError(f"{len(ids)} runs have the name {ref!r}", hint=f"name one by its id: {str(ids)[1:-1]}")
        return ids[0]
    from trainer.run import KEY, read_config

    key = read_config(Path(ref)).get(KEY)
    for run in s.runs.page(key=key) if key else ():
        return run.id
    hint = "RUBRICSVC_DATABASE_URL names another database than that of the run, or a service has the record"
    raise NotFoundError(f"the run in {ref} is not recorded in this database", hint=hint)


def _show(run: StoredRun, as_json: bool, **more: Any) -> None:
    """Print a run; not as JSON, its configuration and metrics are left out."""
    show(run.model_dump(mode="json", exclude=set() if as_json else {"config", "metrics"}) | more, as_json)
