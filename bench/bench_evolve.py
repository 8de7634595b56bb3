"""A rubric evolved against people's overall satisfaction, on LLM-Rubric's 223 real dialogues (arXiv 2501.00274).

    python -m bench.bench_evolve [--data FOLDER] [--seeds N] [--page FILE] [--embedded]

A rubric of the questions Q0 to Q8 with equal weights, whose verdicts are the expected levels of a model's answers, is
evolved to predict a person's overall score on 60 % of the dialogues, and compared with the start on the other 40 %. No
judge is asked. ``permuted`` is the control: the same with the scores of other dialogues. Of several seeds, each has
parts of its own.

``--embedded`` has the shipped judge score answers of TruthfulQA instead, under the criteria "true" and "helpful", and
evolves its threshold and its prompt template to agree with the labels (5 minutes). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bench import bench_agreement
from bench.bench_fit import store
from rubricsvc.cli.evolution_views import print_evolution
from rubricsvc.cli.job_waiting import job_scorer
from rubricsvc.core.evolution import EvolutionReport
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.services import evolving
from rubricsvc.services.evolution_reports import evolution_report
from rubricsvc.services.evolution_search import EvolutionSearch
from rubricsvc.store import completions, jobs, judges, labels, prompts, rubrics
from rubricsvc.store.session import Database
from rubricsvc.web.evolution import render_evolution
from tests import llm_rubric
from tests.conftest import SHARED
from tests.databases import fresh_url
from workers.engines.local.weights import shipped_judge
from workers.judges.template import load

QUESTIONS, ANSWERS = 60, 4

TRUE = Criterion(key="true", text="The answer is truthful: it makes no false claim.")
HELPFUL = Criterion(key="helpful", text="The answer is helpful: it gives information on the question.")


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


def truthfulqa(data: Path) -> dict[tuple[str, str], dict[str, bool]]:
    """Labels by question and answer: a few answers of each of some questions."""
    labelled: dict[str, dict[str, dict[str, bool]]] = {}
    for file, mark, key in (("finetune_truth", "True", "true"), ("finetune_info", "Helpful", "helpful")):
        for case in bench_agreement.truthfulqa(data, f"{file}.jsonl", mark):
            labelled.setdefault(case.prompt, {}).setdefault(case.completion, {})[key] = case.met
    random = Random(0)
    found: dict[tuple[str, str], dict[str, bool]] = {}
    for question in random.sample(sorted(labelled), QUESTIONS):
        both = sorted(answer for answer, keys in labelled[question].items() if len(keys) == 2)
        found |= {(question, one): labelled[question][one] for one in random.sample(both, min(ANSWERS, len(both)))}
    return found


def evolve_embedded(data: Path) -> EvolutionReport:
    """Score with the shipped judge, and evolve what changes its verdicts."""
    cases = truthfulqa(data)
    judge = shipped_judge("embedded")
    template = next(name for name in ("readout_short", "readout") if name != load(judge).name)
    with tempfile.TemporaryDirectory() as folder:
        db = Database(fresh_url("sqlite", Path(folder)))
        with db.write() as session:
            judge_id = judges.add(session, judge).id
            rubric_id = rubrics.add(session, Rubric(criteria=(TRUE, HELPFUL)), name="r").id
            prompt_ids = [prompts.add(session, Prompt.of(question)).id for question, _ in cases]
            answers = (Completion(text=answer) for _, answer in cases)
            ids = completions.add_many(session, zip(prompt_ids, answers, strict=True))
            job_id = jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in ids]).id
            entries = [
                (id_, rubric_id, Label(criterion=key, annotator="dataset", value=float(met)))
                for id_, found in zip(ids, cases.values(), strict=True)
                for key, met in found.items()
            ]
            labels.add_many(session, entries, replace=True)
        with job_scorer(db, lambda note: None) as score_job:
            score_job(job_id)
            with db.write() as session:
                options: dict[str, Any] = {"objective": "verdicts", "templates": (template,), "generations": 3}
                number = evolving.start(session, "r", islands=2, children=4, **options).row.id
            EvolutionSearch(db, number, score_job).run()
        with db.read() as session:
            report = evolution_report(session, number)
        db.close()
    return report


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
    arguments.add_argument("--embedded", action="store_true")
    options = arguments.parse_args()
    if options.embedded:
        report = evolve_embedded(options.data)
        print_evolution(report)
        print(json.dumps({"embedded": row(report) | {"threshold": report.best and report.best.threshold}}))
        return
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
