"""A judge on everything that needs no training: held-out questions, sets that no recipe has, attacks, repeatability.

    python -m bench.bench_judge_training (--embedded | --adapter FOLDER | --judge-file FILE)
        [--config TOML] [--data FOLDER] [--only TEST …] [--scale 1.0] [--trained-only] [--json FILE]

The judge is asked as workers ask it. Each test has the rows of the baselines, fitted to the training part of the same
split where there is one, of the judge, and of its base, which is asked in the same way. ``--config`` is the judge's
training, whose split names what was not trained on: by default the recipe of the embedded judge. Prints Markdown, at
the end a table of what was asked and what was reached. ``--json`` writes the tables in the form of a passport, and
everything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from bench import judge_report
from bench.judge_sets import LONGEST, UNLABELLED
from bench.judge_tests import TESTS, JudgeTest, Recipe, Source, View
from recipes.embedded_judge.__main__ import RECIPE
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.core.audit import Audit, Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, Table
from rubricsvc.core.prompt import Completion
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import NotFoundError, UnavailableError
from rubricsvc.formats.documents import load_judges
from tests.conftest import SHARED
from trainer.judge_training import run as metrics
from trainer.judge_training.config import load_config
from trainer.judge_training.data import Question
from trainer.judge_training.run import BASE, baselines, criterion_text, overlap, verdicts
from workers.audit import cases, suites
from workers.audit.repeatability import measure as measure_repeatability
from workers.audit.runner import run as run_audit
from workers.audit.suites import AuditPlan
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter, with_adapter_fields

AUDIT, REPEATABILITY = "audit", "repeatability"


@dataclass
class Measured:
    """The result of one test: its tables, and what was left out or failed."""

    name: str
    tables: list[tuple[View, Table]] = field(default_factory=list)
    questions: int = 0
    too_long: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    answer_mass: float | None = None
    tokens: int = 0
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """Return all but the tables as plain data."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "tables"}

    @property
    def summary(self) -> str:
        """One line on the questions."""
        failed = ", ".join(f"{count} {reason}" for reason, count in self.failed.most_common()) or "none"
        mass = "n/a" if self.answer_mass is None else f"{self.answer_mass:.3f}"
        return (
            f"{self.name}: {self.questions} questions, failed: {failed}, completions too long: {self.too_long}, "
            f"mean answer mass {mass}, {self.seconds:.0f} s, {self.tokens / max(self.seconds, 1e-9):.0f} tokens/s"
        )


def progress(done: int, total: int, name: str) -> None:
    """Show how far a test is."""
    print(f"\r{name} {done}/{total}   ", end="\n" if done == total else "", file=sys.stderr, flush=True)


async def measure(engines: Mapping[str, tuple[Engine, Judge]], test: JudgeTest) -> Measured:
    """Ask the judges about the examples of a test and return its tables.

    A failed verdict counts as 0.5, as in a passport; those of the trained judge are counted.
    """
    answers = {name: await _asked(engine, judge, test, name) for name, (engine, judge) in engines.items()}
    given, seconds = answers[TRAINED]
    masses = [verdict.answer_mass for verdict in given if verdict.answer_mass is not None]
    usages = [verdict.usage for verdict in given if verdict.usage]
    questions = [(example, target) for example in test.test for target in example.targets]
    judged = {name: [_probability(one) for one in found] for name, (found, _) in answers.items()}
    scores = {**baseline_scores(test, questions), **judged}
    return Measured(
        test.name,
        tables=[(view, table(test, view, questions, scores)) for view in test.views],
        questions=len(given),
        too_long=test.left_out,
        failed=Counter(str(one.reason or one.outcome) for one in given if one.value is None),
        answer_mass=float(np.mean(masses)) if masses else None,
        tokens=sum(usage.prompt - (usage.cached or 0) + usage.completion for usage in usages),
        seconds=seconds,
    )


async def _asked(engine: Engine, judge: Judge, test: JudgeTest, name: str) -> tuple[list[Verdict], float]:
    """Return a judge's verdicts on all questions, and the seconds."""
    started = time.monotonic()
    found = await verdicts(engine, judge, test.test, lambda done, size, _: progress(done, size, f"{test.name}, {name}"))
    return [one for each in found for one in each], time.monotonic() - started


def _probability(verdict: Verdict) -> float:
    if verdict.value is None:
        return 0.5
    return verdict.best_probability if verdict.best_probability is not None else verdict.value


def baseline_scores(test: JudgeTest, questions: Sequence[Question]) -> dict[str, list[float]]:
    """Return the fitted baselines, or those that need no fitting where there is no training part."""
    train = [(example, target) for example in test.train for target in example.targets]
    if train and questions:
        return baselines(train, questions)
    longest = max((len(example.completion.text) for example, _ in questions), default=0) or 1
    majority = float(np.mean([target.value >= 0.5 for _, target in questions]) >= 0.5) if questions else 0.0
    return {
        "majority": [majority] * len(questions),
        "length, raw": [len(example.completion.text) / longest for example, _ in questions],
        "overlap, raw": [
            overlap(criterion_text(target.criterion), example.completion.text) for example, target in questions
        ],
        "prompt overlap, raw": [overlap(example.prompt.text, example.completion.text) for example, _ in questions],
    }


def table(test: JudgeTest, view: View, questions: Sequence[Question], scores: dict[str, list[float]]) -> Table:
    """Return the table of a view: rows of the whole, then of its parts."""
    places = [place for place, one in enumerate(questions) if view.keep(one)]
    kept = [questions[place] for place in places]
    part = {name: [values[place] for place in places] for name, values in scores.items()}
    rows = metrics.rows(kept, part)
    if view.by and kept:
        rows += metrics.rows(kept, part, by=view.by)
    return Table(name=view.name, description=test.about, measure=view.measure, rows=tuple(rows))


async def audited(engine: Engine, judge: Judge, source: Source, per_attack: int) -> Audit:
    """Return the audit of the judge by the built-in suites."""
    chosen = cases.built_in()[: source.size(len(cases.built_in()))]
    plan = AuditPlan(chosen, suites.built_in(), per_attack)
    return await run_audit(engine, judge, plan.adapted(judge), on_progress=progress)


async def repeated(engine: Engine, judge: Judge, source: Source) -> Repeatability:
    """Return how far verdicts differ when the built-in cases of the audit are judged three times."""
    rows = [(one.rubric, one.prompt, Completion(text=one.text)) for one in cases.built_in()[: source.size(24)]]
    source_name = "cases of the audit"
    return await measure_repeatability(
        engine, judge, rows, source=source_name, repeats=3, on_progress=lambda done, n, _: progress(done, n, "again")
    )


@dataclass
class Results:
    """Everything that was measured of one judge, and what was not, with the reason."""

    judge: Judge
    measured: list[Measured] = field(default_factory=list)
    audit: Audit | None = None
    repeatability: Repeatability | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> list[tuple[View, Table]]:
        """The tables of all tests."""
        return [pair for one in self.measured for pair in one.tables]

    @property
    def reached(self) -> list[judge_report.Reached]:
        """What was asked for, beside what was reached."""
        return list(judge_report.summary(TRAINED, self.tables, self.audit))

    def plain(self) -> dict[str, Any]:
        """Return the results as plain data; the tables are those of a passport."""
        models = {"judge": self.judge, "audit": self.audit, "repeatability": self.repeatability}
        return {
            **{name: model and model.model_dump(mode="json") for name, model in models.items()},
            "tables": [table.model_dump(mode="json") for _, table in self.tables],
            "reached": [asdict(one) for one in self.reached],
            "tests": [one.plain() for one in self.measured],
            "skipped": self.skipped,
        }


async def run(
    judges: Mapping[str, Judge], source: Source, results: Results, names: Sequence[str], per_attack: int
) -> None:
    """Measure the judges, and print each result when it is there; only the trained one is audited."""
    async with AsyncExitStack() as stack:
        engines = {
            name: (await stack.enter_async_context(aclosing(make_engine(judge))), judge)
            for name, judge in judges.items()
        }
        engine, judge = engines[TRAINED]
        for name in (name for name in names if name in TESTS):
            try:
                test = TESTS[name](source)
            except UnavailableError as error:
                results.skipped[name] = str(error)
                continue
            results.measured.append(await measure(engines, test))
            for _, one in results.measured[-1].tables:
                print("\n".join(judge_report.markdown(one)), flush=True)
            print(results.measured[-1].summary + "\n", flush=True)
        if AUDIT in names:
            results.audit = await audited(engine, judge, source, per_attack)
            print("\n".join(judge_report.audit_lines(results.audit)), flush=True)
        if REPEATABILITY in names:
            results.repeatability = await repeated(engine, judge, source)
            print(judge_report.repeatability_line(results.repeatability), flush=True)


def judges_of(options: argparse.Namespace) -> dict[str, Judge]:
    """Return the judge that the options name, after its base if it is an adapter."""
    if options.judge_file:
        judge = with_adapter_fields(load_judges(options.judge_file, _no_stored_judge)[-1])
    else:
        judge = judge_with_adapter(TRAINED, SHIPPED_ADAPTER if options.embedded else str(options.adapter))
    if options.trained_only or not judge.adapter:
        return {TRAINED: judge}
    return {UNTRAINED: judge.model_copy(update=BASE), TRAINED: judge}


def _no_stored_judge(name: str) -> Judge:
    raise NotFoundError(f"no judge {name!r} in the file", hint="write the members of a panel into the file")


def arguments() -> argparse.ArgumentParser:
    """Return the options."""
    names = [*TESTS, AUDIT, REPEATABILITY]
    parser = argparse.ArgumentParser(description="Measure a judge on everything that needs no training.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--embedded", action="store_true", help="The embedded model with the adapter of this package.")
    which.add_argument("--adapter", type=Path, help="Folder of an adapter that `judges train` wrote.")
    which.add_argument("--judge-file", type=Path, help="Judge file; its last judge is measured.")
    parser.add_argument("--trained-only", action="store_true", help="Leave out the base of an adapter.")
    parser.add_argument("--config", type=Path, default=RECIPE, help="The judge's training.")
    parser.add_argument("--data", type=Path, default=SHARED, help="Folder of the public sets.")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="TEST", help=", ".join(names))
    parser.add_argument("--scale", type=float, default=1.0, help="Size of all tests, relative to 2,500 questions.")
    parser.add_argument("--longest", type=int, default=LONGEST, help="Characters; longer completions are left out.")
    parser.add_argument("--per-attack", type=int, default=1, help="Completions for each attack of the audit.")
    parser.add_argument("--json", type=Path, help="File for all results.")
    return parser


def main() -> None:
    """Measure a judge."""
    options = arguments().parse_args()
    judges = judges_of(options)
    fetch_embedded(judges[TRAINED])
    source = Source(options.data, Recipe.of(load_config(options.config)), options.scale, options.longest)
    results = Results(judges[TRAINED])
    results.skipped.update(UNLABELLED)
    started = time.monotonic()
    asyncio.run(run(judges, source, results, options.only, options.per_attack))
    print()
    for name, reason in results.skipped.items():
        print(f"Not measured: {name}: {reason}.")
    questions = sum(one.questions for one in results.measured)
    print(f"{questions} questions and {time.monotonic() - started:.0f} s in all.\n")
    print("\n".join(judge_report.summary_lines(results.reached)))
    if options.json:
        options.json.write_text(json.dumps(results.plain(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
