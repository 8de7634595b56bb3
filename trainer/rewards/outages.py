"""The scoring of a step while its judge may be down: the step is not taken, and after several attempts the run pauses.

A pause ends when a group of the step is scored again, and the run goes on with the same completions.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence
from threading import Event

from rubricsvc.core.prompt import Completion
from rubricsvc.core.states import RunState
from rubricsvc.errors import UnavailableError
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.recording.recorder import Recorder
from trainer.rewards.source import (
    CELERY,
    RewardSource,
    ScoredRollout,
    places_by_task,
    require_scored,
    score_sound,
    scored_by,
    validated,
)

log = logging.getLogger(__name__)

FIRST_PROBE_SECONDS = 5.0
MAX_PROBE_SECONDS = 300.0
"""Seconds between probes: the first ones, doubled after each up to the maximum."""


class StopRequested(Exception):  # noqa: N818 - not an error
    """The run was asked to stop while its judge was down."""


class StepScorer:
    """Scores steps by a reward source, and takes none of which too little was scored.

    Args:
        rewards: the source.
        config: ``max_unscored``, ``pause_after`` and ``max_pause_s``.
        stop: when set, a pause ends.
        recorder: records that the run pauses, with the reason, and that it goes on.
    """

    def __init__(
        self, rewards: RewardSource, config: TrainConfig, stop: Event | None = None, recorder: Recorder | None = None
    ) -> None:
        self._rewards, self._config = rewards, config
        self._stop = stop or Event()
        self._recorder = recorder

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> tuple[list[ScoredRollout], Metrics]:
        """Return the results of a step, and the metrics ``scored_by``, ``score_attempts`` and ``paused_time``.

        A completion to which a tool leaked the answer is not scored: its reward is null.
        """
        how: Metrics = {"scored_by": scored_by(self._rewards), "score_attempts": 0, "paused_time": 0.0}

        def sound(tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
            scored, how["score_attempts"], how["paused_time"] = self._scored(tasks, completions)
            return scored

        return score_sound(sound, tasks, completions), how

    def _scored(
        self, tasks: Sequence[Task], completions: Sequence[Completion]
    ) -> tuple[list[ScoredRollout], int, float]:
        """Return the results, the number of attempts, and the seconds of pauses."""
        paused_s = 0.0
        for attempt in itertools.count(1):
            scored = self._score(tasks, completions)
            try:
                require_scored(scored, self._config.max_unscored)
                break
            except UnavailableError as caught:
                if not any(map(self._may_pass, scored)):
                    raise
                error = caught
            log.warning("the step is not taken: %s", error)
            if attempt % self._config.pause_after == 0:
                paused_s += self._pause(error, tasks, completions, scored, self._config.max_pause_s - paused_s)
            if self._stop.is_set():
                raise StopRequested
        return scored, attempt, paused_s

    def _score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        return validated(self._rewards.score(tasks, completions), completions)

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
        groups = [at for at in places_by_task(tasks) if any(scored[place].reward.value is None for place in at)]
        if max_seconds > 0:
            self._record("paused", str(error))
            log.warning("the run pauses until the judge is back, for up to %.0f s: %s", max_seconds, error)
        for group in itertools.cycle(groups):
            if (left := max_seconds - (time.monotonic() - began)) <= 0:
                raise error
            if self._stop.wait(min(wait, left)):
                raise StopRequested
            probed = self._score([tasks[place] for place in group], [completions[place] for place in group])
            unscored = [new for new, place in zip(probed, group, strict=True) if scored[place].reward.value is None]
            if any(new.reward.value is not None for new in unscored):
                break
            wait = min(MAX_PROBE_SECONDS, 2 * wait)
        paused_s = time.monotonic() - began
        log.warning("the judge is back; the run goes on after %.0f s", paused_s)
        self._record("running")
        return paused_s

    def _record(self, state: RunState, reason: str | None = None) -> None:
        if self._recorder is not None:
            self._recorder.set_state(state, reason)

    def _may_pass(self, result: ScoredRollout) -> bool:
        """Return whether a completion has no reward for a reason that may pass.

        That is a failed call to the judge, or a job of workers that ended without verdicts.
        """
        if result.reward.value is not None:
            return False
        if not result.verdicts:
            return scored_by(self._rewards) == CELERY
        return any(verdict.reason is not None and verdict.reason.transient for verdict in result.verdicts)
