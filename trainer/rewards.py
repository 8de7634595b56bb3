"""Where rewards come from: a judge in this process, the service, or a plain function.

All give the same: one ``Scored`` for each completion, whose reward is None when too little of its rubric was judged.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Thread
from typing import Any, Protocol, Self, TypeVar

from rubricsvc.client import AsyncClient
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, fold
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import UnavailableError
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring import completions as scoring

log = logging.getLogger(__name__)
T = TypeVar("T")
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained on: a prompt, and the rubric that its completions are judged by."""

    prompt: Prompt
    rubric: Rubric


@dataclass(frozen=True, slots=True)
class Scored:
    """``verdicts`` are empty where the source has none."""

    reward: Reward
    verdicts: tuple[Verdict, ...] = ()


class RewardSource(Protocol):
    """Scores completions. Those below are context managers too, so that connections and threads end."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Scored]:
        """One for each completion; ``tasks`` are as many, completions of one task side by side.

        A judge that fails gives a reward of None. Raises only for what no retry mends. A source with a judge has an
        attribute ``calibrated``, as ``Judge.calibrated``, which the run records.
        """
        ...


class CallableRewards:
    """``function(prompt, text)`` gives the reward, or None for *cannot tell*."""

    def __init__(self, function: Callable[[Prompt, str], float | None]) -> None:
        self._function = function

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Scored]:
        pairs = zip(tasks, completions, strict=True)
        return [_plain(self._function(task.prompt, completion.text)) for task, completion in pairs]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def _plain(value: float | None) -> Scored:
    return Scored(Reward(value, coverage=0.0 if value is None else 1.0, formula="function"))


class _Loop:
    """An event loop in a thread of its own, so that connections outlive a step, and that it works in a notebook."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="rewards", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted: nobody waits for the judge any more
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_Group = tuple[Task, list[Completion]]
"""The completions of one task."""


def _by_group(
    tasks: Sequence[Task], completions: Sequence[Completion], score: Callable[[list[_Group]], list[list[Scored]]]
) -> list[Scored]:
    """Score each task's completions together; what each came to, in the order of ``completions``."""
    groups: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(task.prompt.digest + task.rubric.digest, []).append(index)
    members = list(groups.values())
    scored = score([(tasks[m[0]], [completions[i] for i in m]) for m in members])
    by_index = {i: found for m, group in zip(members, scored, strict=True) for i, found in zip(m, group, strict=True)}
    return [by_index[i] for i in range(len(completions))]


class JudgeRewards:
    """Judge in this process with `workers.scoring`, as the workers do. ``engine`` is closed at exit."""

    def __init__(self, judge: Judge, engine: Engine | None = None) -> None:
        self._judge = judge
        self._engine = engine or make_engine(judge)
        self._loop = _Loop()

    @property
    def calibrated(self) -> bool | None:
        """Of the judge, as ``Judge.calibrated``."""
        return self._judge.calibrated

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Scored]:
        return _by_group(tasks, completions, lambda groups: self._loop.run(self._score(groups)))

    async def _score(self, groups: list[_Group]) -> list[list[Scored]]:
        return await asyncio.gather(*(self._group(task, completions) for task, completions in groups))

    async def _group(self, task: Task, completions: list[Completion]) -> list[Scored]:
        found = await scoring.score_group(self._engine, self._judge, task.rubric, task.prompt, completions)
        return [Scored(fold(task.rubric, verdicts), tuple(verdicts)) for verdicts in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()


class ServiceRewards:
    """A running service: keeps prompts, rubrics and completions there, submits a job for each prompt, and waits.

    ``judge`` is the name of one that the service has. ``timeout`` bounds a step's scoring in seconds: a job that is not
    done by then is cancelled, and what is not scored has no reward. A service that is away is waited for as long.
    """

    def __init__(
        self, judge: Judge | str, url: str, *, timeout: float = 1800.0, client: AsyncClient | None = None
    ) -> None:
        self._judge = judge
        self._timeout = timeout
        self._client = client or AsyncClient(url)
        self._loop = _Loop()

    @cached_property
    def calibrated(self) -> bool | None:
        """Of the judge, as ``Judge.calibrated``; the service is asked for a judge that is known by name.

        Raises:
            NotFoundError: the service has no such judge.
        """
        if isinstance(self._judge, Judge):
            return self._judge.calibrated
        return self._loop.run(self._client.judges.get(self._judge)).judge.calibrated

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Scored]:
        return _by_group(tasks, completions, lambda groups: self._loop.run(self._score(groups)))

    async def _score(self, groups: list[_Group]) -> list[list[Scored]]:
        until = time.monotonic() + self._timeout
        return await asyncio.gather(*(self._group(task, completions, until) for task, completions in groups))

    async def _group(self, task: Task, completions: list[Completion], until: float) -> list[Scored]:
        key = uuid.uuid4().hex  # after an outage the same job is waited for
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                found = await self._client.score(
                    task.prompt, task.rubric, completions, self._judge, timeout=left, cancel_late=True, key=key
                )
            except UnavailableError as error:
                if not left:
                    return [Scored(Reward(None, 0.0, task.rubric.formula, null_reason=str(error)))] * len(completions)
                log.warning("trying again for %.0f s: %s", left, error)
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return [Scored(answer, answer.verdicts) for answer in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()
