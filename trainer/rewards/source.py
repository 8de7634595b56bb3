"""Where rewards come from: a judge in this process or a plain function.

`trainer.rewards.jobs` has the queue of a service. All return the same: one ``ScoredRollout`` for each completion, whose
reward is None when too little of its rubric was judged.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Protocol, Self

from rubricsvc.core.audit import Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.schemas import StoredJudge
from trainer.data.tasks import Task
from trainer.event_loop import EventLoopThread
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring.completions import score_group

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

    @classmethod
    def of(cls, stored: StoredJudge) -> JudgeInfo:
        """Return the properties of a stored judge."""
        if stored.judge is None:
            raise InvalidError(str(stored.error))
        return cls(stored.judge.name, stored.judge.calibrated, stored.repeatability, stored.judge.digest)


class RewardSource(Protocol):
    """Scores completions.

    A source with a method ``judge_info()`` has a judge, whose properties the run records. An attribute ``scored_by`` of
    `CELERY` says that workers score, ``items_at`` in which database or service the items of its jobs are, and a method
    ``of_evaluation(score)`` returns the source that scores evaluations, by jobs with other names.
    """

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return one result for each completion, in order.

        A judge that fails gives a reward of None. Raise only errors that no retry can resolve.

        Args:
            tasks: the task of each completion.
            completions: the completions of one step.
        """
        ...


def scored_by(rewards: RewardSource) -> str:
    """Return `CELERY` if workers score, else `IN_PROCESS`."""
    return str(getattr(rewards, "scored_by", IN_PROCESS))


def items_at(rewards: RewardSource) -> str | None:
    """Return the address of the database or service whose jobs score; None if no job does."""
    address: str | None = getattr(rewards, "items_at", None)
    return address


def of_evaluation(rewards: RewardSource, score: str) -> RewardSource:
    """Return the source that scores completions of evaluations."""
    named: Callable[[str], RewardSource] | None = getattr(rewards, "of_evaluation", None)
    return named(score) if named else rewards


def judge_of(tasks: Sequence[Task], rewards: RewardSource) -> JudgeInfo | None:
    """Return the judge behind the rewards; None where no criterion is judged or the source has no judge."""
    judged = any(criterion.check is None for task in tasks for criterion in task.rubric.criteria)
    info: Callable[[], JudgeInfo] | None = getattr(rewards, "judge_info", None)
    return info() if judged and info else None


def validated(results: Sequence[ScoredRollout], completions: Sequence[Completion]) -> list[ScoredRollout]:
    """Return the results of a reward source; a reward that is NaN or infinite becomes None."""
    if not isinstance(results, Sequence) or len(results) != len(completions):
        count = len(results) if isinstance(results, Sequence) else f"a {type(results).__name__} of"
        raise InvalidError(
            f"the reward source returned {count} rewards for {len(completions)} completions",
            hint="return a list with one result for each completion, in the same order",
        )
    return [_validated(place, result) for place, result in enumerate(results)]


def _validated(place: int, result: ScoredRollout) -> ScoredRollout:
    value = result.reward.value if isinstance(result, ScoredRollout) else result
    if not isinstance(result, ScoredRollout) or not (value is None or isinstance(value, Real)):
        raise InvalidError(
            f"the reward of completion {place} is {value!r:.80}, of type {type(value).__name__}",
            hint="return a ScoredRollout for each completion, whose reward is a number or None",
        )
    if value is None or math.isfinite(value):
        return result
    return replace(result, reward=replace(result.reward, value=None, null_reason=f"the reward is {value}"))


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


class CallableRewards:
    """Rewards of ``function(prompt, text)``, which returns None where it cannot tell."""

    def __init__(self, function: Callable[[Prompt, str], float | None]) -> None:
        self._function = function

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Call the function for each completion."""
        values = [self._function(task.prompt, one.text) for task, one in zip(tasks, completions, strict=True)]
        return [ScoredRollout(Reward(v, coverage=0.0 if v is None else 1.0, formula="function")) for v in values]


def places_by_task(tasks: Sequence[Task]) -> list[list[int]]:
    """Return the places of the completions of each prompt and rubric: what a comparative judge sees together."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.prompt.digest, task.rubric.digest].append(place)
    return list(places.values())


class JudgeRewards:
    """Rewards of a judge in this process, scored as the workers do. ``engine`` is closed on exit.

    ``repeatability`` is the judge's measured one: the default floor of GRPO's standard deviation.
    """

    def __init__(
        self, judge: Judge, engine: Engine | None = None, *, repeatability: Repeatability | None = None
    ) -> None:
        self._judge = judge
        self._repeatability = repeatability
        self._engine = engine or make_engine(judge)
        self._loop = EventLoopThread("rewards")

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties."""
        return JudgeInfo(self._judge.name, self._judge.calibrated, self._repeatability, self._judge.digest)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score all prompts of the step concurrently. A comparative judge is shown a prompt's completions together."""
        return self._loop.run(self._score(tasks, completions))

    async def _score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        groups = places_by_task(tasks)
        asked = [
            score_group(
                self._engine, self._judge, tasks[at[0]].rubric, tasks[at[0]].prompt, [completions[i] for i in at]
            )
            for at in groups
        ]
        verdicts: dict[int, Sequence[Verdict]] = {}
        for at, scored in zip(groups, await asyncio.gather(*asked), strict=True):
            verdicts.update(zip(at, scored, strict=True))
        return [
            ScoredRollout(reward_or_null(task.rubric, verdicts[place]), tuple(verdicts[place]))
            for place, task in enumerate(tasks)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()
