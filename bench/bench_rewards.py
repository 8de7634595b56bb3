"""What the queue costs of a training step: the same judge and completions, through Celery and in this process.

    python -m tests.services python -m bench.bench_rewards [--steps 20] [--completions 32] [--embedded]

A worker inside the process on SQLite and on PostgreSQL, with an engine that answers at once and over a socket, or with
the embedded judge; four criteria a completion. Medians of the seconds of a step's scoring. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rubricsvc import telemetry
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.services.local import LocalService
from rubricsvc.settings import Settings
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests import instant_engine  # noqa: F401 - registers the engine "instant"
from tests.databases import KINDS, fresh_url
from tests.scripted_server import server_process
from trainer.data.tasks import Task
from trainer.rewards import JobRewards, JudgeInfo, JudgeRewards, RewardSource
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter
from workers.queue.app import embedded_worker

RUBRIC = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=f"States fact {n} of the list.") for n in range(4)))
GROUP = 8


def seconds_of(rewards: RewardSource, steps: int, completions: int) -> float:
    """Median seconds of scoring a step; the first one, which opens connections, is left out."""
    tasks = [Task(Prompt.of(f"Question {n // GROUP}: what are the facts?"), RUBRIC) for n in range(completions)]
    took: list[float] = []
    for step in range(steps + 1):
        texts = (f"Answer {n} of step {step}. " + "Fact after fact. " * 40 for n in range(completions))
        sampled = [Completion(text=text, policy="p", step=step) for text in texts]
        start = time.perf_counter()
        assert all(one.reward.value is not None for one in rewards.score(tasks, sampled))
        took.append(time.perf_counter() - start)
    return statistics.median(took[1:])


def through_queue(kind: str, judge: Judge, folder: Path, measure: Callable[[RewardSource], float]) -> float:
    db = Database(fresh_url(kind, folder))
    with db.write() as session:
        judges.add(session, judge)
    with embedded_worker(Settings(database_url=db.url), db, keep_models=True):
        seconds = measure(JobRewards(LocalService(db, approval="none"), JudgeInfo(judge.name)))
    db.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--embedded", action="store_true")
    options = parser.parse_args()
    telemetry.configure("WARNING")
    figures: dict[str, float] = {}

    def measure(rewards: RewardSource) -> float:
        return seconds_of(rewards, options.steps, options.completions)

    with tempfile.TemporaryDirectory() as name, server_process("instant") as url:
        instant = Judge(name="instant", engine="instant", model="none")
        remote = Judge(name="remote", model="scripted", endpoint=Endpoint(base_url=url, max_retries=0))
        for judge in (judge_with_adapter("embedded", SHIPPED_ADAPTER),) if options.embedded else (instant, remote):
            with JudgeRewards(judge) as local:
                figures[f"{judge.name}_in_process_s"] = measure(local)
            for kind in KINDS:
                figures[f"{judge.name}_{kind}_s"] = through_queue(kind, judge, Path(name), measure)
    for key, seconds in figures.items():
        print(f"{key}: {1000 * seconds:.0f} ms a step of {options.completions} completions")
    print(json.dumps({key: round(seconds, 4) for key, seconds in figures.items()}))


if __name__ == "__main__":
    main()
