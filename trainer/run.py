"""Training runs from their configuration files.

::

    run = prepare("run.toml")   # or prepare(load_config(…), progress=…)
    run.train()                 # what `rubricsvc runs start run.toml` does; resume=True continues
    run.evaluate()              # the baselines of [eval]
    run.report()                # metrics, evaluations, samples, alarms: from the record in the database

The database, or the service that has the judge, holds the record of a run. Its folder holds checkpoints and a copy of
the metrics, which a resumed run continues from.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rubricsvc.client import Client
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, RubricsvcError, UnavailableError, counted
from rubricsvc.formats import Record, load
from rubricsvc.schemas.judges import StoredJudge
from rubricsvc.schemas.runs import BEFORE, REWARD, Alarm, RunReport, StoredRun
from rubricsvc.services.jobs import veto_warning
from rubricsvc.services.local import LocalService
from rubricsvc.services.runs import Runs
from rubricsvc.services.versions import reject_drafts
from rubricsvc.settings import get_settings
from trainer import checkpoint
from trainer.alarms import NO_SIGNAL, VETOED, alarms
from trainer.algorithms import SUPERVISED
from trainer.config import CHECKS, DataSource, RunConfig, ServiceJudge, load_config
from trainer.data.tasks import RunTasks, Task, check_apart, hold_out, names_of, page_key, tasks_of
from trainer.divergence import first_divergence
from trainer.recording import METRICS, History, Metrics, RunRecorder, Tracking, read
from trainer.rewards import CheckRewards, JudgeInfo, Rewards, service
from workers import checks
from workers.audit.runner import asking_fingerprint
from workers.engines import check_addresses, judge_addresses
from workers.engines.local.embedded_model import EMBEDDED, fetch_embedded
from workers.engines.local.weights import with_adapter_fields

if TYPE_CHECKING:
    from trainer.evaluation import Evaluator
    from trainer.evolution import OnlineEvolution
    from trainer.policies.policy import Policy
    from trainer.rewards import RewardSource

log = logging.getLogger(__name__)

KEY = "run"
"""The entry of a run's ``config.json`` with its key in databases: that of its record, and of its evolved rubrics."""
FORCED = "preflight_forced"
"""The entry of ``config.json`` with the checks that would have refused the run."""


def _logged(name: str) -> AbstractContextManager[Any]:
    log.info("%s", name)
    return nullcontext(SimpleNamespace(update=lambda *_: None, note=log.debug))


@dataclass(frozen=True)
class Progress:
    """Where a run reports to; by default it logs.

    ``message`` is called with what a person should read. ``task(name)`` begins a part of the work, and yields an object
    with ``update(done, total, note)`` and, for what is done between two units, ``note(note)``. ``stopping()`` yields
    the event that is set when the run should stop after its current step.
    """

    message: Callable[[str], None] = log.info
    task: Callable[[str], AbstractContextManager[Any]] = _logged
    stopping: Callable[[], AbstractContextManager[Event]] = lambda: nullcontext(Event())


def check_local(run: RunConfig) -> None:
    """Check the addresses of a run, if it or the project has ``local_only``; judges only named are left out."""
    settings = get_settings()
    if not (run.local_only or settings.local_only):
        return
    reached: list[tuple[str, str | None]] = []
    evolve = run.evolve.judges.values() if run.evolve is not None else ()
    for judge in (run.judge, *(run.eval.judges if run.eval is not None else ()), *evolve):
        if isinstance(judge, ServiceJudge):
            reached.append((f"judge {judge.name!r}", judge.service))
        elif isinstance(judge, Judge):
            reached += judge_addresses(judge)
    if run.sampling.server is not None:
        reached.append(("sampling.server", run.sampling.server))
    reached += [(f"MCP server {one.name!r}", one.url) for one in run.tools.mcp if one.url is not None]
    if "wandb" in run.trackers and os.environ.get("WANDB_MODE") not in ("offline", "disabled"):
        reached.append(("tracker 'wandb'", os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"))
    if "trackio" in run.trackers and os.environ.get("TRACKIO_SPACE_ID"):
        reached.append(("tracker 'trackio'", "https://huggingface.co"))
    check_addresses(reached, (*run.local_networks, *settings.local_networks))


@dataclass(frozen=True, slots=True)
class RunJudge:
    """The judge of a run and its newest audit, or why there is none. One that the queue asks is ``stored``.

    ``current`` says whether the judge is still asked as in the audit; None if that is unknown. The repeatability of a
    service's judge comes with its rewards.
    """

    value: Judge | ServiceJudge
    audit: StoredAudit | None = None
    current: bool | None = None
    missing_reason: str = ""
    stored: StoredJudge | None = None

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
            return f"judge {self.value.name} has no audit ({self.missing_reason})"
        options = self.audit.audit.non_default_options
        title = f"audit {self.audit.id} of {self.audit.created_at:%Y-%m-%d}" + (f" ({options})" if options else "")
        failed = ", ".join(suite.name for suite in self.audit.audit.failed_suites)
        result = f"passed {title}" if self.audit.passed else f"did not pass {title}: {failed}"
        outdated = "; it is asked or read in another way since, so audit it again" if self.current is False else ""
        return f"judge {self.value.name} {result}{outdated}"


def find_judges(loaded: RunConfig) -> tuple[RunConfig, RunJudge]:
    """Return a run with judges in place of their names, so that its record has all of them, and its judge.

    A judge with its own fields that the queue asks is stored under its name.

    With RUBRICSVC_URL, judges and rubrics are those of that service, whose workers score.
    """
    evolve, settings, queued = loaded.evolve, loaded.eval, loaded.scored_by == "celery"
    judges: dict[str, Any] = {"judge": loaded.judge}
    sources: dict[str, DataSource] = {"data": loaded.data}
    sources |= {f"data.domains.{name}": domain for name, domain in loaded.data.domains.items()}
    if evolve is not None:
        judges |= {f"evolve.{name}": judge for name, judge in evolve.judges.items()}
    if settings is not None:
        judges |= {f"eval.judges.{number}": judge for number, judge in enumerate(settings.judges)}
        sources["eval"] = settings
    names = {path: judge for path, judge in judges.items() if isinstance(judge, str)}
    refs = {f"{path}.store.{n}": ref for path, source in sources.items() for n, ref in enumerate(source.store)}
    url, problems = os.environ.get("RUBRICSVC_URL"), list[tuple[str, RubricsvcError]]()
    if url and not queued and isinstance(loaded.judge, str):
        message = "scored_by: a judge of the service at RUBRICSVC_URL is asked by its workers"
        raise InvalidError(message, hint="remove `scored_by`", path="scored_by")
    if names or refs:
        with service() as s:
            for path, ref in (names | refs).items():
                try:
                    s.judges.get(ref) if path in names else s.rubrics.get(ref)
                except UnavailableError:
                    raise
                except RubricsvcError as error:
                    problems.append((path, error))
    if problems:
        kind = NotFoundError if all(isinstance(error, NotFoundError) for _, error in problems) else InvalidError
        hints = dict.fromkeys(error.hint for _, error in problems)
        message = "\n".join(f"{path}: {error}" for path, error in problems)
        raise kind(message, hint="; ".join(filter(None, hints)), path=problems[0][0])
    check_local(loaded)

    def found(judge: Judge | ServiceJudge | str, *, queued: bool = queued) -> RunJudge:
        if isinstance(judge, ServiceJudge):
            return RunJudge(judge)
        if isinstance(judge, Judge) and not queued:
            hint = "store it with `rubricsvc judges add`, then `judges audit`"
            return RunJudge(with_adapter_fields(judge), missing_reason=hint)
        with service() as s:
            known = s.judges.get(judge) if isinstance(judge, str) else s.judges.add(judge=with_adapter_fields(judge))
        value = known.value
        audit, hint = known.newest_audit, f"make one with `rubricsvc judges audit {value.name}`"
        current = asking_fingerprint(value) == audit.audit.fingerprint if audit is not None else None
        there = ServiceJudge(service=url, name=value.name) if url and queued else value
        return RunJudge(there, audit, current, hint, known)

    judge = audit_at_service(loaded.judge) if isinstance(loaded.judge, ServiceJudge) else found(loaded.judge)
    changes: dict[str, Any] = {"judge": judge.value}
    if settings is not None:
        changes["eval"] = settings.model_copy(update={"judges": tuple(found(one).value for one in settings.judges)})
    if evolve is not None:
        asked = {name: found(one, queued=False).value for name, one in evolve.judges.items()}
        proposer = asked["proposer"]
        if isinstance(proposer, Judge) and not proposer.model:
            message = f"judge {proposer.name!r} ({proposer.mode}) has no model of its own"
            raise InvalidError(message, hint="name one of its members", path="evolve.proposer")
        changes["evolve"] = evolve.model_copy(update=asked)
    run = loaded.model_copy(update=changes)
    check_local(run)
    return run, judge


def find_tasks(config: RunConfig, say: Callable[[str], None]) -> RunTasks:
    """Return the prompts of a run, read from files or the database, divided and checked."""

    def tasks_in(source: DataSource, table: str, domain: str = "") -> list[Task]:
        if source.path is not None:
            records, origin = list(load(source.path, source.format)), str(source.path)
        else:
            records, origin = [], ", ".join(source.store)
            with service() as s:
                for stored in map(s.rubrics.get, source.store):
                    prompt = s.prompts.get(stored.prompt_id) if stored.prompt_id is not None else None
                    value, id_ = (prompt.prompt, prompt.external_id) if prompt is not None else (None, None)
                    records.append(Record(value, stored.rubric, id=id_, name=stored.name))
        tasks = tasks_of(records)
        if not tasks:
            path = f"{table}.{source.given[0]}"
            raise InvalidError(f"no prompt with a rubric in {origin}", hint="give each prompt its criteria", path=path)
        if skipped := len(records) - len(tasks):
            say(f"skipped {skipped} of {len(records)} records of {origin} without a prompt or a rubric")
        for task in tasks:
            checks.validate(task.rubric)
        return [replace(task, domain=domain) for task in tasks]

    sources: list[tuple[DataSource, str, str]] = [(config.data, "data", "")]
    if config.data.domains:
        sources = [(source, f"data.domains.{name}", name) for name, source in config.data.domains.items()]
    train, settings = [task for source in sources for task in tasks_in(*source)], config.eval
    held_out: list[Task] = []
    other: list[Task] = []
    if settings is not None:
        if settings.share is not None:
            tasks, (train, held_out) = train, hold_out(train, settings.share, config.seed)
            lost = {task.domain for task in tasks} - {task.domain for task in train}
            if config.prompts is not None and config.prompts.weights:
                lost &= set(config.prompts.weights)
            if lost:
                hint = "change eval.share or seed, or name held-out prompts with eval.path"
                raise InvalidError(f"no prompt of {', '.join(sorted(lost))} is left", hint=hint, path="eval.share")
        else:
            held_out = tasks_in(settings, "eval")
        check_apart(train, held_out)
        trained = {page_key(task.prompt) for task in train}
        if shared := [task for task in held_out if page_key(task.prompt) in trained]:
            count = f"{len(shared)} of {counted(len(held_out), 'held-out prompt')}"
            text = f"pages of {count} are those of training prompts: {names_of(shared)}"
            say(f"warning: contamination: {text}")
        if len(held_out) < MIN_CLUSTERS:
            say(f"warning: {counted(len(held_out), 'held-out prompt')}; intervals need {MIN_CLUSTERS}")
        if settings.other is not None:
            other = tasks_in(DataSource(path=settings.other.path), "eval.other")
    return RunTasks(train, held_out, other=other)


def audit_at_service(judge: ServiceJudge) -> RunJudge:
    """Return a judge of a running service with its newest audit; unknown if the service does not answer yet."""
    try:
        with Client(judge.service, timeout=5.0, outage_seconds=0.0) as client:
            audit = client.judges.get(judge.name).newest_audit
    except RubricsvcError as error:
        return RunJudge(judge, missing_reason=str(error))
    hint = f"make one with `rubricsvc judges audit {judge.name}` at the service"
    return RunJudge(judge, audit, missing_reason=hint)


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run after its training: what is on record, None if that is not known, and whether it has steps left.

    ``history`` is None where nothing was trained: all steps were done, or the demonstrations were not learned yet.
    """

    record: StoredRun | None
    history: History | None = None
    stopped: bool = False

    def alarms(self) -> list[Alarm]:
        """Return the reasons to distrust what was trained."""
        return alarms(self.history.steps, self.history.evaluations) if self.history is not None else []


def prepare(config: RunConfig | Path | str, *, allow_drafts: bool = False, progress: Progress | None = None) -> Run:
    """Return a run whose configuration, judges and prompts were found and checked; nothing is loaded yet.

    With ``allow_drafts`` rubrics that are not approved are used. ``progress`` is where the run reports to.

    Raises:
        InvalidError, NotFoundError: The configuration, a judge, a rubric or a prompt is not usable.
    """
    run = Run(config, allow_drafts=allow_drafts, progress=progress)
    _ = run.judge, run.tasks
    return run


class Run:
    """A run of a configuration. Its judges and prompts are found when they are needed; see `prepare`."""

    def __init__(
        self,
        config: RunConfig | Path | str,
        *,
        changes: Mapping[str, Any] | None = None,
        allow_drafts: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.progress = progress or Progress()
        self._allow_drafts = allow_drafts
        self.loaded = config if isinstance(config, RunConfig) else load_config(Path(config), changes=changes)
        self.out: Path = self.loaded.out

    @cached_property
    def _judged(self) -> tuple[RunConfig, RunJudge]:
        return find_judges(self.loaded)

    @property
    def config(self) -> RunConfig:
        """The configuration, with judges in place of their names."""
        return self._judged[0]

    @property
    def judge(self) -> RunJudge:
        """The judge of the training reward."""
        return self._judged[1]

    @cached_property
    def tasks(self) -> RunTasks:
        """The prompts; their rubrics are approved, unless drafts are allowed."""
        tasks = find_tasks(self.config, self.progress.message)
        if self.config.demonstrations is not None:
            from trainer.data.demonstrations import demonstrations_of

            demonstrated = demonstrations_of(tasks.train, self.config, self.progress.message)
            tasks = replace(tasks, demonstrated=demonstrated)
        if not self._allow_drafts and self.judge.stored is not None:
            with service() as s:
                if isinstance(s, LocalService):  # another refuses drafts itself
                    used = [*tasks.train, *tasks.held_out, *tasks.other]
                    reject_drafts(s.db, [task.rubric for task in used])
        return tasks

    def rewards(self, opened: ExitStack) -> Rewards:
        """Return what opens the rewards, which are closed with ``opened``."""
        measured = self.judge.stored.repeatability if self.judge.stored is not None else None
        return Rewards(self.config, measured, opened, self.progress.message, allow_drafts=self._allow_drafts)

    def train(self, *, resume: bool = False, force: bool = False, preflight: bool | None = False) -> TrainedRun:
        """Train the run, or continue it; one that has all its steps and evaluations is not trained again.

        Args:
            resume: Continue from the newest checkpoint.
            force: Start although the preflight refuses.
            preflight: Sample completions for the preflight first; None does so where they are a small part of the run.
        """
        from trainer.loop import WARM_UP_FOLDER
        from trainer.preflight import Preflight

        if self.loaded.demonstrations is not None and (self.out / WARM_UP_FOLDER).is_dir():
            resume = resume and checkpoint.has_run(self.out)  # stopped in its warm-up, it is started again
        if missing := [name for name in self.loaded.trackers if find_spec(name) is None]:
            packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
            hint = f"pip install 'rubricsvc[{','.join(missing)}]', or remove it from `trackers`"
            raise UnavailableError(f"trackers: {packages} cannot be imported", hint=hint, path="trackers")
        checkpoint.check_folder(self.out, resume=resume)
        if resume and self.is_kept():
            steps = counted(self.loaded.steps, "step")
            self.progress.message(f"{self.out} has all {steps} already; to continue, raise `steps`")
            if (key := run_key(self.out)) is None:
                return TrainedRun(None)
            config = read_config(self.out)  # of a process that could not deliver all steps, or its end
            with checkpoint.locked(self.out), run_service(self.config) as s:
                with RunRecorder(s.runs, key, self.out, Event()) as recorder:
                    recorder.begin(config, JudgeInfo(config["judge"]["name"]), read(self.out))
                    recorder.set_state("finished")
                return TrainedRun(_on_record(s.runs, recorder.run_id))
        _ = self.tasks
        if resume:  # its record keeps what the preflight was
            before = read_config(self.out) if (self.out / METRICS).is_file() else {}
            forced = {FORCED: before[FORCED]} if FORCED in before else {}
        else:
            refused = Preflight(self).require_passed(force=force, sample=preflight)
            forced = {FORCED: refused} if refused else {}
        self.announce(resume=resume)
        record, history = self._train(resume, self.judge.record | forced)
        return TrainedRun(record, history, history is None or history.stopped)

    def evaluate(self) -> list[Metrics] | None:
        """Run the baselines of ``eval.baselines`` that are missing, or all; return them, None if that was stopped.

        A run that lacks steps is continued before.
        """
        from trainer.evaluation import read_baselines

        if self.loaded.eval is None:
            hint = "name held-out prompts (docs/training.md)"
            raise InvalidError(f"the run {self.out.name} has no table [eval]", hint=hint, path="eval")
        settings = self.loaded.eval.model_copy(update={"baselines": self.loaded.eval.baselines or True})
        config = self.loaded.model_copy(update={"eval": settings})
        trained = Run(config, allow_drafts=self._allow_drafts, progress=self.progress).train(resume=True)
        return None if trained.stopped else read_baselines(self.out)

    def report(self) -> RunReport:
        """Return what is on record of the run: metrics, evaluations, samples, alarms.

        Raises:
            NotFoundError: The run has no record.
        """
        key = run_key(self.out)
        with run_service(self.loaded) as s:
            found = next(iter(s.runs.page(key=key)), None) if key is not None else None
            if found is None:
                hint = "start it to make one, or set RUBRICSVC_DATABASE_URL to its database"
                raise NotFoundError(f"the run in {self.out} has no record", hint=hint)
            return s.runs.report(found.id)

    def announce(self, *, resume: bool) -> None:
        """Report what the run will do, and fetch the embedded model where it is needed."""
        run, judge, tasks, say = self.config, self.judge, self.tasks, self.progress.message
        sampling, policy = run.sampling, run.policy
        verb = "resume training" if resume else "train"
        say(f"{verb} {policy.model} ({policy.dtype}) for {run.steps} steps in {run.out}")
        repeated = ", repeated" if sampling.prompts_per_step > len(tasks.train) else ""
        prompts = f"{counted(sampling.prompts_per_step, 'prompt')} (of {len(tasks.train)}{repeated})"
        say(f"each step: {prompts}, {sampling.group_size} completions each, judge {judge.value.name}")
        if (evolve := run.evolve) is not None:
            described = ", ".join(f"{name} {one.name}" for name, one in evolve.judges.items() if isinstance(one, Judge))
            by = "approved by people" if evolve.approve == "human" else "approved automatically"
            say(f"rubrics evolve every {counted(evolve.every, 'step')}: {described}; versions are {by}")
        if isinstance(judge.value, Judge):
            criteria = (one for task in tasks.train for one in task.rubric.criteria if one.required and not one.check)
            required = sorted({repr(one.key) for one in criteria})
            if warning := veto_warning(judge.value, required):
                say(f"warning: {warning}")
            if any(leaf.model == EMBEDDED and leaf.adapter is None for leaf in judge.value.leaf_judges):
                say("the embedded model without an adapter is for trying things out: it is hardly better than chance")
        if (settings := run.eval) is not None:  # also why the gold score cannot show that the reward is fooled
            held_out = tasks.held_out
            greedy = " and a greedy one" if settings.greedy else ""
            prompts = f"{counted(len(held_out), 'held-out prompt')}, {counted(settings.samples, 'sample')}{greedy} each"
            scores = f"scored by {', '.join(settings.score_names)}; best checkpoint by {settings.gold_name}"
            say(f"evaluation every {counted(settings.every, 'step')}: {prompts}, {scores}")
            gold = settings.gold_name
            if gold == CHECKS and all(criterion.check for task in held_out for criterion in task.rubric.criteria):
                say("warning: the gold score is by checks, and so is the whole reward: it cannot diverge from itself")
            elif gold != REWARD and len(held_out) < MIN_CLUSTERS:
                say(f"warning: divergence from gold is not tested: that needs {MIN_CLUSTERS} held-out prompts")
        say(judge.message)
        judges: list[object] = [judge.value, *(settings.judges if settings is not None else ())]
        judges += evolve.judges.values() if evolve is not None else ()
        for one in judges:
            if isinstance(one, Judge):
                fetch_embedded(say, one)
        if run.policy.model == EMBEDDED:
            fetch_embedded(say)

    def is_kept(self, *, or_diverged: bool = False) -> bool:
        """Return whether the run has all its steps and evaluations, so that it is not trained again.

        With ``or_diverged`` it also is not where it stopped because its reward diverges from gold.
        """
        from trainer.evaluation import LINES, missing_baselines, read_baselines

        config, out = self.loaded, self.out
        if or_diverged and self.has_diverged() and checkpoint.steps(out):
            self._check_unchanged()
            return True
        if not all((out / name).is_file() for name in ("config.json", METRICS)) or not (saved := checkpoint.steps(out)):
            return False
        if saved[-1] > config.steps:
            message = f"{out} has {saved[-1]} steps, and `steps` is {config.steps}"
            raise ConflictError(message, hint="raise `steps`, choose another `out`, or delete the folder", path="steps")
        if not checkpoint.is_finished(out, config.steps):
            return False
        if config.eval is not None:
            missing = config.eval.baselines and missing_baselines(config, read_baselines(out))
            if missing or all(line["step"] != config.steps for line in read(out, LINES)):
                return False
        self._check_unchanged()
        return True

    def has_diverged(self) -> bool:
        """Return whether the run stopped where its reward diverges from gold."""
        from trainer.evaluation import LINES

        if self.loaded.eval is None or not self.loaded.eval.stop_on_divergence:
            return False
        lines = sorted(read(self.out, LINES), key=lambda line: int(line["step"]))
        found = first_divergence(lines)
        return found is not None and found.step == lines[-1]["step"]

    def load_policy(self, model: str | Path | None = None) -> Policy:
        """Load a policy of the run: by default the one that it starts from, after its demonstrations if it has any."""
        from trainer.environments.tools import make_acting
        from trainer.loop import warmed_up_model
        from trainer.policies.policy import Policy
        from trainer.policies.sampling_server import SamplingServer

        run = self.config
        if model is None:
            model = run.policy.model if run.demonstrations is None else warmed_up_model(run)
        server = SamplingServer(run.sampling.server, run.out) if run.sampling.server else None
        how: dict[str, Any] = run.policy.model_dump(include={"dtype", "device", "fold_system"})
        how |= {"lora": run.policy.lora, "seed": run.seed}
        policy = Policy.load(str(model), acting=make_acting(run.environment, run.tools), server=server, **how)
        policy.name, policy.template_options = run.policy.model, run.policy.chat_template_kwargs or {}
        if policy.server is not None:
            policy.server.check(policy)
        return policy

    def _train(self, resume: bool, record: Mapping[str, Any]) -> tuple[StoredRun | None, History | None]:
        """Train, evaluate and run the baselines; the history is None if the warm-up was stopped."""
        from trainer.environments.tools import make_acting
        from trainer.evaluation import FOLDER, Evaluation, Evaluator, run_baselines
        from trainer.loop import train
        from trainer.preflight import check_sizes

        run, tasks = self.config, self.tasks
        there = run.model_copy(update={"eval": None})  # in the collection of eval.other, if there is one
        if run.eval is not None and run.eval.other is not None and run.environment is not None:
            moved = run.environment.model_copy(update={"collection": run.eval.other.collection})
            there = run.model_copy(update={"environment": moved})
        for config, some in ((run, [*tasks.train, *tasks.held_out]), (there, tasks.other)):
            if some:  # before anything is loaded: all prompts fit, and are of the collections that are searched
                acting = make_acting(config.environment, config.tools)
                check_sizes(config, some, acting)
                for task in some:
                    if acting is not None:
                        acting.environment.reset(task.prompt)
        words = "-".join(self.out.name.replace("@", "-").split())[:80]
        key = (run_key(self.out) if resume else None) or f"{words}-{secrets.token_hex(6)}"
        with ExitStack() as opened:
            opened.enter_context(checkpoint.locked(self.out))
            sources = self.rewards(opened)
            rewards = sources.open()
            evolution = opened.enter_context(self._evolution(key, rewards))
            bar = opened.enter_context(self.progress.task("training"))
            stop = opened.enter_context(self.progress.stopping())
            scorers: dict[str, RewardSource] = {REWARD: rewards}
            for judge in run.eval.judges if run.eval is not None else ():
                assert not isinstance(judge, str)  # noqa: S101 - stored judges are in place of their names
                scorers[judge.name] = sources.open(judge)

            def evaluate(config: RunConfig, held_out: list[Task]) -> Evaluator | None:
                if config.eval is None:
                    return None
                checks = {CHECKS: opened.enter_context(CheckRewards(held_out))} if config.eval.checks else {}
                return Evaluator(config, held_out, {**scorers, **checks}, on_progress=bar.note, stop=stop)

            evaluator = evaluate(run, tasks.held_out)
            store = opened.enter_context(run_service(run)).runs
            with RunRecorder(store, key, self.out, stop) as recorder:
                if not self._warm_up(rewards, evaluator, bar, stop, recorder):
                    return None, None
                bar.update((checkpoint.steps(self.out) or [0])[-1] if resume else 0, run.steps, "")
                evaluation = Evaluation(evaluator, run.out, run.steps, recorder) if evaluator is not None else None
                history = train(
                    self.load_policy(),
                    tasks.train,
                    rewards,
                    run,
                    on_step=partial(_show, bar, run.steps, "", algorithm=run.algorithm),
                    stop=stop,
                    resume=resume,
                    record={**record, KEY: key},
                    evolution=evolution,
                    recorder=recorder,
                    evaluation=evaluation,
                    tracking=Tracking(run.trackers, run.out, key),
                )
                if not history.stopped and evaluator is not None and run.eval is not None and run.eval.baselines:
                    elsewhere = evaluate(there, tasks.other)
                    acting = make_acting(there.environment, there.tools)
                    other = (elsewhere, acting) if elsewhere is not None else None
                    load = self.load_policy, partial(self.load_policy, checkpoint.folder(run.out, run.steps) / "model")
                    bar.update(run.steps, run.steps, "baselines")
                    on_step = partial(_show, bar, run.steps, "best-of-n supervised")
                    how: dict[str, Any] = {"other": other, "on_step": on_step, "stop": stop, "recorder": recorder}
                    with checkpoint.locked(run.out / FOLDER):
                        found = run_baselines(run, load, tasks.train, rewards, evaluator, **how)
                    history.stopped = found is None
            return _on_record(store, recorder.run_id), history

    @contextmanager
    def _evolution(self, key: str, rewards: RewardSource) -> Iterator[OnlineEvolution | None]:
        """Open the evolution of the rubrics; None if they stay as they are."""
        evolve = self.config.evolve
        if evolve is None:
            yield None
            return
        from trainer.evolution import OnlineEvolution

        with (
            run_service(self.config, get_settings().outage_seconds) as s,
            OnlineEvolution(evolve, s.evolutions, key, rewards) as evolution,
        ):
            yield evolution

    def _warm_up(
        self, rewards: RewardSource, evaluator: Evaluator | None, bar: Any, stop: Event, recorder: RunRecorder
    ) -> bool:
        """Have the policy learn the demonstrations, unless it has; return False if that was stopped."""
        from trainer.evaluation import Baselines
        from trainer.loop import WARM_UP_FOLDER, is_warmed_up, warm_up
        from trainer.rewards import StopRequested

        run = self.config
        settings = run.demonstrations
        if settings is None or is_warmed_up(run):
            return True
        steps = settings.steps
        untouched = partial(self.load_policy, run.policy.model)
        bar.update(0, steps, "demonstrations")
        on_step = partial(_show, bar, steps, "demonstrations")
        with checkpoint.locked(run.out / WARM_UP_FOLDER):
            try:
                found = Baselines(run.out, evaluator, recorder) if evaluator is not None else None
                is_named = run.eval is None or isinstance(run.eval.baselines, bool) or BEFORE in run.eval.baselines
                if evaluator is not None and found is not None and is_named and BEFORE not in found.lines:
                    found.evaluate(BEFORE, untouched(), evaluator)
                return warm_up(run, untouched, self.tasks.demonstrated, rewards, on_step=on_step, stop=stop)
            except StopRequested:
                return False

    def _check_unchanged(self) -> None:
        """Check that the finished run would be the same if it was trained again.

        What a service or a measurement may have changed is not compared: its judge, and the judge's deviation.
        """
        from trainer.evaluation import LINES, check_setup, setup_of

        config, tasks = self.config, self.tasks
        step = checkpoint.steps(self.out)[-1]
        before = json.loads((checkpoint.folder(self.out, step) / "state.json").read_bytes())["identity"]
        setting = config.optim.std_floor
        floor = before["optim.std_floor"] if setting == "judge" else setting
        known = (before.get(name) for name in ("judge_digest", "policy.base_sha256"))
        now = config.identity(digest([task.digests for task in tasks.train]), floor, *known)
        checkpoint.check_identity(checkpoint.folder(self.out, step), before, now)
        if config.eval is not None:
            check_setup(self.out, read(self.out, LINES), setup_of(config.eval, config, tasks.held_out))


@contextmanager
def run_service(run: RunConfig, outage_seconds: float = 0.0) -> Iterator[LocalService]:
    """Open where a run is recorded: at the service that has its judge or is configured, or in the database."""
    with service(run.judge.service if isinstance(run.judge, ServiceJudge) else None, outage_seconds) as s:
        yield cast("LocalService", s)  # the same methods, over HTTP


def _on_record(store: Runs, run_id: int | None) -> StoredRun | None:
    with suppress(RubricsvcError):
        return store.get(run_id) if run_id is not None else None
    return None


def read_config(out: Path) -> dict[str, Any]:
    """Return the content of the ``config.json`` that a run was started with."""
    path = out / "config.json"
    if not path.is_file():
        raise NotFoundError(f"no training run in {out}", hint="`rubricsvc runs show` has ids and folders")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        content["steps"] += 0  # fails unless it is a number
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "`rubricsvc runs start CONFIG.toml --resume` writes it again; without a checkpoint, delete the folder"
        raise InvalidError(f"{path} is damaged: {type(error).__name__}: {error}", hint=hint) from error
    return content


def run_key(out: Path) -> str | None:
    """Return the key of the run in databases; None if it was never recorded, or its ``config.json`` is damaged."""
    try:
        return read_config(out).get(KEY)
    except RubricsvcError:
        return None


def _show(bar: Any, steps: int, before: str, step: Metrics, *, algorithm: str = SUPERVISED) -> None:
    """Show the reward of a step, and why it taught the policy nothing; only the best of n needs no differences."""
    values = [step["reward"], step["reward_std"]]
    reward, deviation = ("-" if one is None else f"{one:.4f}".rstrip("0").rstrip(".") for one in values)
    nothing = NO_SIGNAL if algorithm != SUPERVISED and step["frac_reward_zero_std"] == 1.0 else ""
    nothing = VETOED if step.get("vetoed_fraction") == 1.0 else nothing
    learned = f"loss {step['loss']:.3g}" if before == "demonstrations" else f"reward {reward} ± {deviation}"
    bar.update(step["step"], steps, ", ".join(filter(None, (before, learned, nothing))))
