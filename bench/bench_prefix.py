"""What ten criteria on one completion cost beside one: the prefix is encoded once.

    python -m bench.bench_prefix [--tokens N] [--criteria K] [--rounds R]

Medians of interleaved rounds with the embedded model. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

import torch

from workers.engines.base import EngineRequest, Question, Reply
from workers.engines.local.transformers_engine import TransformersEngine
from workers.engines.local.weights import ModelWeights

SENTENCE = "The committee found that the bridge was safe, though two of its cables needed care before the winter came. "
TOKENS_PER_SENTENCE = 21


async def measure(tokens: int, criteria: int, rounds: int) -> dict[str, float]:
    engine = TransformersEngine(ModelWeights("embedded"))
    questions = tuple(
        Question(
            f"\n\nCriterion: The answer names finding number {n} and says why it matters for the winter.\n"
            "Does the answer meet this criterion? Reply with one word, Yes or No.",
            ("Yes", "No"),
        )
        for n in range(criteria)
    )
    shared = "The answer to grade:\n" + SENTENCE * (tokens // TOKENS_PER_SENTENCE)

    async def timed(count: int) -> tuple[float, Reply]:
        start = time.perf_counter()
        first, *_ = await engine.ask(EngineRequest("You grade answers.", shared, questions[:count]))
        assert isinstance(first, Reply), first
        return time.perf_counter() - start, first

    await engine.ask(EngineRequest("Warm up.", "", (questions[0],)))
    one, many = [], []
    for _ in range(rounds):
        seconds, reply = await timed(1)
        one.append(seconds)
        many.append((await timed(criteria))[0])
    await engine.aclose()
    one_s, many_s = statistics.median(one), statistics.median(many)
    assert reply.usage is not None
    return {
        "prompt_tokens": reply.usage.prompt,
        "criteria": criteria,
        "threads": torch.get_num_threads(),
        "one_criterion_s": round(one_s, 3),
        "ten_criteria_s" if criteria == 10 else f"{criteria}_criteria_s": round(many_s, 3),
        "ratio": round(many_s / one_s, 3),
        "ratio_worst": round(max(many) / min(one), 3),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokens", type=int, default=1200)
    arguments.add_argument("--criteria", type=int, default=10)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    print(json.dumps(asyncio.run(measure(options.tokens, options.criteria, options.rounds))))


if __name__ == "__main__":
    main()
