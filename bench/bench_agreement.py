"""A judge on public data sets with labels: how far it agrees, and what calibration changes.

    python -m bench.bench_agreement [--data FOLDER] [--url URL --model NAME] [--only SET …]

Without ``--url`` the embedded model judges, untrained. Each set is sampled with a fixed seed. Calibration is fitted
to some prompts and measured on the others. Prints a Markdown table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import JudgedLabel, Label
from rubricsvc.errors import InvalidError
from rubricsvc.stats.agreement import agreement_report
from rubricsvc.stats.calibration_fit import calibrate
from rubricsvc.stats.reports import FittedFamily
from tests.conftest import SHARED
from workers.engines import make_engine
from workers.scoring import completions as scoring

LONGEST = 2000
"""Characters of a completion that is taken: the sets' longest ones take a small model on two cores minutes."""

AT_ONCE = 8


@dataclass(frozen=True)
class Case:
    """A completion and whether it truly meets the set's criterion."""

    prompt: str
    completion: str
    met: bool


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def truthfulqa(data: Path, file: str, mark: str) -> Iterator[Case]:
    for row in _lines(data / "truthfulqa_human" / file):
        question, answer = row["prompt"].removesuffix(f"\n{mark}:").removeprefix("Q: ").split("\nA: ", 1)
        yield Case(question, answer, row["completion"].strip() == "yes")


def gsm8k(data: Path) -> Iterator[Case]:
    for row in _lines(data / "gsm8k" / "example_model_solutions.jsonl"):
        for name, said in row.items():
            if name not in ("question", "ground_truth"):
                yield Case(row["question"], said["solution"], said["is_correct"])


def llmbar(data: Path, part: str) -> Iterator[Case]:
    for path in sorted((data / "llmbar" / "LLMBar" / part).rglob("dataset.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            for number in (1, 2):
                yield Case(row["input"], row[f"output_{number}"], row["label"] == number)


def ifbench(data: Path) -> Iterator[Case]:
    for row in _lines(data / "ifbench" / "eval_results_strict.jsonl"):
        yield Case(row["prompt"], row["response"], row["follow_all_instructions"])


@dataclass(frozen=True)
class Set:
    cases: Callable[[Path], Iterator[Case]]
    criterion: str
    size: int


SETS = {
    "TruthfulQA, true": Set(lambda d: truthfulqa(d, "finetune_truth.jsonl", "True"), "The answer is true.", 200),
    "TruthfulQA, helpful": Set(
        lambda d: truthfulqa(d, "finetune_info.jsonl", "Helpful"),
        "The answer is helpful: it answers the question.",
        200,
    ),
    "GSM8K, correct": Set(gsm8k, "The final number of the solution is the right one.", 100),
    "LLMBar natural, the better one": Set(
        lambda d: llmbar(d, "Natural"), "The answer does exactly what the instruction asks.", 100
    ),
    "LLMBar adversarial, the better one": Set(
        lambda d: llmbar(d, "Adversarial"), "The answer does exactly what the instruction asks.", 100
    ),
    "IFBench, all instructions": Set(ifbench, "The answer follows every instruction in the task to the letter.", 100),
}


def sample(cases: Iterator[Case], size: int) -> list[Case]:
    fitting = [case for case in cases if len(case.prompt) + len(case.completion) <= LONGEST]
    return random.Random(0).sample(fitting, min(size, len(fitting)))


async def judged(judge: Judge, criterion: Criterion, cases: Sequence[Case]) -> list[JudgedLabel]:
    rubric = Rubric(criteria=(criterion,))
    engine = make_engine(judge)
    rows: list[JudgedLabel] = []
    prompts = {case.prompt: number for number, case in enumerate(cases)}
    try:
        for at in range(0, len(cases), AT_ONCE):
            some = cases[at : at + AT_ONCE]
            scored = [
                scoring.score(engine, judge, rubric, Prompt.of(case.prompt), Completion(text=case.completion))
                for case in some
            ]
            for case, (verdict,) in zip(some, await asyncio.gather(*scored), strict=True):
                label = Label(criterion=criterion.key, annotator="data set", value=float(case.met))
                found = {criterion.key: verdict}
                rows.append(JudgedLabel(len(rows), prompts[case.prompt], 1, label, criterion, found))
    finally:
        await engine.aclose()
    return rows


def measure(judge: Judge, rows: Sequence[JudgedLabel]) -> dict[str, Any]:
    """The figures of one set. ``ece`` and ``brier`` are of all, ``before`` and ``after`` of the held-out prompts."""
    group = agreement_report(judge, rows).pooled
    names = ("accuracy", "weighted_kappa", "auroc", "ece", "brier")
    try:
        (fitted,) = calibrate(rows)
    except InvalidError as error:
        fitted = FittedFamily(family="binary", labels=len(rows), null_reason=str(error))
    return {
        "n": group.pairs,
        "left_out": group.excluded,
        "met": sum(row.label.value or 0.0 for row in rows) / len(rows),
        **{name: asdict(group.metrics[name]) for name in names},
        "method": fitted.curve.method if fitted.curve else fitted.null_reason,
        "before": fitted.before.model_dump() if fitted.before else None,
        "after": fitted.after.model_dump() if fitted.after else None,
    }


def line(name: str, found: dict[str, Any]) -> str:
    def figure(key: str) -> str:
        one = found[key]
        interval = f" [{one['low']:.2f}, {one['high']:.2f}]" if one["low"] is not None else ""
        return "n/a" if one["value"] is None else f"{one['value']:.2f}{interval}"

    def change(key: str) -> str:
        before, after = found["before"], found["after"]
        return f"{before[key]:.3f} → {after[key]:.3f}" if before and after else "n/a"

    cells = [name, found["n"], f"{found['met']:.2f}", figure("accuracy"), figure("weighted_kappa"), figure("auroc")]
    return "| " + " | ".join(map(str, [*cells, change("ece"), change("brier"), found["method"]])) + " |"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, default=SHARED)
    arguments.add_argument("--url")
    arguments.add_argument("--model", default="embedded")
    arguments.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    options = arguments.parse_args()
    engine = "openai_http" if options.url else "transformers_local"
    endpoint = Endpoint(base_url=options.url)
    judge = Judge(name=options.model, engine=engine, model=options.model, endpoint=endpoint, min_answer_mass=0.1)
    print("| data set, label | n | met | accuracy | kappa | AUROC | ECE, held out | Brier, held out | method |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    report: dict[str, Any] = {}
    for name in options.only:
        chosen = SETS[name]
        started = time.monotonic()
        cases = sample(chosen.cases(options.data), chosen.size)
        rows = asyncio.run(judged(judge, Criterion(key="c", text=chosen.criterion), cases))
        report[name] = measure(judge, rows) | {"seconds": round(time.monotonic() - started, 1)}
        print(line(name, report[name]), flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
