"""Where rewards come from: a judge in this process, checks alone, a plain function, or a control.

`trainer.rewards.jobs` has the queue of a service. All return the same: one ``ScoredRollout`` for each completion, whose
reward is None when too little of its rubric was judged.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Protocol, Self

from rubricsvc.core.audit import Repeatability
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward_or_null, rubric_of_checks
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.schemas import StoredJudge
from trainer.config import CHECKS, ControlName, TrainConfig
from trainer.data.tasks import Task, names_of
from trainer.environments.leaks import LEAK, leaks_of
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


class CheckRewards:
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
        self._rewards = JudgeRewards(Judge(name=CHECKS, engine="none", model="none"))

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score by the checks."""
        checked = [Task(task.prompt, self._rubrics[task.rubric.digest], task.name) for task in tasks]
        return self._rewards.score(checked, completions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rewards.__exit__(*error)


def controlled(rewards: RewardSource, config: TrainConfig) -> RewardSource:
    """Return the rewards that a run is trained on: the control's, if it is one."""
    return rewards if config.control is None else ControlRewards(rewards, config.control.reward, config.seed)


class ControlRewards:
    """Rewards that say nothing about completions, in place of those of a source.

    ``random``    a number drawn for each completion, uniform in [0, 1]; no judge is asked
    ``shuffled``  the rewards of the judge, in a random order among the completions of the same prompt
    ``frozen``    the same number for all: nothing but a tool bonus or a penalty is learned

    A policy that scores as high with one of them did not learn from the judge (arXiv 2506.10947). The random numbers
    depend on the seed and on the scored completions alone, so that a resumed run equals one without interruption.

    Args:
        rewards: The source that they replace.
        name: The control.
        seed: The seed of the run.
    """

    def __init__(self, rewards: RewardSource, name: ControlName, seed: int) -> None:
        self._rewards, self._name, self._seed = rewards, name, seed
        if name == "shuffled":
            self.scored_by, self.items_at = scored_by(rewards), items_at(rewards)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Return a reward for each completion, as `RewardSource.score` does."""
        asked = [[task.prompt.digest, one.digest] for task, one in zip(tasks, completions, strict=True)]
        draw = random.Random(digest("control", self._seed, asked))
        if self._name == "shuffled":
            return _shuffled(tasks, self._rewards.score(tasks, completions), draw)
        values = [draw.random() if self._name == "random" else 0.0 for _ in completions]
        return [ScoredRollout(Reward(value, coverage=1.0, formula=f"control_{self._name}")) for value in values]


def _shuffled(tasks: Sequence[Task], scored: Sequence[ScoredRollout], draw: random.Random) -> list[ScoredRollout]:
    """Return results whose rewards are exchanged within each prompt; those without a reward stay without one."""
    results = list(scored)
    for group in places_by_task(tasks):
        places = [place for place in group if scored[place].reward.value is not None]
        for place, other in zip(places, draw.sample(places, len(places)), strict=True):
            results[place] = replace(scored[place], reward=scored[other].reward)
    return results


NOT_SCORED = ScoredRollout(Reward(None, coverage=0.0, formula=LEAK, null_reason=LEAK))
"""The result of a completion with a leak."""


def score_sound(
    score: Callable[[list[Task], list[Completion]], Sequence[ScoredRollout]],
    tasks: Sequence[Task],
    completions: Sequence[Completion],
) -> list[ScoredRollout]:
    """Return the results of completions; ``score`` is called with those without leaks, if there are any."""
    sound = [place for place, one in enumerate(completions) if not leaks_of(one)]
    results = [NOT_SCORED] * len(completions)
    scored = score([tasks[place] for place in sound], [completions[place] for place in sound]) if sound else ()
    for place, result in zip(sound, scored, strict=True):
        results[place] = result
    return results
