"""Ask a judge about examples as the workers do: the same engine, the same verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from trainer.judge_training.examples import Example
from workers.engines import make_engine
from workers.scoring.completions import score

AT_ONCE = 16


def probabilities(
    judge: Judge, examples: Sequence[Example], on_done: Callable[[int], None] | None = None
) -> list[list[float | None]]:
    """Return the probability that the judge gives to each target of each example; None where a verdict failed.

    ``on_done`` is called with the number of examples that are done.
    """
    return asyncio.run(_ask_all(judge, examples, on_done or (lambda _: None)))


async def _ask_all(
    judge: Judge, examples: Sequence[Example], on_done: Callable[[int], None]
) -> list[list[float | None]]:
    done, results = 0, {}
    places = iter(range(len(examples)))
    async with aclosing(make_engine(judge)) as engine:

        async def asking() -> None:
            nonlocal done
            for place in places:
                example = examples[place]
                criteria = [
                    target.criterion.model_copy(update={"key": f"c{number}", "weight": 1.0})
                    for number, target in enumerate(example.targets)
                ]
                verdicts = await score(
                    engine, judge, Rubric(criteria=tuple(criteria)), example.prompt, example.completion
                )
                results[place] = [verdict.probability for verdict in verdicts]
                on_done(done := done + 1)

        await asyncio.gather(*(asking() for _ in range(AT_ONCE)))
    return [results[place] for place in range(len(examples))]
