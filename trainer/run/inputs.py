"""What a run needs before anything is loaded: its judges, its prompts, and where its rewards come from."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from rubricsvc.broker import MEMORY
from rubricsvc.client import Client
from rubricsvc.core.audit import Repeatability, StoredAudit
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.formats import load
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.lines import read_all
from rubricsvc.schemas.runs import REWARD
from rubricsvc.services.jobs import veto_warning
from rubricsvc.services.local import LocalService
from rubricsvc.services.run_inputs import JudgeOnRecord, RunInputs, open_database
from rubricsvc.settings import get_settings
from trainer.config import CHECKS, DataSource, EvalConfig, RunConfig, ServiceJudge, judge_name
from trainer.data.tasks import Task, check_apart, hold_out, names_of, on_both_sides, tasks_of
from workers import checks
from workers.audit.runner import asking_fingerprint
from workers.engines import check_addresses, judge_addresses, make_engine
from workers.engines.local.embedded_model import EMBEDDED, NAME, embedded_model
from workers.engines.local.weights import with_adapter_fields
from workers.judges import validate

if TYPE_CHECKING:
    from trainer.policies.policy import Acting
    from trainer.rewards import RewardSource


log = logging.getLogger(__name__)


class ProgressTask(Protocol):
    """A part of the work with a number of units."""

    def update(self, done: int, total: int, note: str) -> None:
        """Report that ``done`` of ``total`` units are finished."""

    def note(self, note: str) -> None:
        """Report what is done now, between two units."""


class Progress(Protocol):
    """Where a run reports to."""

    def message(self, text: str) -> None:
        """Report something that a person should read."""

    def task(self, name: str) -> AbstractContextManager[ProgressTask]:
        """Begin a part of the work."""

    def stopping(self) -> AbstractContextManager[Event]:
        """Yield the event that is set when the run should stop after its current step."""


class _Silent:
    def update(self, done: int, total: int, note: str) -> None:
        pass

    def note(self, note: str) -> None:
        pass


class Logged:
    """Logs messages."""

    def message(self, text: str) -> None:
        """Log a message."""
        log.info("%s", text)

    @contextmanager
    def task(self, name: str) -> Iterator[ProgressTask]:
        """Show nothing."""
        yield _Silent()

    @contextmanager
    def stopping(self) -> Iterator[Event]:
        """Yield an event that nothing sets."""
        yield Event()


def check_local(run: RunConfig) -> None:
    """Check every address of a run, if it or the project has ``local_only``; judges that are named only are left out.

    Raises:
        InvalidError: One is on another machine, or cannot be known. The message names all of them.
    """
    settings = get_settings()
    if run.local_only or settings.local_only:
        check_addresses(_addresses(run), (*run.local_networks, *settings.local_networks))


def _addresses(run: RunConfig) -> Iterator[tuple[str, str | None]]:
    """Yield what a run reaches, with its address; None for one that is not known."""
    evolve = (run.evolve.proposer, run.evolve.trusted) if run.evolve is not None else ()
    for judge in (run.judge, *(run.eval.judges if run.eval is not None else ()), *evolve):
        if isinstance(judge, ServiceJudge):
            yield f"judge {judge.name!r}", judge.service
        elif isinstance(judge, Judge):
            yield from judge_addresses(judge)
    if run.sampling.server is not None:
        yield "sampling.server", run.sampling.server
    for server in run.tools.mcp:
        if server.url is not None:
            yield f"MCP server {server.name!r}", server.url
    if "wandb" in run.trackers and os.environ.get("WANDB_MODE") not in ("offline", "disabled"):
        yield "tracker 'wandb'", os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    if "trackio" in run.trackers and os.environ.get("TRACKIO_SPACE_ID"):
        yield "tracker 'trackio'", "https://huggingface.co"


def counted(number: int, noun: str) -> str:
    """Return the number with the noun, in the plural unless it is one."""
    return f"{number} {noun}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class RunTasks:
    """The prompts to train on, and those that are held out.

    ``demonstrated`` are those to train on that have demonstrations, with these; ``other`` are prompts of another
    collection.
    """

    train: list[Task]
    held_out: list[Task]
    demonstrated: list[Task] = field(default_factory=list)
    other: list[Task] = field(default_factory=list)


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


@dataclass(frozen=True, slots=True)
class RunJudge:
    """The judge of a run, with what was measured of it. One that the queue asks is ``stored``.

    The repeatability of a service's judge comes with its rewards.
    """

    value: Judge | ServiceJudge
    audit: AuditStatus
    stored: JudgeOnRecord | None = None

    @property
    def repeatability(self) -> Repeatability | None:
        """How far its rewards deviate if it is asked again, if that was measured."""
        return self.stored.repeatability if self.stored is not None else None


def find_judges(loaded: RunConfig) -> tuple[RunConfig, RunJudge]:
    """Return a run with judges in place of their names, so that its record has all of them, and its judge.

    Raises:
        NotFoundError: A judge or a rubric that the configuration names is not stored; it names all of them.
        InvalidError: A judge may not be used, or is not on this machine although the run is ``local_only``.
    """
    _check_references(loaded)
    check_local(loaded)
    judge = _judge(loaded)
    changes: dict[str, Any] = {"judge": judge.value}
    if (settings := loaded.eval) is not None:
        judges = tuple(_eval_judge(one, loaded.scored_by == "celery") for one in settings.judges)
        changes["eval"] = settings.model_copy(update={"judges": judges})
    if (evolve := loaded.evolve) is not None:
        given = {"proposer": evolve.proposer, "trusted": evolve.trusted}
        found = {name: _stored(one).judge if isinstance(one, str) else one for name, one in given.items()}
        proposer = found["proposer"]
        if isinstance(proposer, Judge) and not proposer.model:
            message = f"judge {proposer.name!r} ({proposer.mode}) has no model of its own"
            raise InvalidError(message, hint="name one of its members", path="evolve.proposer")
        changes["evolve"] = evolve.model_copy(update=found)
    run = loaded.model_copy(update=changes)
    check_local(run)
    return run, judge


def uses_database(config: RunConfig) -> bool:
    """Return whether the run's judge is in the database, or is stored there for the queue."""
    return isinstance(config.judge, str) or (isinstance(config.judge, Judge) and config.scored_by == "celery")


def _check_references(config: RunConfig) -> None:
    judges: dict[str, Any] = {"judge": config.judge}
    sources: dict[str, DataSource] = {"data": config.data}
    sources |= {f"data.domains.{name}": domain for name, domain in config.data.domains.items()}
    if config.evolve is not None:
        judges |= {"evolve.proposer": config.evolve.proposer, "evolve.trusted": config.evolve.trusted}
    if config.eval is not None:
        judges |= {f"eval.judges.{number}": judge for number, judge in enumerate(config.eval.judges)}
        sources["eval"] = config.eval
    names = {path: judge for path, judge in judges.items() if isinstance(judge, str)}
    refs = {f"{path}.store.{n}": ref for path, source in sources.items() for n, ref in enumerate(source.store)}
    if names or refs:
        with open_database() as db:
            RunInputs(db).check_references(names, refs)


def _stored(judge: Judge | str) -> JudgeOnRecord:
    """Return the judge on record; one that is given with its fields is stored under its name."""
    if isinstance(judge, Judge):
        judge = with_adapter_fields(judge)
        validate(judge)
    with open_database() as db:
        return RunInputs(db).judge(judge)


def _eval_judge(judge: Judge | ServiceJudge | str, queued: bool) -> Judge | ServiceJudge:
    if isinstance(judge, str) or (isinstance(judge, Judge) and queued):
        return _stored(judge).judge
    return with_adapter_fields(judge) if isinstance(judge, Judge) else judge


def _judge(config: RunConfig) -> RunJudge:
    judge = config.judge
    if isinstance(judge, ServiceJudge):
        return RunJudge(judge, audit_at_service(judge))
    if isinstance(judge, Judge) and not uses_database(config):
        hint = "store it with `rubricsvc judges add`, then `judges audit`"
        return RunJudge(with_adapter_fields(judge), AuditStatus(judge.name, missing_reason=hint))
    stored = _stored(judge)
    return RunJudge(stored.judge, audit_of(stored.judge, stored.audit), stored)


def audit_of(judge: Judge, audit: StoredAudit | None) -> AuditStatus:
    """Return the status of a judge in this database, given its newest audit."""
    if audit is None:
        return AuditStatus(judge.name, missing_reason=f"make one with `rubricsvc judges audit {judge.name}`")
    return AuditStatus(judge.name, audit, current=asking_fingerprint(judge) == audit.audit.fingerprint)


def audit_at_service(judge: ServiceJudge) -> AuditStatus:
    """Return the status of a judge of a running service; unknown if the service does not answer yet."""
    try:
        with Client(judge.service, timeout=5.0, outage_seconds=0.0) as client:
            audits = list(client.iterate(client.judges.audits, judge.name))
    except RubricsvcError as error:
        return AuditStatus(judge.name, missing_reason=str(error))
    hint = f"make one with `rubricsvc judges audit {judge.name}` at the service"
    return AuditStatus(judge.name, audits[-1] if audits else None, missing_reason=hint)


def acting_of(run: RunConfig) -> Acting | None:
    """Return the environment of a run; None without one."""
    from trainer.environments.registry import make_acting

    return make_acting(run.environment, get_settings().collections_dir, run.tools) if run.environment else None


def find_tasks(config: RunConfig, progress: Progress) -> RunTasks:
    """Return the prompts of a run, read from files or the database, divided and checked.

    Raises:
        InvalidError: A source has no prompt with a rubric, or a held-out prompt is trained on.
        NotFoundError: A stored rubric does not exist.
    """
    train = data_tasks(config, progress)
    held_out: list[Task] = []
    other: list[Task] = []
    if config.eval is not None:
        if config.eval.share is not None:
            tasks, (train, held_out) = train, hold_out(train, config.eval.share, config.seed)
            hint = "change eval.share or seed, or name held-out prompts with eval.path"
            _check_domains(tasks, train, config, hint, "eval.share")
        else:
            held_out = _tasks(config.eval, "eval", progress)
        check_apart(train, held_out)
        if shared := on_both_sides(train, held_out):
            count = f"{len(shared)} of {counted(len(held_out), 'held-out prompt')}"
            text = f"pages of {count} are those of training prompts: {names_of(shared)}"
            progress.message(f"warning: contamination: {text}")
        if len(held_out) < MIN_CLUSTERS:
            progress.message(f"warning: {counted(len(held_out), 'held-out prompt')}; intervals need {MIN_CLUSTERS}")
        if config.eval.other is not None:
            other = _tasks(DataSource(path=config.eval.other.path), "eval.other", progress)
    demonstrated = _demonstrated(train, config, progress) if config.demonstrations is not None else []
    return RunTasks(train, held_out, demonstrated, other)


def data_tasks(config: RunConfig, progress: Progress) -> list[Task]:
    """Return all prompts of the data of a run, those of domains with the names of these."""
    if not config.data.domains:
        return _tasks(config.data, "data", progress)
    return [
        replace(task, domain=name)
        for name, source in config.data.domains.items()
        for task in _tasks(source, f"data.domains.{name}", progress)
    ]


def _demonstrated(tasks: list[Task], config: RunConfig, progress: Progress) -> list[Task]:
    """Return the prompts with demonstrations of a file, or with those that the script of `research` plays."""
    from trainer.data.demonstrations import with_demonstrations
    from trainer.environments.scripted import demonstrate
    from trainer.environments.tools import Research

    path = config.demonstrations.path if config.demonstrations is not None else None
    if path is not None:
        chosen = with_demonstrations(tasks, read_all(InputFile(str(path))))
    else:
        acting = acting_of(config)
        research = acting.own_environment if acting is not None else None
        assert acting is not None and isinstance(research, Research)  # noqa: S101 - the configuration was checked
        played = [(task, demonstrate(research, task.prompt, acting.limits)) for task in tasks]
        chosen = [replace(task, demonstrations=(one,)) for task, one in played if one is not None]
    if not chosen:
        hint = "raise environment.max_turns, or set demonstrations.path"
        raise InvalidError("the script answers no prompt of the data", hint=hint, path="demonstrations")
    count = sum(len(task.demonstrations) for task in chosen)
    progress.message(f"{counted(count, 'demonstration')} of {len(chosen)} of {counted(len(tasks), 'prompt')}")
    return chosen


def _check_domains(before: list[Task], after: list[Task], config: RunConfig, hint: str, path: str) -> None:
    """Check that a setting left a prompt of each domain that is trained on."""
    lost = {task.domain for task in before} - {task.domain for task in after}
    if config.prompts is not None and config.prompts.weights:
        lost &= set(config.prompts.weights)
    if lost:
        raise InvalidError(f"no prompt of {', '.join(sorted(lost))} is left", hint=hint, path=path)


def _tasks(source: DataSource, table: str, progress: Progress) -> list[Task]:
    if source.path is not None:
        records, origin = list(load(source.path, source.format)), str(source.path)
    else:
        with open_database() as db:
            records, origin = RunInputs(db).records(source.store), ", ".join(source.store)
    tasks = tasks_of(records)
    if not tasks:
        path = f"{table}.{source.given[0]}"
        raise InvalidError(f"no prompt with a rubric in {origin}", hint="give each prompt its criteria", path=path)
    if skipped := len(records) - len(tasks):
        progress.message(f"skipped {skipped} of {len(records)} records of {origin} without a prompt or a rubric")
    for task in tasks:
        checks.validate(task.rubric)
    return tasks


def reject_drafts(config: RunConfig, tasks: Iterable[Task]) -> None:
    """Raise NotApprovedError if rubrics of the tasks are drafts in the judge's database; a service does so itself."""
    if uses_database(config):
        with open_database() as db:
            RunInputs(db).reject_drafts({task.rubric.digest for task in tasks})


class Rewards:
    """Opens the rewards of a run: the queue for all of its judges, a judge in this process, or a service."""

    def __init__(self, run: RunConfig, judge: RunJudge, allow_drafts: bool, progress: Progress) -> None:
        self._run, self._judge, self._allow_drafts, self._progress = run, judge, allow_drafts, progress
        self._opened = ExitStack()
        self._db: RunInputs | None = None
        self._users, self._has_worker = 0, False

    @contextmanager
    def open(self, other: Judge | ServiceJudge | None = None) -> Iterator[RewardSource]:
        """Open the reward of the run, or that of another judge of its evaluations."""
        from trainer.rewards import JobRewards, JudgeInfo, JudgeRewards

        run, judge = self._run, other or self._judge.value
        measured = self._judge.repeatability if other is None else None
        options: dict[str, Any] = {"run": run.out.name, "allow_drafts": self._allow_drafts}
        if not isinstance(judge, Judge):
            outage = min(get_settings().outage_seconds, judge.timeout_s)
            with Client(judge.service, outage_seconds=outage) as client:
                info = JudgeInfo.of(client.judges.get(judge.name))
                yield JobRewards(client, info, timeout=judge.timeout_s, **options)
        elif run.scored_by == "in_process":
            self._progress.message(f"completions are scored by {judge.name} in this process, not through the queue")
            with JudgeRewards(judge, repeatability=measured) as in_process:
                yield in_process
        else:
            info = JudgeInfo(judge.name, judge.calibrated, measured, judge.digest)
            with self._queue(judge) as db:
                yield JobRewards(LocalService(db.db, approval="none"), info, timeout=run.score_timeout_s, **options)

    @contextmanager
    def _queue(self, judge: Judge) -> Iterator[RunInputs]:
        """Open the queue for a judge; it is closed after its last user."""
        if self._db is None:
            with ExitStack() as opened:
                db = RunInputs(opened.enter_context(open_database()))
                opened.enter_context(self._worker(db, judge))
                self._opened, self._db = opened.pop_all(), db
        elif self._has_worker:
            self._check_engine(judge)
        self._users += 1
        try:
            yield self._db
        finally:
            self._users -= 1
            if not self._users:
                self._db = None
                self._opened.close()

    @contextmanager
    def _worker(self, db: RunInputs, judge: Judge) -> Iterator[None]:
        """Run a Celery worker in this process if no other one can be woken."""
        from workers.queue.in_process import embedded_worker

        in_memory = get_settings().broker_url.startswith(MEMORY)
        running = 0 if in_memory else db.running_workers()
        self._has_worker = not running
        if running:
            self._progress.message(f"completions are scored through the queue by {counted(running, 'running worker')}")
            yield
            return
        reason = "the broker is memory://" if in_memory else "no other worker is running"
        self._progress.message(f"completions are scored through the queue by a Celery worker in this process: {reason}")
        self._check_engine(judge)
        with embedded_worker(get_settings(), db.db, keep_models=True):
            yield

    def _check_engine(self, judge: Judge) -> None:
        """Make a judge's engine and close it, so that its errors are raised before a worker needs it."""
        fetch_embedded(self._progress, judge)
        asyncio.run(make_engine(judge).aclose())


def fetch_embedded(progress: Progress, judge: Judge | None = None) -> None:
    """Unpack the embedded model into the cache if it is missing and needed, by a judge or, without one, by a policy."""
    needed = judge is None or any(leaf.model == EMBEDDED for leaf in judge.leaf_judges)
    cache = get_settings().cache_dir
    if needed and not (cache / NAME).is_dir():
        progress.message("fetching the embedded model (93 MB, once)")
        embedded_model(cache)


def plan(run: RunConfig, judge: RunJudge, tasks: RunTasks, *, resume: bool) -> Iterator[str]:
    """Yield what a run will do, for the person who starts it."""
    sampling, policy = run.sampling, run.policy
    verb = "resume training" if resume else "train"
    yield f"{verb} {policy.model} ({policy.dtype}) for {run.steps} steps in {run.out}"
    repeated = ", repeated" if sampling.prompts_per_step > len(tasks.train) else ""
    prompts = f"{counted(sampling.prompts_per_step, 'prompt')} (of {len(tasks.train)}{repeated})"
    yield f"each step: {prompts}, {sampling.group_size} completions each, judge {judge.value.name}"
    if (evolve := run.evolve) is not None:
        given = {"proposer": evolve.proposer, "trusted": evolve.trusted}
        described = ", ".join(f"{name} {one.name}" for name, one in given.items() if isinstance(one, Judge))
        by = "approved by people" if evolve.approve == "human" else "approved automatically"
        yield f"rubrics evolve every {counted(evolve.every, 'step')}: {described}; versions are {by}"
    if isinstance(judge.value, Judge):
        required = sorted({repr(key) for task in tasks.train for key in task.rubric.judged_required})
        if warning := veto_warning(judge.value, required):
            yield f"warning: {warning}"
        if any(leaf.model == EMBEDDED and leaf.adapter is None for leaf in judge.value.leaf_judges):
            yield "the embedded 135M model without an adapter is for trying things out: it is hardly better than chance"
    if run.eval is not None:
        yield from _evaluation_plan(run.eval, tasks.held_out)
    yield judge.audit.message


def _evaluation_plan(settings: EvalConfig, held_out: list[Task]) -> Iterator[str]:
    """Yield what is evaluated, and why the gold score cannot show that the reward is fooled."""
    greedy = " and a greedy one" if settings.greedy else ""
    prompts = f"{counted(len(held_out), 'held-out prompt')}, {counted(settings.samples, 'sample')}{greedy} each"
    scores = f"scored by {', '.join(settings.score_names)}; best checkpoint by {settings.gold_name}"
    yield f"evaluation every {counted(settings.every, 'step')}: {prompts}, {scores}"
    gold = settings.gold_name
    if settings.stop_on_divergence and gold == REWARD:
        yield "warning: stop_on_divergence has no effect: the gold score is the reward; name judges, or set checks"
    if gold == CHECKS and all(criterion.check for task in held_out for criterion in task.rubric.criteria):
        yield "warning: the gold score is by checks, and so is the whole reward: it cannot diverge from itself"
    elif gold != REWARD and len(held_out) < MIN_CLUSTERS:
        yield f"warning: divergence from gold is not tested: that needs {MIN_CLUSTERS} held-out prompts"


def gold_judge(run: RunConfig) -> Judge | ServiceJudge | None:
    """Return the judge that the gold score of a run's evaluations is by; None where that is the reward or checks."""
    judges = [one for one in run.eval.judges if judge_name(one) == run.eval.gold_name] if run.eval is not None else []
    judge = judges[0] if judges else None
    assert not isinstance(judge, str)  # noqa: S101 - stored judges are in place of their names
    return judge
