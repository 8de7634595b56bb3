"""A million stored verdicts analysed: seconds and memory, beside reading them as ORM rows and verdict values.

    python -m bench.bench_analyse [--completions N] [--postgres]

Ten criteria a completion, eight completions a prompt, each verdict with a rationale, under one rubric for all prompts.
The analysis runs in a process of its own; its peak memory is printed beside that before it. The naive way reads a part,
and its time is scaled to all. The output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert

from rubricsvc.core.base import Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.queries import AnalysisQuery
from rubricsvc.services.analysing import analyse
from rubricsvc.store import jobs, judges
from rubricsvc.store.completions import verdicts_of_items
from rubricsvc.store.session import Database, batched
from rubricsvc.store.tables import CompletionRow, ItemRow, JobRow, PromptRow, QuestionRow, RubricRow, VerdictRow
from tests.databases import fresh_url

CRITERIA, EACH, PART = 10, 8, 2_500
RATIONALE = "The completion states the fact and names its source, but it leaves the date out, which the criterion asks."


def build(db: Database, completions: int) -> None:
    """Rows as a finished job leaves them: completions, items with rewards, verdicts with rationales."""
    random = np.random.default_rng(0)
    prompts = completions // EACH
    values = (random.random((completions, CRITERIA)) < random.random((completions, 1))).astype(float)
    rewards = (values @ np.arange(1, CRITERIA + 1) / sum(range(1, CRITERIA + 1))).tolist()
    criteria = (Criterion(key=f"c{n}", text=f"States fact number {n}.", weight=n + 1) for n in range(CRITERIA))
    rubric = Rubric(criteria=tuple(criteria), formula="healthbench")
    fingerprints = [digest("q", rubric.digest, one.key) for one in rubric.criteria]
    prompt_rows = [Prompt.of(f"Question {n}: what are the ten facts?") for n in range(prompts)]
    with db.write() as session:
        judge = judges.add(session, Judge(name="j", model="m")).id

        def add(table: Any, rows: Iterable[dict[str, Any]]) -> None:
            for chunk in batched(rows, 20_000):
                session.connection().execute(insert(table), chunk)

        add(PromptRow, ({"id": n, "digest": p.digest, "content": dumped(p)} for n, p in enumerate(prompt_rows, 1)))
        own = {"id": 1, "name": "r", "version": 1, "digest": rubric.digest, "content": dumped(rubric)}
        add(RubricRow, [own])
        add(QuestionRow, (
            {"question_set": "set", "criterion": f"c{n}", "position": n, "fingerprint": name}
            for n, name in enumerate(fingerprints)
        ))  # fmt: skip
        add(CompletionRow, (
            {"id": n + 1, "prompt_id": n // EACH + 1, "digest": f"{n:064x}", "content": dumped(answer(n))}
            for n in range(completions)
        ))  # fmt: skip
        add(JobRow, [{"id": 1, "key": "k", "content_key": "k", "judge_id": judge, "status": "completed"}])
        done = {"job_id": 1, "judge_id": judge, "state": "done", "coverage": 1.0, "formula": "healthbench"}
        add(ItemRow, (
            {"id": n + 1, "completion_id": n + 1, "rubric_id": 1, "question_set": "set", "reward": rewards[n]} | done
            for n in range(completions)
        ))  # fmt: skip
        found = {
            "judge_id": judge,
            "outcome": "scored",
            "sample": 0,
            "attempts": 1,
            "details": {"rationale": RATIONALE},
        }
        add(VerdictRow, (
            {"completion_id": n + 1, "fingerprint": name, "criterion": f"c{c}", "rubric_id": 1, "value": values[n, c]}
            | found for n in range(completions) for c, name in enumerate(fingerprints)
        ))  # fmt: skip


def dumped(value: Value) -> dict[str, Any]:
    return value.model_dump(mode="json")


def answer(number: int) -> Completion:
    return Completion(text=f"Answer {number}. " + "Fact after fact. " * (5 + number % 40))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(url: str) -> dict[str, float]:
    """Analyse the job in this process."""
    import rubricsvc.stats.rubric_statistics  # noqa: F401 - the libraries are no part of the time

    db, before = Database(url), peak_mib()
    start, processor = time.perf_counter(), time.process_time()
    with db.read() as session:
        found = analyse(session, "r", AnalysisQuery(job_id=1))
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    count = sum(criterion.n for criterion in found.criteria)
    figures = {"seconds": seconds, "processor_seconds": processor, "peak_mib": peak_mib(), "before_mib": before}
    return {"verdicts": count, **figures}


def naive(db: Database, completions: int) -> float:
    """Processor seconds that reading all verdicts as values would take, from a part of the items."""
    start = time.process_time()
    with db.read() as session:
        ids = [row.id for row in jobs.items(session, jobs.get(session, 1).id, limit=PART)]
        table = {id_: [one.value for one in each] for id_, each in verdicts_of_items(session, ids).items()}
    np.array(list(table.values()), float).mean(0)
    return (time.process_time() - start) * completions / len(table)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--completions", type=int, default=100_000)
    arguments.add_argument(
        "--postgres", action="store_true", help="On PostgreSQL: `python -m tests.services python -m …`."
    )
    arguments.add_argument("--measure", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        url = fresh_url("postgresql" if options.postgres else "sqlite", Path(folder))
        db = Database(url)
        build(db, options.completions)
        command = [sys.executable, "-m", "bench.bench_analyse", "--measure", url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        found = json.loads(done.stdout.splitlines()[-1])
        found["naive_processor_seconds"] = naive(db, options.completions)
        db.close()
    print(json.dumps({key: round(value, 2) for key, value in found.items()}))


if __name__ == "__main__":
    main()
