"""A rubric evolved against people's overall satisfaction, on LLM-Rubric's 223 real dialogues (arXiv 2501.00274).

    python -m tests.bench.bench_evolve [--data FOLDER] [--seeds N] [--page FILE]

A rubric of the questions Q0 to Q8 with equal weights, whose verdicts are the expected levels of a model's answers, is
evolved to predict a person's overall score on 60 % of the dialogues, and compared with the start on the other 40 %. No
judge is asked. ``permuted`` is the control: the same with the scores of other dialogues. Of several seeds, each has
parts of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rubricsvc.cli.evolution_views import print_evolution
from rubricsvc.core.evolution import EvolutionReport
from rubricsvc.services import evolving
from rubricsvc.services.evolution_reports import evolution_report
from rubricsvc.services.evolution_search import EvolutionSearch
from rubricsvc.store.session import Database
from rubricsvc.web.evolution import render_evolution
from tests import llm_rubric
from tests.bench.bench_fit import store
from tests.conftest import SHARED
from tests.databases import fresh_url


def no_job(job_id: int) -> None:
    raise AssertionError(f"job {job_id}: every verdict is stored")


def evolve(dialogues: llm_rubric.Dialogues, seeds: int, **options: Any) -> list[EvolutionReport]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        db = Database(fresh_url("sqlite", Path(folder)))
        store(db, dialogues, llm_rubric.QUESTIONS)
        for seed in range(seeds):
            with db.write() as session:
                number = evolving.start(session, "r", seed=seed, objective="scores", **options).row.id
            EvolutionSearch(db, number, no_job).run()
            with db.read() as session:
                found.append(evolution_report(session, number))
        db.close()
    return found


def row(report: EvolutionReport) -> dict[str, Any]:
    """The held-out comparison, and how far the score rose on the search part."""
    assert report.held_out is not None
    first, one = report.held_out.objectives[0], report.summary
    difference = first.difference
    return {
        "seed": report.settings.seed,
        "candidates": one.candidates,
        "search_gain": round((one.best_score or 0.0) - (one.start_score or 0.0), 5),
        "start": round(first.start, 5),
        "best": round(first.best, 5),
        "difference": [
            round(value, 5) for value in (difference.value, difference.low, difference.high) if value is not None
        ],
        "mcnemar": report.held_out.mcnemar.model_dump(),
        "gain": report.held_out.gain,
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, default=SHARED)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--page", type=Path)
    options = arguments.parse_args()
    dialogues = llm_rubric.read(options.data)
    permuted = np.random.default_rng(0).permutation(dialogues.scores).tolist()
    result: dict[str, Any] = {}
    for name, given in (("people", dialogues), ("permuted", replace(dialogues, scores=permuted))):
        started = time.monotonic()
        found = evolve(given, options.seeds)
        result[name] = [row(one) for one in found]
        result[f"{name}_seconds"] = round((time.monotonic() - started) / options.seeds, 1)
        print(f"== {name}")
        print_evolution(found[0])
        if name == "people" and options.page is not None:
            options.page.write_text(render_evolution(found[0]), encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
