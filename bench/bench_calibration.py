"""From a model's nine answer distributions to a person's overall score, on LLM-Rubric's 223 real dialogues.

    python -m bench.bench_calibration [--data FOLDER] [--seeds N]

Pearson's r with people's scores, out of fold: ten folds of whole dialogues, the penalty chosen within the other nine.
The mean over ``seeds`` draws of the folds. The last line is JSON. The paper has 0.177 raw and 0.313 calibrated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

from rubricsvc.stats.overall import OverallFit, fit_overall
from tests import llm_rubric
from tests.conftest import SHARED

ROWS = {
    "judge": "the model's own overall score",
    "no_person": "regression, person unknown",
    "person_mean": "mean of the person",
    "person_offset": "regression, person's offset known",
}


def fit(dialogues: llm_rubric.Dialogues, *, seed: int, resamples: int = 0) -> OverallFit:
    return fit_overall(
        dialogues.columns,
        dialogues.distributions,
        dialogues.scores,
        dialogues.people,
        range(len(dialogues.scores)),
        judge_scores=dialogues.raw,
        resamples=resamples,
        seed=seed,
    )


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, default=SHARED)
    arguments.add_argument("--seeds", type=int, default=5)
    options = arguments.parse_args()
    dialogues = llm_rubric.read(options.data)
    fits = [fit(dialogues, seed=seed) for seed in range(options.seeds)]
    found = {name: [getattr(one, name).value for one in fits] for name in ROWS}
    for name, what in ROWS.items():
        print(f"{what:34}{fmean(found[name]):6.3f}   [{min(found[name]):.3f}, {max(found[name]):.3f}]")
    print(json.dumps({name: round(fmean(values), 4) for name, values in found.items()}))


if __name__ == "__main__":
    main()
