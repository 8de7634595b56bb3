"""The record of a training run: its steps and rollouts in a database, in this process or behind a service.

::

    stop = Event()
    with RunRecorder(Runs(db), key, folder, stop) as recorder:  # or Client(url).runs
        train(policy, tasks, rewards, config, stop=stop, recorder=recorder)

Recording never ends a training. What cannot be delivered is kept in the run's folder, in ``undelivered.jsonl``, and is
delivered in order once the database or the service is back, or when the run is resumed. What is refused, and would be
again, is set aside in ``refused.jsonl``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, TypeAdapter

from rubricsvc.core.base import MAX_NAME_LENGTH, storable
from rubricsvc.core.prompt import Completion
from rubricsvc.core.states import RunState
from rubricsvc.errors import InvalidError, RubricsvcError, cut
from rubricsvc.queries import MAX_LIMIT
from rubricsvc.schemas.runs import STEP, NewRun, Rollout, RolloutGroup, RunEvaluation, RunHeartbeat, RunStep

if TYPE_CHECKING:
    from rubricsvc.services.runs import Runs
    from trainer.data.tasks import Task
    from trainer.rewards import JudgeInfo, ScoredRollout

log = logging.getLogger(__name__)

Report = RunStep | RunEvaluation | RunHeartbeat
"""What is delivered of a run."""
REPORT: TypeAdapter[Report] = TypeAdapter(Report)
"""A report as JSON: a line of a file."""


@dataclass(eq=False)
class Undelivered:
    """What is to be delivered, oldest first, in a file that survives the process. One thread appends, one pops."""

    path: Path
    _lock: Lock = field(default_factory=Lock)
    _offset: int = 0

    def append(self, event: Report) -> None:
        """Write an event to the disk. After an error the file is as before."""
        line = event.model_dump_json().encode() + b"\n"
        with self._lock, self.path.open("ab") as file:
            before = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise

    def each(self) -> Iterator[Report]:
        """Yield the events that are whole, oldest first; each is removed once the next one is asked for."""
        while self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                line = file.readline()
            if not line.endswith(b"\n"):
                return
            yield REPORT.validate_json(line)
            with self._lock:
                self._offset += len(line)
                if self._offset >= self.path.stat().st_size:
                    self.path.unlink()
                    self._offset = 0

    def keep_steps(self, done: int) -> None:
        """Remove all but the steps up to ``done`` with their evaluations, and the baselines.

        A resumed run repeats the others, and reports a new state. If a line is damaged, a copy of the file is kept.
        """
        if not self.path.exists():
            return
        kept, damaged = [], 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                event = REPORT.validate_json(line if line.endswith(b"\n") else b"")
                of_baseline = isinstance(event, RunEvaluation) and event.name != STEP
                if not isinstance(event, RunHeartbeat) and (event.step <= done or of_baseline):
                    kept.append(line)
            except ValueError:
                damaged += 1
        if damaged:
            copy = self.path.with_name(f"damaged-{self.path.stem}-{time.time_ns()}{self.path.suffix}")
            self.path.rename(copy)
            log.warning("%d lines of %s are damaged; the file is kept as %s", damaged, self.path, copy)
        if kept:
            replace_text(self.path, b"".join(kept).decode())
        elif not damaged:
            self.path.unlink()


HEARTBEAT_SECONDS = 10.0
"""Also the time between attempts to deliver what is kept."""
UNDELIVERED = "undelivered.jsonl"
REFUSED = "refused.jsonl"
_REFUSED_STATUS = {400, 404, 409, 413, 422}
"""The statuses of errors that a report has each time that it is sent; others end with an outage, or with a new key."""
_MAX_REASON_CHARS = 1000


def recorded_reward(result: ScoredRollout) -> dict[str, Any]:
    """Return a reward as records have it: its reason where it is null, its verdicts where no item of a job has them."""
    value = result.reward.value
    return {
        "reward": value,
        "null_reason": None if value is not None else storable(result.reward.null_reason or "no reason given"),
        "item_id": result.item_id,
        "verdicts": () if result.item_id is not None else result.verdicts,
    }


def rollout_groups(
    tasks: Sequence[Task],
    completions: Sequence[Completion],
    scored: Sequence[ScoredRollout],
    measured: Iterable[tuple[float, int, float]],
) -> tuple[RolloutGroup, ...]:
    """Return the rollouts of a step for a `RunRecorder`; all arguments have one entry for each completion.

    Completions of one prompt are adjacent; ``measured`` are advantages, tokens and sums of log-probabilities.
    """
    groups: list[tuple[Task, list[Rollout]]] = []
    for task, completion, result, (advantage, tokens, logprobs) in zip(
        tasks, completions, scored, measured, strict=True
    ):
        if not groups or groups[-1][0] is not task:
            groups.append((task, []))
        has_advantage = result.reward.value is not None and math.isfinite(advantage)
        rollout = Rollout(
            completion=completion,
            advantage=advantage if has_advantage else None,
            tokens=tokens,
            truncated=bool(completion.sampling.get("truncated")),
            logprob_sum=logprobs if math.isfinite(logprobs) else None,
            **recorded_reward(result),
        )
        groups[-1][1].append(rollout)
    return tuple(RolloutGroup(**task.recorded, rollouts=tuple(rollouts)) for task, rollouts in groups)


@contextmanager
def recorded(
    recorder: RunRecorder | None, config: Mapping[str, Any], judge: JudgeInfo | None, history: History
) -> Iterator[None]:
    """Record the begin and the end of a run around the block that trains; None records nothing."""
    if recorder is None:
        yield
        return
    recorder.begin(config, judge, history.steps)
    try:
        yield
    except KeyboardInterrupt:
        recorder.set_state("stopped", "interrupted")
        raise
    except BaseException as error:
        recorder.set_state("failed", f"{type(error).__name__}: {error}")
        raise
    recorder.set_state(*(("stopped", history.stop_reason) if history.stopped else ("finished", None)))


class RunRecorder(AbstractContextManager["RunRecorder"]):
    """Delivers a run to a database or a service, and keeps what it cannot deliver.

    No method raises because of the database or the service.
    A thread reports every ``heartbeat_seconds`` that the run goes on, and delivers what was kept. ``stop`` is set once
    the run is asked to stop, which is read with each step and heartbeat. ``key`` is the same at each resume.
    """

    def __init__(
        self, store: Runs, key: str, folder: Path, stop: Event, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._store = store
        self._key = key
        self._folder = folder
        self._stop = stop
        self._undelivered = Undelivered(folder / UNDELIVERED)
        self._refused = Undelivered(folder / REFUSED)
        self._config: Mapping[str, Any] = {}  # this and the next two by begin()
        self._judge: JudgeInfo | None = None
        self._earlier: Sequence[Metrics] = ()
        self.run_id: int | None = None
        """The run's id; None until it is delivered that the run has begun."""
        self._is_warned = False
        self._is_closed = Event()
        self._seconds = heartbeat_seconds
        self._thread = Thread(target=self._beat, name="run-recorder", daemon=True)

    def begin(self, config: Mapping[str, Any], judge: JudgeInfo | None, earlier: Sequence[Metrics]) -> None:
        """Record that the run starts, or goes on after the steps ``earlier``; later ones on record are deleted."""
        self._config, self._judge, self._earlier = config, judge, tuple(earlier)
        done = earlier[-1]["step"] if earlier else 0
        self._undelivered.keep_steps(done)
        self._catch_up()
        self._thread.start()

    def complete(self, lines: Iterable[Metrics]) -> None:
        """Record evaluations that the record lacks, of a run that began elsewhere, without their completions."""
        if self.run_id is None or self._undelivered.path.exists():
            return
        try:
            stored = self._store.evaluations(self.run_id, limit=MAX_LIMIT)
            known = {(one.name, one.step, one.line.get("setup")) for one in stored}
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._warn(error)
            return
        for line in lines:
            name, step = line.get("baseline", STEP), line["step"]
            if (name, step, line["setup"]) not in known:
                self.send(RunEvaluation(name=name, step=step, line=dict(line)))

    def set_state(self, state: RunState, reason: str | None = None) -> None:
        """Record a new state of the run."""
        text = cut(storable(reason), _MAX_REASON_CHARS) if reason else None
        self.send(RunHeartbeat(state=state, reason=text))

    def send(self, event: Report) -> None:
        """Record a step, an evaluation or a state: deliver it, or keep it after what is kept already."""
        delivered = False
        try:
            if (run_id := self.run_id) is not None and not self._undelivered.path.exists():
                self._deliver(run_id, event)
                delivered = True
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._warn(error)
        finally:  # also at a second Ctrl-C: the step will be in the checkpoint
            try:
                if not delivered:
                    self._undelivered.append(event)
            except OSError as error:
                log.error("not recorded, and not kept either: %s (%s)", _described(event), error)

    def _deliver(self, run_id: int, event: Report) -> None:
        """Deliver an event, or set it aside if it alone is refused; whatever else prevents it is raised."""
        try:
            if isinstance(event, RunStep):
                run = self._store.record(run_id, event)
            elif isinstance(event, RunEvaluation):
                run = self._store.record_evaluation(run_id, event)
            else:
                run = self._store.heartbeat(run_id, event)
        except RubricsvcError as error:
            if error.status not in _REFUSED_STATUS:
                raise
            run = self._store.heartbeat(run_id, RunHeartbeat())  # raises if the run itself is not on record
            what, path = _described(event), self._refused.path
            try:
                self._refused.append(event)
            except OSError as failed:
                log.error("%s is not kept either: %s", what, failed)
            log.warning("%s of the run is refused, and set aside in %s: %s", what, path, str(error).partition("\n")[0])
        if run.stop_requested:
            self._stop.set()

    def _create(self) -> int:
        """Begin the run in the store. Earlier steps that it lacks, of a run that began elsewhere, have no rollouts."""
        judge, folder = self._judge, self._folder
        new = NewRun(
            key=self._key,
            name="".join(char if char.isprintable() else "-" for char in folder.name[-MAX_NAME_LENGTH:]) or "run",
            host=socket.gethostname()[:MAX_NAME_LENGTH],
            folder=storable(str(folder.resolve())),
            judge=judge.name if judge else None,
            judge_digest=judge.digest if judge else None,
            steps_total=self._config["steps"],
            done=self._earlier[-1]["step"] if self._earlier else 0,
            config=dict(self._config),
        )
        run = self._store.create(new)
        if run.steps < len(self._earlier):
            known: set[int] = set()
            while page := {one.step for one in self._store.steps(run.id, after=max(known, default=0), limit=MAX_LIMIT)}:
                known |= page
            for line in self._earlier:
                if line["step"] not in known:
                    self._deliver(run.id, RunStep(step=line["step"], metrics=line))
        if run.stop_requested:
            self._stop.set()
        return run.id

    def _catch_up(self) -> None:
        """Deliver what is not delivered yet, in order, until that fails."""
        try:
            if (run_id := self.run_id) is None:
                run_id = self.run_id = self._create()
            for event in self._undelivered.each():
                self._deliver(run_id, event)
        except Exception as error:  # noqa: BLE001 - as above
            self._warn(error)
        else:
            if self._is_warned:
                log.warning("run %d is recorded again", run_id)
            self._is_warned = False

    def _warn(self, error: Exception) -> None:
        if not self._is_warned:
            kept = self._undelivered.path
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            log.warning("the run is not recorded for now, its steps are kept in %s: %s", kept, reason)
        self._is_warned = True

    def _beat(self) -> None:
        """Report that the run goes on, and deliver what was kept, until it ends."""
        while not self._is_closed.wait(self._seconds):
            if self.run_id is None or self._undelivered.path.exists():
                self._catch_up()
                continue
            try:
                if self._store.heartbeat(self.run_id, RunHeartbeat()).stop_requested:
                    self._stop.set()
            except Exception as error:  # noqa: BLE001 - as above; the next step warns
                log.debug("no heartbeat: %s", error)

    def __exit__(self, *_: object) -> None:
        """Deliver what is left, once more."""
        self._is_closed.set()
        if not self._thread.ident:  # the run has not begun
            return
        self._thread.join()
        if self.run_id is None or self._undelivered.path.exists():
            self._catch_up()
        if self._undelivered.path.exists():
            log.warning("%s has what is not recorded; to deliver it, resume the run", self._undelivered.path)


def _described(event: Report) -> str:
    if isinstance(event, RunHeartbeat):
        return f"state {event.state}"
    return f"step {event.step}" if isinstance(event, RunStep) else f"evaluation {event.name} {event.step}"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: an error keeps the earlier content."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.replace(path)


Metrics = dict[str, Any]
"""Metrics of a step, or an evaluation, as plain data."""

METRICS = "metrics.jsonl"


class History:
    """A run's steps, oldest first, including those before a resume. ``stopped``: it ended early, for ``stop_reason``.

    Each step is a line of the file ``name``, written before the next step. Without a folder they are in memory only.
    ``evaluations`` are the lines of the evaluations on held-out prompts.
    """

    def __init__(self, folder: Path | None, last_step: int = 0, name: str = METRICS) -> None:
        """Continue after ``last_step``: later lines, of a run that was cut off, are dropped."""
        self.stopped = False
        self.stop_reason = "asked to stop"
        self.evaluations: list[Metrics] = []
        self.steps = [line for line in read(folder, name) if line["step"] <= last_step] if folder else []
        self._path = folder / name if folder else None
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._path, "".join(line_of(step) for step in self.steps))

    def add(self, metrics: Metrics) -> Metrics:
        """Record a step and return it as recorded, with None for NaN and infinity."""
        recorded = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in metrics.items()
        }
        self.steps.append(recorded)
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line_of(recorded))
                file.flush()
                os.fsync(file.fileno())  # a checkpoint must not be ahead of the metrics
        return recorded


def write_config(out: Path | None, config: BaseModel, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the configuration and ``record`` (plain data) to ``config.json`` of the run's folder; return both."""
    content = config.model_dump(mode="json") | dict(record)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        replace_text(out / "config.json", json.dumps(content, indent=2, ensure_ascii=False))
    return content


def read(folder: Path, name: str = METRICS) -> list[Metrics]:
    """Return the steps of the run in ``folder``. An incomplete last line is left out; a damaged one is an error."""
    path = folder / name
    if not path.is_file():
        return []
    steps: list[Metrics] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            steps.append(json.loads(line))
            steps[-1]["step"] += 0  # fails unless it is a number
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidError(f"{path}, line {number}: not the metrics of a step", hint="delete the line") from error
    return steps


def line_of(metrics: Metrics) -> str:
    """Return metrics as a line of JSON."""
    return json.dumps(metrics, allow_nan=False) + "\n"


PROJECT = "rubricsvc"
EVAL_STEP = "eval/step"
_MAX_ID_CHARS = 128

Name = Literal["tensorboard", "trackio", "wandb"]


def numbers(line: Metrics) -> dict[str, float]:
    """Return the metrics of a step that are finite numbers, or the estimates of an evaluation.

    Those of an evaluation are named ``eval/SCORE/mean``, with ``mean_low`` and ``mean_high``.
    """
    found: dict[str, Any] = {} if "scores" in line else line
    for score, estimates in line.get("scores", {}).items():
        for name, estimate in estimates.items():
            key = f"eval/{score}/{name}"
            if isinstance(estimate, Mapping):
                found |= {key: estimate["value"], f"{key}_low": estimate["low"], f"{key}_high": estimate["high"]}
            else:
                found[key] = estimate
    return {
        name: value
        for name, value in found.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


class Tracking:
    """The trackers of a run; one that raises an error is left out until the run is resumed."""

    def __init__(self, names: Sequence[Name] = (), folder: Path | None = None, run: str = "") -> None:
        self._run, self._newest_evaluation = run, -1
        self.trackers = {name: Tracker(name, folder) for name in names}

    @contextmanager
    def running(self, config: Mapping[str, Any], steps: Sequence[Metrics]) -> Iterator[None]:
        """Begin the run, or continue it after ``steps``, around the block that trains."""
        done = steps[-1]["step"] if steps else 0
        self._newest_evaluation = done if done else -1
        self._each(lambda tracker: tracker.begin(config, self._run, done))
        try:
            yield
        finally:
            self._each(lambda tracker: tracker.close())

    def log(self, line: Metrics) -> None:
        """Report the metrics of a step, or an evaluation that is newer than those before."""
        if is_evaluation := "scores" in line:
            if line["step"] <= self._newest_evaluation:
                return
            self._newest_evaluation = line["step"]
        self._each(lambda tracker: tracker.log(numbers(line), line["step"], is_evaluation=is_evaluation))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
                del self.trackers[name]
                reason = cut(f"{type(error).__name__}: {error}", 300)
                log.warning("the tracker %s does not get all metrics of this run: %s", name, reason)


@dataclass(eq=False)
class Tracker:
    """A run of TensorBoard, in event files of the run's folder, of Trackio or of Weights & Biases.

    ``TRACKIO_PROJECT`` and ``WANDB_PROJECT`` (both ``rubricsvc``) name the project, ``TRACKIO_SPACE_ID`` and
    ``WANDB_MODE``, among others, say where it is.
    """

    kind: Name
    folder: Path | None
    _run: Any = None

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run, or continue it: that of Trackio by its name, that of W&B by its id.

        Readers of TensorBoard leave out what earlier event files have after ``done`` steps.
        """
        if self.kind == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            make: Any = SummaryWriter
            self._run = make(str((self.folder or Path()) / "tensorboard"), purge_step=done + 1 if done else 0)
            if not done:
                self._run.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```")
            return
        module: Any = import_module(self.kind)
        how: dict[str, Any] = {"name": name, "resume": "allow", "config": dict(config)}
        how["project"] = os.environ.get(f"{self.kind.upper()}_PROJECT") or PROJECT
        if self.kind == "trackio":
            how |= {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        else:
            how["id"] = os.environ.get("WANDB_RUN_ID") or re.sub(r"[^A-Za-z0-9_.-]", "-", name)[-_MAX_ID_CHARS:]
            how |= {"name": os.environ.get("WANDB_NAME") or name, "settings": module.Settings(console="off")}
        with redirect_stdout(sys.stderr):  # trackio prints, and the output of a command is data
            self._run = module.init(**how)
        if self.kind == "wandb":
            self._run.define_metric(EVAL_STEP)
            self._run.define_metric("eval/*", step_metric=EVAL_STEP)

    def log(self, values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        """Log values. In W&B those of an evaluation have an axis of their own: it refuses steps before its newest."""
        if self.kind == "tensorboard":
            for name, value in values.items():
                self._run.add_scalar(name, value, step)
            self._run.flush()
        elif is_evaluation and self.kind == "wandb":
            self._run.log({EVAL_STEP: step, **values}, commit=False)
        else:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        with redirect_stdout(sys.stderr):
            if self.kind == "tensorboard":
                self._run.close()
            else:
                self._run.finish()


NO_TRACKING = Tracking()
