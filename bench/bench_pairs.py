"""A comparative judge on LLMBar's pairs, beside the same model's separate verdicts on the two answers.

    python -m bench.bench_pairs [--data FOLDER] [--url URL --model NAME] [--pairs 50]

Without ``--url`` the embedded model judges, untrained. A pair is right where the better answer gets the higher value;
equal values count half. ``order_disagreement`` is the share of pairs whose orders have different winners, ``first`` the
mean value of whatever is shown first (0.5: no bias). Prints a Markdown table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from rubricsvc.core.judge import Comparison, Endpoint, Judge, orders_disagree
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import load
from rubricsvc.stats.intervals import rate
from tests.conftest import SHARED
from workers.engines import make_engine
from workers.scoring.completions import score_group

LONGEST = 2000
RUBRIC = Rubric(criteria=(Criterion(key="c", text="The answer does exactly what the instruction asks."),))


@dataclass(frozen=True)
class Pair:
    prompt: Prompt
    better: Completion
    worse: Completion


def pairs(data: Path, part: str, count: int) -> list[Pair]:
    found = []
    for path in sorted((data / "llmbar" / "LLMBar" / part).rglob("dataset.json")):
        records = list(load(path, format="llmbar"))
        for one, other in zip(records[::2], records[1::2], strict=True):
            first, second = (record.completions[0] for record in (one, other))
            better, worse = (first, second) if one.labels[0].value == 1.0 else (second, first)
            if one.prompt is not None and len(one.prompt.text) + len(first.text) + len(second.text) <= LONGEST:
                found.append(Pair(one.prompt, better, worse))
    return random.Random(0).sample(found, min(count, len(found)))


async def judged(judge: Judge, cases: Sequence[Pair]) -> list[tuple[Verdict, Verdict]]:
    """The verdicts on the better and on the worse answer of each pair."""
    engine, found = make_engine(judge), []
    try:
        for case in cases:
            (better,), (worse,) = await score_group(engine, judge, RUBRIC, case.prompt, [case.better, case.worse])
            found.append((better, worse))
    finally:
        await engine.aclose()
    return found


def measure(found: Sequence[tuple[Verdict, Verdict]]) -> dict[str, Any]:
    known = [(b, b.value, w.value) for b, w in found if b.value is not None and w.value is not None]
    right = sum(1.0 if better > worse else 0.5 if better == worse else 0.0 for _, better, worse in known)
    votes = [(one.value or 0.0, other.value or 0.0) for b, *_ in known for one, other in pairwise(b.votes)]
    of_pairs = rate(round(right), len(known))
    return {
        "pairs": len(found),
        "judged": len(known),
        "accuracy": right / len(known) if known else None,
        "interval": [of_pairs.low, of_pairs.high],
        "order_disagreement": fmean(orders_disagree(*orders) for orders in votes) if votes else None,
        "first": fmean((before + 1 - after) / 2 for before, after in votes) if votes else None,
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, default=SHARED)
    arguments.add_argument("--url")
    arguments.add_argument("--model", default="embedded")
    arguments.add_argument("--pairs", type=int, default=50)
    options = arguments.parse_args()
    engine = "openai_http" if options.url else "transformers_local"
    fields = {"engine": engine, "model": options.model, "endpoint": Endpoint(base_url=options.url)}
    judges = [
        Judge(name="one by one", **fields),
        Judge(name="pairwise", mode="comparative", comparison=Comparison(kind="pairwise"), **fields),
    ]
    print("| LLMBar | judge | pairs judged | accuracy | disagreement | first |\n|---|---|--:|--:|--:|--:|")
    report: dict[str, Any] = {}
    for part in ("Natural", "Adversarial"):
        cases = pairs(options.data, part, options.pairs)
        for judge in judges:
            report[f"{part}, {judge.name}"] = found = measure(asyncio.run(judged(judge, cases)))
            low, high = found["interval"]
            shares = ["–" if found[name] is None else f"{found[name]:.2f}" for name in ("order_disagreement", "first")]
            accuracy = f"{found['accuracy']:.2f} [{low:.2f}, {high:.2f}]"
            cells = [part.lower(), judge.name, f"{found['judged']} of {found['pairs']}", accuracy, *shares]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
