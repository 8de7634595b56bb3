"""What each part of a judge's data adds: a short training with everything, and one without each part.

    python -m bench.bench_ablation --out FOLDER [--config TOML] [--steps 600] [--questions 60]

Every training has the same seed, the same number of steps and the same held-out completions, which are asked about as
workers do. Parts with small weights are left out together. As many trainings run at a time as there are cores, each
with one thread. The probabilities are stored in FOLDER/<left out>.json, and the next run with this folder and the same
options measures only what is missing. Prints a table of AUROC by data set.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NoReturn

import torch

from recipes.embedded_judge.__main__ import RECIPE
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.passport import Row
from trainer.judge_training import run
from trainer.judge_training.config import JudgeTrainConfig, load_config
from trainer.judge_training.data import Example, Prepared, Question, load_data, questions, sample
from trainer.judge_training.run import export, open_base, probabilities
from trainer.judge_training.training import encode, train

EVERYTHING = "nothing"
"""Left out of the training that has all data."""

SMALL_WEIGHT = 0.05
"""Parts with smaller weights are left out together: alone, each is within the noise of one seed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train without each part of the data, and print what it adds."""
    parser = argparse.ArgumentParser(description="Measure what each part of a judge's data adds.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of the results.")
    parser.add_argument("--config", type=Path, default=RECIPE, help="Configuration of the training.")
    parser.add_argument("--steps", type=int, default=600, help="Steps of each training.")
    parser.add_argument("--questions", type=int, default=60, help="Held-out completions of each data set.")
    options = parser.parse_args(arguments)
    config = shortened(load_config(options.config), options.steps)
    fetch_embedded(config.judge)
    prepared = load_data(config, no_store)
    test = held_out(prepared, options.questions)
    with ProcessPoolExecutor(
        os.cpu_count(), multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        futures = {
            name: pool.submit(measured, without(config, name, options.out / "trainings"), prepared, test)
            for name in (EVERYTHING, *parts(config, prepared))
        }
        scores = {name: future.result() for name, future in futures.items()}
    pairs = questions(test)
    for line in lines(pairs, scores):
        print(line)


def shortened(config: JudgeTrainConfig, steps: int) -> JudgeTrainConfig:
    """Return the training with fewer steps, and one validation at its end."""
    validation = config.validation.model_copy(update={"every": steps})
    return config.model_copy(update={"steps": steps, "checkpoint_every": steps, "validation": validation})


def without(config: JudgeTrainConfig, name: str, folder: Path) -> JudgeTrainConfig:
    """Return the training with the weight 0 for one part of its data, or several; the other shares grow."""
    names = name.split("+")
    data = [one.model_copy(update={"weight": 0.0}) if one.name in names else one for one in config.data]
    return config.model_copy(update={"data": tuple(data), "out": folder / name})


def parts(config: JudgeTrainConfig, prepared: Prepared) -> list[str]:
    """Return the names of the data that is there and has a weight, the largest first, small ones joined by ``+``."""
    present = [one for one in config.data if one.weight and not prepared.datasets[one.name].absent]
    large = [one for one in present if one.weight >= SMALL_WEIGHT]
    small = [one.name for one in present if one.weight < SMALL_WEIGHT]
    names = [one.name for one in sorted(large, key=lambda one: one.weight, reverse=True)]
    return [*names, "+".join(small)] if small else names


def held_out(prepared: Prepared, size: int) -> list[Example]:
    """Return ``size`` completions of each data set that are not trained on."""
    test = prepared.parts["test"]
    names = dict.fromkeys(one.source for one in test)
    return [one for name in names for one in sample([each for each in test if each.source == name], size)]


def measured(config: JudgeTrainConfig, prepared: Prepared, test: Sequence[Example]) -> list[float]:
    """Return the judge's probability of each question, stored beside the training's folder or after a training.

    A failed verdict counts as 0.5.
    """
    file = config.out.parent.parent / f"{config.out.name}.json"
    settings = digest("ingredients", config.model_dump_json(), [one.content for one in test])
    stored = json.loads(file.read_text()) if file.is_file() else {}
    if stored.get("settings") != settings:
        print(f"training without {config.out.name}", file=sys.stderr, flush=True)
        stored = {"settings": settings, "values": measure(config, prepared, test)}
        file.write_text(json.dumps(stored))
    return [0.5 if value is None else value for value in stored["values"]]


def measure(config: JudgeTrainConfig, prepared: Prepared, test: Sequence[Example]) -> list[float | None]:
    """Train, and return the judge's probability of each question."""
    shutil.rmtree(config.out, ignore_errors=True)  # of an interrupted run
    model, encoder = open_base(config)
    train(model, encode(prepared.datasets, prepared.parts, encoder, config), config)
    judge = export(model, config)
    return [value for each in probabilities(judge, test, may_fail=True) for value in each]


def lines(pairs: Sequence[Question], scores: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield a Markdown table: AUROC by data set of the training with everything, and the difference without a part."""
    auroc = {(row.part, row.scorer): _auroc(row) for row in run.rows(pairs, scores, by="source")}
    sets = list(dict.fromkeys(part for part, _ in auroc))
    yield "| left out | " + " | ".join(sets) + " | mean |"
    yield "|---|" + "--:|" * (len(sets) + 1)
    for name in scores:
        values = [auroc[one, name] - (auroc[one, EVERYTHING] if name != EVERYTHING else 0.0) for one in sets]
        sign = "" if name == EVERYTHING else "+"
        yield f"| {name} | " + " | ".join(f"{one:{sign}.3f}" for one in [*values, sum(values) / len(values)]) + " |"


def _auroc(row: Row) -> float:
    value = row.figures["auroc"].value
    return 0.5 if value is None else value


def no_store() -> NoReturn:
    """Refuse labels and verdicts of a database, which every machine has others of."""
    raise SystemExit("a recipe with labels or verdicts of the database cannot be measured")


if __name__ == "__main__":
    main()
