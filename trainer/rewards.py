"""Where rewards come from: a judge in this process or a plain function; `trainer.service_rewards` has the service.

All return the same: one ``ScoredRollout`` for each completion, whose reward is None when too little of its rubric was
judged.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from trainer.judge_info import JudgeInfo
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring import completions as scoring

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt to train on, and the rubric that its completions are scored by."""

    prompt: Prompt
    rubric: Rubric


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """The reward of one completion, and its verdicts where the source has any."""

    reward: Reward
    verdicts: tuple[Verdict, ...] = ()


class RewardSource(Protocol):
    """Scores completions. The sources of this package are context managers too, which close connections and threads."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return one result for each completion, in order.

        A judge that fails gives a reward of None. Raise only errors that no retry can resolve.

        Args:
            tasks: the task of each completion; completions of one task are adjacent.
            completions: the completions of one step.
        """
        ...


@runtime_checkable
class JudgedRewardSource(RewardSource, Protocol):
    """A reward source with a judge, whose properties the run records."""

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties."""
        ...


def judge_of(tasks: Sequence[Task], rewards: RewardSource) -> JudgeInfo | None:
    """Return the judge behind the rewards; None where no criterion is judged or the source has no judge."""
    judged = any(criterion.check is None for task in tasks for criterion in task.rubric.criteria)
    return rewards.judge_info() if judged and isinstance(rewards, JudgedRewardSource) else None


def validated(results: Sequence[ScoredRollout], completions: Sequence[Completion]) -> list[ScoredRollout]:
    """Return the results of a reward source; a reward that is NaN or infinite becomes None.

    Raises:
        InvalidError: there are more or fewer results than completions.
    """
    if len(results) != len(completions):
        raise InvalidError(
            f"the reward source returned {len(results)} rewards for {len(completions)} completions",
            hint="return one result for each completion, in the same order",
        )
    checked = []
    for result in results:
        value = result.reward.value
        finite = value is None or math.isfinite(value)
        null = replace(result.reward, value=None, null_reason=f"the reward is {value}")
        checked.append(result if finite else replace(result, reward=null))
    return checked


class CallableRewards:
    """Rewards of ``function(prompt, text)``, which returns None where it cannot tell."""

    def __init__(self, function: Callable[[Prompt, str], float | None]) -> None:
        self._function = function

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Call the function for each completion."""
        values = [self._function(task.prompt, one.text) for task, one in zip(tasks, completions, strict=True)]
        return [ScoredRollout(Reward(v, coverage=0.0 if v is None else 1.0, formula="function")) for v in values]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class BackgroundLoop:
    """An event loop in its own thread: connections outlive a step, and it works inside a notebook."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="rewards", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result; cancel it when interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """All completions of one task in a step; ``places`` are their indices in the step."""

    task: Task
    completions: tuple[Completion, ...]
    places: tuple[int, ...]


def groups_by_task(tasks: Sequence[Task], completions: Sequence[Completion]) -> list[TaskGroup]:
    """Return the completions by prompt and rubric: what a comparative judge compares with each other.

    Raises:
        InvalidError: there are more or fewer tasks than completions.
    """
    if len(tasks) != len(completions):
        raise InvalidError(f"{len(tasks)} tasks for {len(completions)} completions", hint="give one task for each")
    places: dict[tuple[str, str], list[int]] = {}
    for index, task in enumerate(tasks):
        places.setdefault((task.prompt.digest, task.rubric.digest), []).append(index)
    return [TaskGroup(tasks[at[0]], tuple(completions[i] for i in at), tuple(at)) for at in places.values()]


def in_order(groups: Iterable[TaskGroup], results: Iterable[Sequence[ScoredRollout]]) -> list[ScoredRollout]:
    """Return the groups' results in the order of the step's completions."""
    by_place: dict[int, ScoredRollout] = {}
    for group, scored in zip(groups, results, strict=True):
        by_place.update(zip(group.places, scored, strict=True))
    return [by_place[place] for place in range(len(by_place))]


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
        self._loop = BackgroundLoop()

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties."""
        return JudgeInfo(self._judge.name, self._judge.calibrated, self._repeatability)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score all groups of the step concurrently."""
        groups = groups_by_task(tasks, completions)
        return in_order(groups, self._loop.run(self._score(groups)))

    async def _score(self, groups: Sequence[TaskGroup]) -> list[list[ScoredRollout]]:
        return await asyncio.gather(*map(self._score_group, groups))

    async def _score_group(self, group: TaskGroup) -> list[ScoredRollout]:
        prompt, rubric = group.task.prompt, group.task.rubric
        scored = await scoring.score_group(self._engine, self._judge, rubric, prompt, group.completions)
        return [ScoredRollout(reward_or_null(rubric, verdicts), tuple(verdicts)) for verdicts in scored]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()
