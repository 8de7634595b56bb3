"""Ask a judge about examples as the workers do: the same engine, the same verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from trainer.judge_training.examples import Example, rubric_of
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring.completions import score

AT_ONCE = 16


def base_judge(judge: Judge) -> Judge:
    """Return the same judge on its base: without adapter and calibration, and with any answer mass.

    An untrained base gives the labels little probability.
    """
    bare = {"adapter": None, "weights_sha256": None, "calibration": None, "min_answer_mass": 0.0}
    return judge.model_copy(update=bare)


def probabilities(
    judge: Judge,
    examples: Sequence[Example],
    on_progress: OnProgress = lambda done, total, note: None,
    *,
    some: bool = False,
) -> list[list[float | None]]:
    """Return the probability that the judge gives to each target of each example; None where a verdict failed.

    It is that before a calibration. A written verdict has no probability: its value takes the place.

    Raises:
        InvalidError: ``some`` is needed, and all verdicts failed.
    """

    async def ask() -> list[list[Verdict]]:
        async with aclosing(make_engine(judge)) as engine:
            return await verdicts(engine, judge, examples, on_progress)

    answered = asyncio.run(ask())
    first = next((one for each in answered for one in each), None)
    if some and first and all(one.outcome == "failed" for each in answered for one in each):
        message = f"all verdicts of the judge failed, the first one with {first.reason}: {first.detail}"
        raise InvalidError(message, hint="correct this and continue with --resume, or train again with other settings")
    return [[one.value if one.probability is None else one.probability for one in each] for each in answered]


async def verdicts(
    engine: Engine,
    judge: Judge,
    examples: Sequence[Example],
    on_progress: OnProgress = lambda done, total, note: None,
) -> list[list[Verdict]]:
    """Return the judge's verdict on each target of each example."""
    results: dict[int, list[Verdict]] = {}
    places = iter(range(len(examples)))

    async def work() -> None:
        for place in places:
            example = examples[place]
            results[place] = await score(engine, judge, rubric_of(example), example.prompt, example.completion)
            on_progress(len(results), len(examples), "")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return [results[place] for place in range(len(examples))]
