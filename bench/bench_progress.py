"""Is a step of research progress? Judges and two rules, beside labels that follow from how the steps were made.

    python -m bench.bench_progress [--tasks N] [--seed S] [--url URL --model NAME]

A script acts in the environment `research` on prompts of `prompts synthesize python`: after a search it opens each page
that answers the prompt (progress), and in between another page (no progress), the same page again, repeats the search
and names an unknown page, in random order. A judge of mode trajectory is asked about each step; `alone` is
asked about the step without those before it. Intervals are bootstrapped over tasks. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rubricsvc.cli.models import fetch_embedded
from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments
from rubricsvc.collections.sources import python_pages
from rubricsvc.collections.tasks import Task, synthesize
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, steps_of
from rubricsvc.core.rubric import Rubric
from rubricsvc.stats.agreement import auroc
from rubricsvc.stats.intervals import ENDS, cluster_draws
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Research
from workers.audit.cases import PROGRESS
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter
from workers.scoring.completions import score

RUBRIC = Rubric(criteria=(PROGRESS,))
LIMITS = EpisodeLimits(max_turns=20, max_result_chars=400)
PROGRESSING = "opens a page that answers"
Action = tuple[str, str, dict[str, str]]
"""Its kind, its tool and the tool's arguments."""


@dataclass(frozen=True)
class Walk:
    """A scripted trajectory, and the kind of each step; the first, a search, has none."""

    task: Task
    completion: Completion
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Labelled:
    """A step with its label, and what the judges and the rules say of it."""

    task: int
    kind: str
    scores: dict[str, float | None]

    @property
    def label(self) -> float:
        """1 for progress, else 0."""
        return float(self.kind == PROGRESSING)


def walk(environment: Research, task: Task, rng: random.Random) -> Walk:
    """Act on a task, in random order."""
    gold = [alternatives[0] for alternatives in task.pages][:2]
    answering = {id_ for alternatives in task.pages for id_ in alternatives} | {task.source}
    other = rng.choice([id_ for id_ in environment.collection.ids() if id_ not in answering])
    query = environment.collection.open(gold[0]).title
    actions: list[Action] = [(PROGRESSING, "open", {"id": id_}) for id_ in gold]
    actions += [("opens another page", "open", {"id": other}), ("opens it again", "open", {"id": other})]
    actions += [("repeats the search", "search", {"query": query}), ("an error", "open", {"id": f"{gold[0]}-index"})]
    rng.shuffle(actions)
    again = [place for place, (_, _, arguments) in enumerate(actions) if arguments.get("id") == other]
    for place, kind in zip(again, ("opens another page", "opens it again"), strict=True):
        actions[place] = (kind, *actions[place][1:])
    episode = begin(environment, task.prompt, LIMITS)
    for _, name, arguments in [("", "search", {"query": query}), *actions]:
        episode.turn(call_text(name, **arguments))
    return Walk(task, Completion(messages=tuple(episode.messages)), tuple(kind for kind, *_ in actions))


def rules(one: Walk) -> Iterator[dict[str, float | None]]:
    """Yield what rules say of each step but the first."""
    steps = steps_of(one.completion)
    for place, step in enumerate(steps[1:], start=1):
        seen = {message.content for before in steps[:place] for message in before if message.role == "tool"}
        result = step[-1].content
        new = not result.startswith('{"error"') and result not in seen
        yield {"a result that is new": float(new), "the step's number": float(place)}


async def judged(engine: Engine, judge: Judge, one: Walk) -> list[float | None]:
    """Return the values of each step but the first."""
    if judge.mode == "trajectory":
        (verdict,) = await score(engine, judge, RUBRIC, one.task.prompt, one.completion)
        return [vote.value for vote in verdict.votes][1:]
    alone = [Completion(text="\n".join(m.text for m in step)) for step in steps_of(one.completion)[1:]]
    verdicts = [await score(engine, judge, RUBRIC, one.task.prompt, step) for step in alone]
    return [verdict.value for (verdict,) in verdicts]


async def measure(judges: dict[str, Judge], walks: Sequence[Walk]) -> list[Labelled]:
    """Ask the judges about all steps."""
    steps = [
        Labelled(number, kind, scores)
        for number, one in enumerate(walks)
        for kind, scores in zip(one.kinds, rules(one), strict=True)
    ]
    for name, judge in judges.items():
        engine = make_engine(judge)
        values: list[float | None] = []
        try:
            for number, one in enumerate(walks, start=1):
                values += await judged(engine, judge, one)
                print(f"\r{name}: {number}/{len(walks)} trajectories", end="", file=sys.stderr, flush=True)
        finally:
            await engine.aclose()
        for step, value in zip(steps, values, strict=True):
            step.scores[name] = value
    return steps


def figure(steps: Sequence[Labelled], name: str, kind: str | None = None) -> dict[str, float]:
    """Return the AUROC of progress against the other kinds, or one of them, with its 95 % interval."""
    kinds = {one.kind for one in steps} if kind is None else {PROGRESSING, kind}
    rows = [one for one in steps if one.scores[name] is not None and one.kind in kinds]
    scores, labels = np.array([one.scores[name] for one in rows], float), np.array([one.label for one in rows])
    draws = cluster_draws(np.array([one.task for one in rows]), 1000, seed=0)
    low, high = np.quantile([auroc(scores[d], labels[d]) for d in draws if len(set(labels[d])) == 2], ENDS)
    return {"n": len(rows), "auroc": auroc(scores, labels), "low": low, "high": high}


def report(steps: Sequence[Labelled]) -> dict[str, object]:
    """Print the tables, and return what is in them."""
    names, kinds = list(steps[0].scores), sorted({one.kind for one in steps} - {PROGRESSING})
    found: dict[str, object] = {}
    print("\n| | steps | AUROC | " + " | ".join(kinds) + " |\n|---|--:|--:|" + "--:|" * len(kinds))
    for name in names:
        each = {kind: figure(steps, name, kind) for kind in (None, *kinds)}
        every = each.pop(None)
        cells = [f"{one['auroc']:.2f}" for one in each.values()]
        print(f"| {name} | {every['n']} | {every['auroc']:.2f} [{every['low']:.2f}, {every['high']:.2f}] | ", end="")
        print(" | ".join(cells) + " |")
        found[name] = {"all": every, **{str(kind): one for kind, one in each.items()}}
    return found


def embedded() -> dict[str, Judge]:
    """Return the embedded judges."""
    fetch_embedded()
    trained = judge_with_adapter("trained", SHIPPED_ADAPTER)
    untrained = Judge(name="untrained", engine=trained.engine, model=EMBEDDED, mode="trajectory", min_answer_mass=0.1)
    adapted = trained.model_copy(update={"mode": "trajectory", "template": None})
    return {"untrained, trajectory": untrained, "trained, trajectory": adapted, "trained, alone": trained}


def served(url: str, model: str) -> dict[str, Judge]:
    """Return the judge of a server."""
    return {model: Judge(name=model, model=model, mode="trajectory", endpoint=Endpoint(base_url=url))}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tasks", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--url")
    arguments.add_argument("--model", default=EMBEDDED)
    options = arguments.parse_args()
    judges = served(options.url, options.model) if options.url else embedded()
    with TemporaryDirectory() as folder:
        collections.add(Path(folder), "python", python_pages(), FaultyDocuments(), source="CPython")
        environment = Research(Path(folder), "python")
        with environment.collection:
            made = synthesize(environment.collection, ("changes", "define"), limit=options.tasks)
            every = list(made)
            rng = random.Random(options.seed)
            walks = [walk(environment, task, rng) for task in rng.sample(every, options.tasks)]
        steps = asyncio.run(measure(judges, walks))
    progress = sum(one.label for one in steps)
    print(f"\n{len(walks)} tasks, {len(steps)} steps, {progress:.0f} of them progress")
    print(json.dumps(report(steps)))


if __name__ == "__main__":
    main()
