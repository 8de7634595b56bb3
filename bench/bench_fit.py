"""Weights fitted to people's overall satisfaction, on LLM-Rubric's 223 real dialogues (arXiv 2501.00274).

    python -m bench.bench_fit [--data FOLDER] [--seeds N]

A rubric of the eight questions Q1 to Q8, or of all nine, whose verdicts are the expected levels of the answers'
distributions; `rubrics fit` predicts a person's overall score Q0 on held-out dialogues. Means over ``seeds`` draws of
ten folds. The last line is JSON.

Published for these dialogues: Pearson 0.177 for the model's own Q0 (the same figure as `raw Q0` here), and 0.313 for
the paper's calibration network. The network knows the person, takes all 36 probabilities and was trained on synthetic
dialogues too; a rubric's weights use the expected levels only, for a person on average.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy import stats

from bench import llm_rubric
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Numeric, Rubric
from rubricsvc.core.rubric_analysis import WeightFit
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.queries import FitQuery
from rubricsvc.services.analysing import fit
from rubricsvc.store import completions, jobs, judges, labels, leases, rubrics
from rubricsvc.store.session import Database
from tests.conftest import SHARED
from tests.databases import fresh_url
from tests.rows import item_result

EIGHT = [key for key in llm_rubric.QUESTIONS if key != llm_rubric.OVERALL]
VARIANTS: dict[str, tuple[Sequence[str], str]] = {
    "Q1-Q8": (EIGHT, "keep"),
    "Q1-Q8, any sign": (EIGHT, "free"),
    "Q0-Q8": (llm_rubric.QUESTIONS, "keep"),
    "Q0-Q8, any sign": (llm_rubric.QUESTIONS, "free"),
}
METRICS = ("pearson", "spearman")


def store(db: Database, dialogues: llm_rubric.Dialogues, keys: Sequence[str]) -> None:
    """The dialogues as a finished job with overall labels; each is a prompt of its own."""
    scale = Numeric(low=1, high=llm_rubric.LEVELS)
    rubric = Rubric(criteria=tuple(Criterion(key=key, text=f"Question {key}.", scale=scale) for key in keys))
    with db.write() as session:
        judge_id, rubric_id = (
            judges.add(session, Judge(name="gpt", model="gpt")).id,
            rubrics.add(session, rubric, name="r").id,
        )
        given = [completions.add_prompt(session, Prompt.of(f"Dialogue {n}")).id for n in range(len(dialogues.scores))]
        ids = completions.add_many(session, ((id_, Completion(text=f"Dialogue {id_}")) for id_ in given))
        jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in ids])
    values = dict(zip(ids, dialogues.expected, strict=True))
    with db.write() as session:
        for lease in leases.claim(session, judge_id, limit=len(ids), worker="w", seconds=60):
            assert isinstance(lease, leases.ScoringLease)
            by_key = dict(zip(llm_rubric.QUESTIONS, values[lease.completion_id], strict=True))
            leases.record(session, [item_result(lease, rubric, [Verdict.scored(key, by_key[key]) for key in keys])])
        people = zip(ids, dialogues.people, dialogues.scores, strict=True)
        labels.add_many(
            session, [(id_, rubric_id, Label(criterion="overall", annotator=one, value=v)) for id_, one, v in people]
        )


def fits(dialogues: llm_rubric.Dialogues, folder: Path, keys: Sequence[str], **options: Any) -> list[WeightFit]:
    seeds = options.pop("seeds")
    db = Database(fresh_url("sqlite", folder))
    store(db, dialogues, keys)
    with db.read() as session:
        query = FitQuery(to="labels", **options)
        found = [fit(session, "r", query, resamples=100, seed=seed) for seed in range(seeds)]
    db.close()
    return found


def raw(dialogues: llm_rubric.Dialogues) -> dict[str, float]:
    """The model's own overall answer beside people's."""
    return {
        "pearson": float(stats.pearsonr(dialogues.raw, dialogues.scores).statistic),
        "spearman": float(stats.spearmanr(dialogues.raw, dialogues.scores).statistic),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, default=SHARED)
    arguments.add_argument("--seeds", type=int, default=5)
    options = arguments.parse_args()
    dialogues = llm_rubric.read(options.data)
    rows = {"raw Q0": raw(dialogues)}
    for name, (keys, signs) in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = fits(dialogues, Path(folder), keys, seeds=options.seeds, signs=signs)
        for place, one in enumerate(found[0].held_out):
            if one.weights in ("fitted", "current"):
                each = [fit.held_out[place].metrics for fit in found]
                rows[f"{name}, {one.weights}"] = {
                    m: fmean(metrics[m].value or 0.0 for metrics in each) for m in METRICS
                }
        gain = found[0].gain["pearson"]
        print(f"{name}: fitted - current, pearson, seed 0: {gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}]")
        print("  " + "  ".join(f"{one.key} {one.new:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in found[0].weights))
    for name, row in rows.items():
        print(f"{name:30}" + "  ".join(f"{metric} {value:6.3f}" for metric, value in row.items()))
    print(json.dumps({name: {m: round(v, 4) for m, v in row.items()} for name, row in rows.items()}))


if __name__ == "__main__":
    main()
