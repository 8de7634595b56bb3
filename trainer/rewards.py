"""Where rewards come from: a judge in this process, the queue of a database or service, checks, a function, a control.

All return one ``ScoredRollout`` for each completion, whose reward is None when too little of its rubric was judged.
"""

import asyncio
import copy
import itertools
import logging
import math
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Real
from threading import Event
from typing import Any, Self

from rubricsvc.broker import MEMORY
from rubricsvc.client import Client
from rubricsvc.core.audit import Repeatability
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import FormulaError, Reward, check_formula, reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import TRANSIENT, Verdict
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError, counted
from rubricsvc.schemas.base import every_row
from rubricsvc.schemas.jobs import Item, NewRewards
from rubricsvc.services.jobs import OPEN, reachable
from rubricsvc.services.local import LocalService, open_database
from rubricsvc.settings import get_settings
from trainer.config import CHECKS, ControlName, RunConfig, ServiceJudge, TrainConfig
from trainer.data.tasks import Task, names_of
from trainer.environments.episodes import LEAK
from trainer.recording import Metrics, RunRecorder
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local.embedded_model import fetch_embedded
from workers.event_loop import EventLoopThread, all_of
from workers.scoring.completions import score_group

log = logging.getLogger(__name__)

CELERY, IN_PROCESS = "celery", "in_process"
"""What scores: Celery workers through a queue, or this process."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """The reward of one completion, and its verdicts where the source has any; ``item_id`` of the job's item."""

    reward: Reward
    verdicts: tuple[Verdict, ...] = ()
    item_id: int | None = None


@dataclass(frozen=True, slots=True)
class JudgeInfo:
    """Properties of the judge behind a reward source; ``calibrated`` and ``digest`` are those of `Judge`."""

    name: str
    calibrated: bool | None = None
    repeatability: Repeatability | None = None
    digest: str | None = None


class RewardSource:
    """Scores completions: the base of everything that rewards come from.

    ``judge`` is the judge behind the rewards, whose properties the run records, if there is one. ``scored_by`` is
    `CELERY` where workers score; ``items_at`` is the address of the database or service that has the items of its jobs.
    ``evaluated`` is the score of evaluations that it gives, None in training.
    """

    judge: JudgeInfo | None = None
    scored_by: str = IN_PROCESS
    items_at: str | None = None
    evaluated: str | None = None

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return one result for each completion of a step, in order.

        A judge that fails gives a reward of None. Raise only errors that no retry can resolve.
        """
        raise NotImplementedError

    def of_evaluation(self, score: str) -> Self:
        """Return the source of this score of evaluations, whose jobs are not named like those of training steps."""
        other = copy.copy(self)
        other.evaluated = score
        return other


def judge_of(tasks: Sequence[Task], rewards: RewardSource) -> JudgeInfo | None:
    """Return the judge behind the rewards; None where no criterion is judged or the source has no judge."""
    return rewards.judge if any(one.check is None for task in tasks for one in task.rubric.criteria) else None


def validated(results: Sequence[ScoredRollout], completions: Sequence[Completion]) -> list[ScoredRollout]:
    """Return the results of a reward source; a reward that is NaN or infinite becomes None."""
    if not isinstance(results, Sequence) or len(results) != len(completions):
        count = len(results) if isinstance(results, Sequence) else f"a {type(results).__name__} of"
        raise InvalidError(
            f"the reward source returned {count} rewards for {len(completions)} completions",
            hint="return a list with one result for each completion, in the same order",
        )
    checked = []
    for place, result in enumerate(results):
        value = result.reward.value if isinstance(result, ScoredRollout) else result
        if not isinstance(result, ScoredRollout) or not (value is None or isinstance(value, Real)):
            raise InvalidError(
                f"the reward of completion {place} is {value!r:.80}, of type {type(value).__name__}",
                hint="return a ScoredRollout for each completion, whose reward is a number or None",
            )
        if value is None or math.isfinite(value):
            checked.append(result)
        else:
            null = replace(result.reward, value=None, null_reason=f"the reward is {value}")
            checked.append(replace(result, reward=null))
    return checked


def require_scored(scored: Sequence[ScoredRollout], max_unscored: float, then: str = "continue with --resume") -> None:
    """Raise an `UnavailableError` if more than the share ``max_unscored`` of completions has no reward.

    ``then`` is what to do once the judge is repaired.
    """
    unscored = [result for result in scored if result.reward.value is None]
    if len(unscored) > max_unscored * len(scored):
        failed = Counter(str(v.reason) for result in unscored for v in result.verdicts if v.outcome == "failed")
        reasons = ", ".join(f"{reason} ×{count}" for reason, count in failed.most_common(3))
        reasons = reasons or unscored[0].reward.null_reason or "no reason given"
        raise UnavailableError(
            f"{len(unscored)} of {len(scored)} completions have no reward ({reasons}); at most a share "
            f"of max_unscored = {max_unscored:g} may be missing",
            hint=f"repair the judge, then {then}",
        )


@dataclass(eq=False)
class CallableRewards(RewardSource):
    """Rewards of ``function(prompt, text)``, which returns None where it cannot tell."""

    function: Callable[[Prompt, str], float | None]

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Call the function for each completion."""
        values = [self.function(task.prompt, one.text) for task, one in zip(tasks, completions, strict=True)]
        return [ScoredRollout(Reward(v, coverage=0.0 if v is None else 1.0, formula="function")) for v in values]


def places_by_task(tasks: Sequence[Task]) -> list[list[int]]:
    """Return the places of the completions of each prompt and rubric: what a comparative judge sees together."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.prompt.digest, task.rubric.digest].append(place)
    return list(places.values())


class JudgeRewards(RewardSource, AbstractContextManager["JudgeRewards"]):
    """Rewards of a judge in this process, scored as the workers do. ``engine`` is closed on exit.

    ``repeatability`` is the judge's measured one: the default floor of GRPO's standard deviation.
    """

    def __init__(
        self, judge: Judge, engine: Engine | None = None, *, repeatability: Repeatability | None = None
    ) -> None:
        self._asked = judge
        self.judge = JudgeInfo(judge.name, judge.calibrated, repeatability, judge.digest)
        self._engine = engine or make_engine(judge)
        self._loop = EventLoopThread("rewards")

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score all prompts of the step concurrently. A comparative judge is shown a prompt's completions together."""
        groups = places_by_task(tasks)
        asked = [(tasks[at[0]], [completions[place] for place in at]) for at in groups]
        scored = all_of(score_group(self._engine, self._asked, task.rubric, task.prompt, some) for task, some in asked)
        verdicts: dict[int, Sequence[Verdict]] = {}
        for at, found in zip(groups, self._loop.run(scored), strict=True):
            verdicts.update(zip(at, found, strict=True))
        return [
            ScoredRollout(reward_or_null(task.rubric, verdicts[place]), tuple(verdicts[place]))
            for place, task in enumerate(tasks)
        ]

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()


def rubric_of_checks(rubric: Rubric) -> Rubric | None:
    """Return the rubric of the checked criteria alone, whose reward is their weighted mean; None if it has none."""
    criteria = [one.model_copy(update={"group": (), "required": False}) for one in rubric.criteria if one.check]
    if not any(one.weight for one in criteria):
        return None
    found = Rubric(criteria=tuple(criteria))
    try:
        check_formula(found)
    except FormulaError:
        return None
    return found


class CheckRewards(JudgeRewards):
    """The weighted mean of the checked criteria of each rubric; its judged criteria do not count.

    Raises:
        InvalidError: The rubrics of some of ``tasks`` have no check with a positive weight.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        checked = ((task.rubric.digest, rubric_of_checks(task.rubric)) for task in tasks)
        self._rubrics = {digest: rubric for digest, rubric in checked if rubric is not None}
        if without := [task for task in tasks if task.rubric.digest not in self._rubrics]:
            raise InvalidError(
                f"the rubrics of {len(without)} of {len(tasks)} held-out prompts have no check with a positive weight: "
                f"{names_of(without)}",
                hint="add checks to their rubrics (docs/checks.md), or remove eval.checks",
                path="eval.checks",
            )
        super().__init__(Judge(name=CHECKS, engine="none", model="none"))
        self.judge = None

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score by the checks."""
        return super().score([replace(task, rubric=self._rubrics[task.rubric.digest]) for task in tasks], completions)


class ControlRewards(RewardSource):
    """Rewards that say nothing about completions, in place of those of a source.

    ``random``    a number drawn for each completion, uniform in [0, 1]; no judge is asked
    ``shuffled``  the rewards of the judge, in a random order among the completions of the same prompt
    ``frozen``    the same number for all: nothing but a penalty is learned

    A policy that scores as high with one of them did not learn from the judge (arXiv 2506.10947). The random numbers
    depend on the seed and on the scored completions alone, so that a resumed run equals one without interruption.
    """

    def __init__(self, rewards: RewardSource, name: ControlName, seed: int) -> None:
        self._rewards, self._name, self._seed = rewards, name, seed
        if name == "shuffled":
            self.scored_by, self.items_at = rewards.scored_by, rewards.items_at

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return a reward for each completion, as `RewardSource.score` does."""
        asked = [[task.prompt.digest, one.digest] for task, one in zip(tasks, completions, strict=True)]
        draw = random.Random(digest("control", self._seed, asked))
        if self._name == "shuffled":
            scored = self._rewards.score(tasks, completions)
            results = list(scored)
            for group in places_by_task(tasks):  # those without a reward stay without one
                places = [place for place in group if scored[place].reward.value is not None]
                for place, other in zip(places, draw.sample(places, len(places)), strict=True):
                    results[place] = replace(scored[place], reward=scored[other].reward)
            return results
        values = [draw.random() if self._name == "random" else 0.0 for _ in completions]
        return [ScoredRollout(Reward(value, coverage=1.0, formula=f"control_{self._name}")) for value in values]


NOT_SCORED = ScoredRollout(Reward(None, coverage=0.0, formula=LEAK, null_reason=LEAK))
"""The result of a completion with a leak."""


def score_sound(rewards: RewardSource, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
    """Return the results of completions; the source is asked about those without leaks, if there are any.

    Raises:
        InvalidError: The source returned anything but a `ScoredRollout` for each.
    """
    sound = [place for place, one in enumerate(completions) if not one.sampling.get("leaks")]
    results, asked = [NOT_SCORED] * len(completions), [completions[place] for place in sound]
    scored = validated(rewards.score([tasks[place] for place in sound], asked), asked) if sound else ()
    for place, result in zip(sound, scored, strict=True):
        results[place] = result
    return results


FIRST_POLL_SECONDS, POLL_SECONDS = 0.02, 0.3
RETRY_SECONDS = 1.0
NO_WORKER_SECONDS = 60.0
"""How long a job without a running worker is waited for."""


class JobRewards(RewardSource):
    """Scores each step by one job, in one request that stores what is new, and waits for it through outages.

    A rubric that is stored already is used under its name, so that rewards are joined to what people authored. The job
    groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process. Its key
    covers run, step, judge and completions: a step that is scored again, after a resume or because too few of its
    completions were scored, has the same job, and only failed verdicts are asked for again.

    Args:
        service: The service that has the queue; the caller closes it.
        judge: A judge that is stored there. Another one of the same name is refused if the digest is given.
        run: Name of the training run, shown in the names of its jobs.
        timeout: Seconds that the scoring of one step may take, outages included. A job that is not finished by then is
            cancelled, and completions without a result have no reward.
        allow_drafts: Use rubrics that are stored as drafts.
    """

    judge: JudgeInfo
    scored_by = CELERY

    def __init__(
        self,
        service: LocalService | Client,
        judge: JudgeInfo,
        *,
        run: str = "run",
        timeout: float = 1800.0,
        allow_drafts: bool = False,
    ) -> None:
        self._service, self.judge = service, judge
        self._run, self._timeout, self._allow_drafts = run, timeout, allow_drafts
        self.items_at = service.address

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score the step in one job."""
        deadline = time.monotonic() + self._timeout
        submitted: set[int] = set()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self._score(tasks, completions, left, submitted)
            except UnavailableError as error:
                if not left:
                    nothing = [Reward(None, 0.0, task.rubric.formula, null_reason=str(error)) for task in tasks]
                    return [ScoredRollout(reward) for reward in nothing]
                log.warning("retrying for %.0f s: %s", left, error)
                time.sleep(RETRY_SECONDS)

    def _score(
        self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float, submitted: set[int]
    ) -> list[ScoredRollout]:
        """Score the step once.

        ``submitted`` are the jobs of earlier attempts of this call, whose failed items are not asked about again; the
        job of this one is added.
        """
        groups, step = places_by_task(tasks), completions[0].step
        name = self._run if step is None else f"{self._run} step {step + 1}"
        if self.evaluated is not None and step is not None:
            name = f"{self._run} eval step {step}, {self.evaluated}"
        pairs = zip(tasks, completions, strict=True)
        asked = sorted({(task.prompt.digest, task.rubric.digest, one.digest) for task, one in pairs})
        asked_of = [tasks[at[0]] for at in groups]
        new = NewRewards(
            judge=self.judge.name,
            judge_digest=self.judge.digest,
            prompts=tuple(task.prompt for task in asked_of),
            prompt_names=tuple(task.name for task in asked_of),
            completions=tuple(tuple(completions[place] for place in at) for at in groups),
            rubrics=tuple(task.rubric for task in asked_of),
            rubric_names=tuple(task.rubric_name for task in asked_of),
            timeout=0.0,
            name=name,
            key=digest(self._run, step, self.judge.digest or self.judge.name, asked, self.evaluated),
            allow_drafts=self._allow_drafts,
        )
        reason, served_at, delay = None, time.monotonic(), FIRST_POLL_SECONDS
        end = served_at + timeout
        with reachable():
            job = self._service.rewards.submit(new)
            if (count := len(job.rewards)) != len(completions):
                raise RubricsvcError(f"the service returned {count} items for {len(completions)} completions")
            if job.status not in (*OPEN, "completed") and not submitted:
                self._service.jobs.retry(job.job_id)
            submitted.add(job.job_id)
            while (polled := self._service.rewards.get(job.job_id)).status in OPEN:
                now = time.monotonic()
                served_at = served_at if polled.workers == 0 else now
                if now - served_at > NO_WORKER_SECONDS:
                    reason = f"no worker is running; job {job.job_id} waits for one"
                    break
                if now >= end:
                    self._service.jobs.cancel(job.job_id)
                    reason = f"cancelled: job {job.job_id} is not finished after timeout = {timeout:g} s"
                    break
                time.sleep(min(delay, end - now))
                delay = min(1.5 * delay, POLL_SECONDS)
            found = {item.id: item for item in every_row(self._service.jobs.items, job.job_id)}
        ids = dict(zip(chain(*groups), (one.id for one in job.rewards), strict=True))
        return [_scored_rollout(found.get(ids[place]), task, reason) for place, task in enumerate(tasks)]


def _scored_rollout(item: Item | None, task: Task, reason: str | None) -> ScoredRollout:
    """Return the result of a completion; ``reason`` is why the job did not end, if it did not."""
    if item is None:
        return ScoredRollout(Reward(None, 0.0, task.rubric.formula, null_reason="the service returned no result"))
    reward = Reward(
        item.reward,
        item.coverage or 0.0,
        item.formula or task.rubric.formula,
        vetoed_by=item.vetoed_by,
        null_reason=None if item.reward is not None else reason or item.null_reason or item.state,
    )
    return ScoredRollout(reward, item.verdicts, item.id)


FIRST_PROBE_SECONDS = 5.0
MAX_PROBE_SECONDS = 300.0
"""Seconds between probes: the first ones, doubled after each up to the maximum."""


class StopRequested(Exception):  # noqa: N818 - not an error
    """The run was asked to stop while its judge was down."""


@dataclass(eq=False)
class StepScorer:
    """Scores steps by a reward source, and takes none of which too little was scored.

    When ``stop`` is set, a pause ends. The ``recorder`` records that the run pauses, with the reason, and goes on.
    """

    rewards: RewardSource
    config: TrainConfig
    stop: Event
    recorder: RunRecorder | None = None

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> tuple[list[ScoredRollout], Metrics]:
        """Return the results of a step, and the metrics ``scored_by``, ``score_attempts`` and ``paused_time``.

        A completion to which a tool leaked the answer is not scored: its reward is null.
        """
        how: Metrics = {"scored_by": self.rewards.scored_by, "score_attempts": 0, "paused_time": 0.0}

        while True:
            how["score_attempts"] += 1
            scored = score_sound(self.rewards, tasks, completions)
            sound = [place for place, result in enumerate(scored) if result is not NOT_SCORED]
            try:
                require_scored([scored[place] for place in sound], self.config.max_unscored)
                break
            except UnavailableError as caught:
                # may pass: a failed call to the judge, or a job of workers that ended without verdicts
                left_out = [scored[place].verdicts for place in sound if scored[place].reward.value is None]
                reasons = [verdict.reason for verdicts in left_out for verdict in verdicts]
                cut_off = how["scored_by"] == CELERY and not all(left_out)
                if not cut_off and not any(reason in TRANSIENT for reason in reasons):
                    raise
                error = caught
            log.warning("the step is not taken: %s", error)
            if how["score_attempts"] % self.config.pause_after == 0:
                left = self.config.max_pause_s - how["paused_time"]
                how["paused_time"] += self._pause(error, tasks, completions, scored, left)
            if self.stop.is_set():
                raise StopRequested
        how["score_attempts"] *= bool(sound)
        return scored, how

    def _pause(
        self,
        error: UnavailableError,
        tasks: Sequence[Task],
        completions: Sequence[Completion],
        scored: Sequence[ScoredRollout],
        max_seconds: float,
    ) -> float:
        """Wait until a group with unscored completions is scored; return the seconds."""
        began, wait = time.monotonic(), FIRST_PROBE_SECONDS
        sound = [[place for place in at if scored[place] is not NOT_SCORED] for at in places_by_task(tasks)]
        groups = [at for at in sound if any(scored[place].reward.value is None for place in at)]
        if max_seconds > 0:
            if self.recorder is not None:
                self.recorder.set_state("paused", str(error))
            log.warning("the run pauses until the judge is back, for up to %.0f s: %s", max_seconds, error)
        for group in itertools.cycle(groups):
            if (left := max_seconds - (time.monotonic() - began)) <= 0:
                raise error
            if self.stop.wait(min(wait, left)):
                raise StopRequested
            some = [completions[place] for place in group]
            probed = validated(self.rewards.score([tasks[place] for place in group], some), some)
            unscored = [new for new, place in zip(probed, group, strict=True) if scored[place].reward.value is None]
            if any(new.reward.value is not None for new in unscored):
                break
            wait = min(MAX_PROBE_SECONDS, 2 * wait)
        paused_s = time.monotonic() - began
        log.warning("the judge is back; the run goes on after %.0f s", paused_s)
        if self.recorder is not None:
            self.recorder.set_state("running")
        return paused_s


@contextmanager
def service(url: str | None = None, outage_seconds: float = 0.0) -> Iterator[LocalService | Client]:
    """Open the service at ``url`` or RUBRICSVC_URL, else that of the database."""
    settings = get_settings()
    if url := url or os.environ.get("RUBRICSVC_URL"):
        with Client(url, timeout=30.0, outage_seconds=outage_seconds) as client:
            yield client
        return
    with open_database() as db:
        yield LocalService(db, approval=settings.require_approval)


class Rewards:
    """Opens the rewards of a run: the queue for all of its judges, a judge in this process, or a service.

    They are closed with ``opened``. ``measured`` is the repeatability of the run's judge, if it is stored.
    """

    def __init__(
        self,
        run: RunConfig,
        measured: Repeatability | None,
        opened: ExitStack,
        say: Callable[[str], None],
        *,
        allow_drafts: bool,
    ) -> None:
        self._run, self._measured, self._opened, self._say = run, measured, opened, say
        self._options: dict[str, Any] = {"run": run.out.name, "allow_drafts": allow_drafts}
        self._service: LocalService | None = None
        self._has_worker = False

    def open(self, other: Judge | ServiceJudge | None = None) -> RewardSource:
        """Open the reward of the run, or that of another judge of its evaluations.

        The queue is opened for the first judge. A Celery worker runs in this process if no other one can be woken; a
        judge's engine is then made and closed, so that its errors are raised before.
        """
        from workers.queue.app import embedded_worker

        run, judge, settings = self._run, other or self._run.judge, get_settings()
        measured = self._measured if other is None else None
        assert not isinstance(judge, str)  # noqa: S101 - stored judges are in place of their names
        if not isinstance(judge, Judge):
            outage = min(settings.outage_seconds, judge.timeout_s)
            client = self._opened.enter_context(Client(judge.service, outage_seconds=outage))
            stored = client.judges.get(judge.name)
            value = stored.value
            info = JudgeInfo(value.name, value.calibrated, stored.repeatability, value.digest)
            return JobRewards(client, info, timeout=judge.timeout_s, **self._options)
        if run.scored_by == "in_process":
            self._say(f"completions are scored by {judge.name} in this process, not through the queue")
            return self._opened.enter_context(JudgeRewards(judge, repeatability=measured))
        local = self._service or self._opened.enter_context(service())
        assert isinstance(local, LocalService)  # noqa: S101 - at RUBRICSVC_URL each judge is that of the service
        if self._service is None:
            local = LocalService(local.db, approval="none")
            in_memory = settings.broker_url.startswith(MEMORY)
            running = 0 if in_memory else local.workers.queue().workers
            by = counted(running, "running worker")
            if not running:
                reason = "the broker is memory://" if in_memory else "no other worker is running"
                by = f"a Celery worker in this process: {reason}"
            self._say(f"completions are scored through the queue by {by}")
            self._has_worker = not running
        if self._has_worker:
            fetch_embedded(self._say, judge)
            asyncio.run(make_engine(judge).aclose())
            if self._service is None:
                self._opened.enter_context(embedded_worker(settings, local.db, keep_models=True))
        self._service = local
        info = JudgeInfo(judge.name, judge.calibrated, measured, judge.digest)
        return JobRewards(local, info, timeout=run.score_timeout_s, **self._options)
