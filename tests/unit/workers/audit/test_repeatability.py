"""The same questions again: which orders are asked, and what is computed from the answers."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from rubricsvc.core.audit import Repeatability
from rubricsvc.core.judge import Judge, Sampling, Voting
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from tests.instant_engine import InstantEngine
from workers.audit.repeatability import measure, pooled_deviation
from workers.engines.base import EngineRequest, Failure, Reply

READOUT = Judge(name="r", model="m")
SCALE = Ordinal(levels=(Level(label="low", value=0.0), Level(label="high", value=1.0)))
RUBRIC = Rubric(criteria=(Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.", scale=SCALE)))
ROWS = [(RUBRIC, Prompt.of(f"Why {n}?"), Completion(text="So.")) for n in range(20)]


class Noisy(InstantEngine):
    """P(yes) is drawn anew around 0.5 with the given standard deviation."""

    def __init__(self, deviation: float) -> None:
        super().__init__(remember=10_000)
        self.random, self.deviation = random.Random(0), deviation

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        await super().ask(request)
        return [self.noisy(question.labels) for question in request.questions]

    def noisy(self, labels: tuple[str, ...]) -> Reply:
        first = min(max(self.random.gauss(0.5, self.deviation), 0.0), 1.0)
        return Reply(label_mass=dict(zip(labels, (first, 1 - first), strict=False)))


def measured(engine: InstantEngine, judge: Judge = READOUT, rows: Any = ROWS, **options: Any) -> Repeatability:
    return asyncio.run(measure(engine, judge, rows, source="test", **options))


def test_measure_finds_the_deviation_of_values_and_rewards() -> None:
    result = measured(Noisy(0.03), repeats=6)
    assert set(result.criteria) == {"binary", "ordinal"} and result.criteria["binary"].n == 20
    assert result.criteria["binary"].value == pytest.approx(0.03, rel=0.3)
    assert result.reward.value == pytest.approx(0.03 / 2**0.5, rel=0.3)
    assert result.reward.low is not None and result.reward.high is not None
    assert result.reward.low < result.reward.value < result.reward.high
    assert (result.repeats, result.completions, result.unscored) == (6, 20, {})


def test_measure_draws_samples_with_other_seeds() -> None:
    seeds: set[int] = set()

    class Seeds(InstantEngine):
        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            seeds.update((request.sampling.seed or 0) + question.sample for question in request.questions)
            return await super().ask(request)

    judge = Judge(
        name="w", model="m", mode="written", sampling=Sampling(temperature=0.7, seed=5), voting=Voting(samples=2)
    )
    measured(Seeds(), judge, ROWS[:1], repeats=3)
    assert seeds == set(range(5, 11))


def test_pooled_deviation_is_the_root_of_the_mean_variance_within_questions() -> None:
    deviation = pooled_deviation([[0.0, 1.0], [0.5, 0.5, 0.5], [0.9]], [0, 1, 2])
    assert deviation.n == 2 and deviation.value == pytest.approx((0.5 / 3) ** 0.5)
    assert (deviation.low, deviation.high) == (None, None), "of two completions there is no interval"


def test_pooled_deviation_covers_the_true_one() -> None:
    random = np.random.default_rng(0)
    values = [list(random.normal(centre, 0.03, 5)) for centre in random.uniform(0, 1, 200)]
    deviation = pooled_deviation(values, range(200))
    assert deviation.low is not None and deviation.high is not None
    assert deviation.low < 0.03 < deviation.high and deviation.high - deviation.low < 0.01
