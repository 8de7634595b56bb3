"""`rubricsvc runs`: train a policy against rubric rewards, and show training runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rubricsvc import telemetry
from rubricsvc.cli import run_comparison, run_report, run_transcripts, run_views
from rubricsvc.cli.db import database
from rubricsvc.cli.local_judges import describe_embedded
from rubricsvc.cli.models import fetch_embedded, fetch_if_embedded
from rubricsvc.cli.output import INTERRUPTED, Json, cell, counted, echo, group, progress_bar, show
from rubricsvc.cli.run_baselines import baselines_of
from rubricsvc.cli.run_data import RunTasks, run_tasks
from rubricsvc.cli.run_difficulty import DifficultyOptions, show_difficulty
from rubricsvc.cli.run_evaluation import (
    evaluation_of,
    evaluations,
    evaluator_of,
    is_evaluated,
    print_evaluation_plan,
    show_evaluations,
    with_eval_judges,
)
from rubricsvc.cli.run_evolution import evolution_of, print_evolution_plan, with_judges
from rubricsvc.cli.run_folders import RUN, folder_record, invocation, is_run, read_invocation, run_name
from rubricsvc.cli.run_policy import acting_of, is_in_warm_up, load_policy, warm_up_of
from rubricsvc.cli.run_recording import baseline_recorder, complete_record, recorder_of, tracking_of
from rubricsvc.cli.run_references import check_references
from rubricsvc.cli.run_rewards import LocalQueue, reward_source, stored_judge, uses_database
from rubricsvc.cli.run_warnings import no_signal, print_warnings
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.services.submitting import veto_warning
from rubricsvc.store import audits, rubrics
from workers.engines.local.adapter_judges import with_adapter_fields
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from trainer.config import RunConfig, ServiceJudge
    from trainer.data.tasks import Task
    from trainer.history import Metrics
    from trainer.rewards.source import RewardSource

app = group("Training runs.")


@app.command()
def start(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Training configuration (docs/training.md).")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    as_json: Json = False,
) -> None:
    """Train a policy. Ctrl-C stops after the current step and saves a checkpoint."""
    from trainer.config import load_config

    telemetry.configure("WARNING", human=True)

    loaded = load_config(config)
    resume = resume and not is_in_warm_up(loaded)
    if _is_finished(loaded, resume):
        complete_record(loaded)
        show(folder_record(loaded.out), as_json)
        echo(f"{loaded.out} has all {counted(loaded.steps, 'step')} already; to continue, raise `steps` in {config}")
        return
    prepared = _prepare(loaded, allow_drafts)
    run, tasks, audit = prepared.config, prepared.tasks, prepared.audit
    _print_plan(prepared, resume)

    from trainer import checkpoint
    from trainer.loop import train
    from trainer.sizes import check_sizes

    start_time = time.monotonic()
    check_sizes(run, [*tasks.train, *tasks.held_out], acting_of(run))
    name = run_name(run.out, resume)
    with (
        checkpoint.locked(run.out),
        prepared.rewards() as rewards,
        evolution_of(run, name, rewards) as evolution,
        progress_bar("training") as bar,
        stop_on_interrupt() as stop,
        evaluator_of(run, tasks.held_out, rewards, prepared.rewards, on_progress=bar.note, stop=stop) as evaluator,
        recorder_of(run, name, stop) as recorder,
    ):

        def on_step(step: Metrics) -> None:
            reward = f"reward {cell(step['reward'])} ± {cell(step['reward_std'])}"
            bar.update(step["step"], run.steps, ", ".join(filter(None, (reward, no_signal(step, run.algorithm)))))

        if not warm_up_of(run, tasks.demonstrated, rewards, evaluator, bar=bar, stop=stop):
            _stopped(config)
        bar.update((checkpoint.steps(run.out) or [0])[-1] if resume else 0, run.steps, "")
        record = audit.record | {RUN: name, **invocation(config)}
        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "resume": resume, "record": record}
        options |= {"evolution": evolution, "evaluation": evaluation_of(evaluator, run, recorder)}
        options |= {"recorder": recorder, "tracking": tracking_of(run, name)}
        history = train(load_policy(run), tasks.train, rewards, run, **options)
        if not (stopped := history.stopped) and evaluator is not None and run.eval is not None and run.eval.baselines:
            options = {"source_of": prepared.rewards, "bar": bar, "stop": stop, "recorder": recorder}
            stopped = not baselines_of(run, tasks, rewards, evaluator, **options)
    seconds = {"seconds": round(time.monotonic() - start_time, 2)}
    show({"id": recorder.run_id} | folder_record(run.out) | seconds, as_json)
    print_warnings(history, run.algorithm)
    if stopped:
        _stopped(config)


def _stopped(config: Path) -> NoReturn:
    """Say how to continue, and exit."""
    echo(f"stopped; continue with: rubricsvc runs start {config} --resume")
    raise typer.Exit(INTERRUPTED)


@app.command()
def baselines(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run, with [eval].")],
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate the baselines that `eval.baselines` names, or all of them.

    What is missing in the folder of the run is done; run the command again to continue after an interrupt.
    """
    from trainer.config import load_config
    from trainer.sizes import check_sizes

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config)
    if loaded.eval is None:
        raise InvalidError(
            f"{config} has no table [eval]", hint="name held-out prompts (docs/training.md)", path="eval"
        )
    prepared = _prepare(loaded, allow_drafts)
    run, tasks = prepared.config, prepared.tasks
    _print_plan(prepared, resume=False)
    check_sizes(run, [*tasks.train, *tasks.held_out], acting_of(run))
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
        echo(f"stopped; continue with: rubricsvc runs baselines {config}")
        raise typer.Exit(INTERRUPTED)
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
    judge, audit, repeatability = _judge(loaded)
    run = loaded.model_copy(update={"judge": judge})
    check_local(run)
    prepared = PreparedRun(run, judge, audit, repeatability, RunTasks([], []), allow_drafts=True)
    path = out or loaded.data.difficulty or config.with_name("difficulty.jsonl")
    show_difficulty(run, prepared.rewards, path, DifficultyOptions(samples, pass_reward, stored), as_json=as_json)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose judges and prompts were found; nothing is loaded yet."""

    config: RunConfig
    judge: Judge | ServiceJudge
    audit: AuditStatus
    repeatability: Repeatability | None
    tasks: RunTasks
    allow_drafts: bool
    queue: LocalQueue = field(default_factory=LocalQueue)

    def rewards(self, judge: Judge | ServiceJudge | None = None) -> AbstractContextManager[RewardSource]:
        """Open the reward source of the run, or that of a judge of its evaluations."""
        repeatability = self.repeatability if judge is None else None
        return reward_source(self.config, judge or self.judge, repeatability, self.allow_drafts, self.queue)


def _prepare(loaded: RunConfig, allow_drafts: bool) -> PreparedRun:
    """Find the judges and the prompts of a run, before anything is loaded."""
    from trainer.local_only import check_local

    check_references(loaded)
    judge, audit, repeatability = _judge(loaded)
    run = with_eval_judges(with_judges(loaded.model_copy(update={"judge": judge})))
    check_local(run)
    tasks = run_tasks(run)
    if not allow_drafts:
        _reject_drafts(loaded, [*tasks.train, *tasks.held_out])
    return PreparedRun(run, judge, audit, repeatability, tasks, allow_drafts)


def _is_finished(config: RunConfig, resume: bool) -> bool:
    """Check trackers and folder before anything is loaded; return whether the run to resume has all its steps."""
    from trainer.trackers.tracking import check_installed

    check_installed(config.trackers)
    from trainer import checkpoint

    checkpoint.check_folder(config.out, resume=resume)
    done = is_run(config.out) and checkpoint.is_finished(config.out, config.steps)
    return resume and done and is_evaluated(config)


@app.command()
def resume(
    run: run_views.Run,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its folder, with the configuration file that it was started with."""
    folder = run_views.local_folder(run, ended=True)
    working_folder, file = read_invocation(folder)
    with chdir(working_folder):  # names of policies in files are as they were, and so is what is compared
        start(file, resume=True, allow_drafts=allow_drafts, as_json=as_json)


def _judge(config: RunConfig) -> tuple[Judge | ServiceJudge, AuditStatus, Repeatability | None]:
    """Return the judge, its newest audit and its repeatability. The run's record has the whole judge, not its name.

    The repeatability of a service's judge comes with its rewards.
    """
    from trainer.local_only import check_local

    check_local(config)  # once more where stored judges are in place of their names
    judge = config.judge
    if not isinstance(judge, Judge | str):
        return judge, status_at_service(judge), None
    if isinstance(judge, Judge) and not uses_database(config):
        hint = "store it with `rubricsvc judges add`, then `judges audit`"
        return with_adapter_fields(judge), AuditStatus(judge.name, missing_reason=hint), None

    with database() as db:
        row = stored_judge(db, judge)
        with db.read() as session:
            audit = audits.newest(session, [row.id]).get(row.id)
        return row.value, status_of_stored(row.value, audit.value if audit else None), row.measured


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The newest audit of a judge, or why there is none.

    ``current`` says whether the judge is still asked as in the audit; None if that is unknown.
    """

    judge: str
    audit: StoredAudit | None = None
    current: bool | None = None
    missing_reason: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """The entry of a run's ``config.json``: ``judge_audit`` is null without an audit."""
        if self.audit is None:
            return {"judge_audit": None}
        content = self.audit.audit
        fields = self.audit.model_dump(mode="json", exclude={"audit"})
        fields |= content.model_dump(include={"digest", "non_default_options"})
        rates = {suite.name: suite.rate.value for suite in content.suites}
        return {"judge_audit": {**fields, "current": self.current, "rates": rates}}

    @property
    def message(self) -> str:
        """One line for the person who starts the run."""
        if self.audit is None:
            return f"judge {self.judge} has no audit ({self.missing_reason})"
        options = self.audit.audit.non_default_options
        title = f"audit {self.audit.id} of {self.audit.created_at:%Y-%m-%d}" + (f" ({options})" if options else "")
        failed = ", ".join(suite.name for suite in self.audit.audit.failed_suites)
        result = f"passed {title}" if self.audit.passed else f"did not pass {title}: {failed}"
        outdated = "; its prompt has changed since, so audit it again" if self.current is False else ""
        return f"judge {self.judge} {result}{outdated}"


def status_of_stored(judge: Judge, audit: StoredAudit | None) -> AuditStatus:
    """Return the status of a judge in this database, given its newest audit."""
    if audit is None:
        return AuditStatus(judge.name, missing_reason=f"make one with `rubricsvc judges audit {judge.name}`")
    from workers.audit.runner import asking_fingerprint

    return AuditStatus(judge.name, audit, current=asking_fingerprint(judge) == audit.audit.fingerprint)


def status_at_service(judge: ServiceJudge) -> AuditStatus:
    """Return the status of a judge of a running service; unknown if the service does not answer yet."""
    from rubricsvc.client import Client

    try:
        with Client(judge.service, timeout=5.0, outage_seconds=0.0) as client:
            audits = list(client.iterate(client.judges.audits, judge.name))
    except RubricsvcError as error:
        return AuditStatus(judge.name, missing_reason=str(error))
    hint = f"make one with `rubricsvc judges audit {judge.name}` at the service"
    newest = audits[-1] if audits else None
    return AuditStatus(judge.name, newest, missing_reason=hint)


def _reject_drafts(config: RunConfig, tasks: list[Task]) -> None:
    """Raise NotApprovedError if rubrics of the tasks are drafts in the judge's database; a service does so itself."""
    if not uses_database(config):
        return
    with database() as db, db.read() as session:
        drafts = rubrics.only_drafts(session, {task.rubric.digest for task in tasks})
        rubrics.reject_drafts(session, [row.id for row in drafts])


def _print_plan(prepared: PreparedRun, resume: bool) -> None:
    config, judge, tasks = prepared.config, prepared.judge, prepared.tasks.train
    sampling, policy = config.sampling, config.policy
    verb = "resume training" if resume else "train"
    echo(f"{verb} {policy.model} ({policy.dtype}) for {config.steps} steps in {config.out}")
    repeated = ", repeated" if sampling.prompts_per_step > len(tasks) else ""
    prompts = f"{counted(sampling.prompts_per_step, 'prompt')} (of {len(tasks)}{repeated})"
    echo(f"each step: {prompts}, {sampling.group_size} completions each, judge {judge.name}")
    if config.evolve is not None:
        print_evolution_plan(config.evolve)
    if isinstance(judge, Judge):
        required = sorted({repr(key) for task in tasks for key in task.rubric.judged_required})
        if warning := veto_warning(judge, required):
            echo(f"warning: {warning}")
        describe_embedded([judge])
        fetch_if_embedded(judge)
    print_evaluation_plan(config, prepared.tasks.held_out)
    if policy.model == EMBEDDED:
        fetch_embedded()
    echo(prepared.audit.message)


@contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second Ctrl-C raises KeyboardInterrupt."""
    stop = Event()

    def on_signal(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[number])
        echo("\nstopping after this step, with a checkpoint; press Ctrl-C again to stop now")

    before: dict[int, Any] = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
