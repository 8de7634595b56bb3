"""Planted faults: how many of them the shipped embedded judge catches under three presets, and its false alarms.

    python -m bench.bench_faults [--untrained]

The examples and what they must get are in the presets; a rule plants the faults (`workers.authoring.planted_faults`).
The false alarms are good examples in which the judge sees the fault before it is planted; the verdicts on the bad ones
are printed beside. Last come rubrics of statements ("says that …", `fault_rubrics.yaml`), which the judge was trained
for. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from rubricsvc import presets
from rubricsvc.cli.models import ask, judge_from
from rubricsvc.core.audit import Rate
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import ExampleTest, FaultReport
from rubricsvc.formats import InputFile, load, stream
from rubricsvc.stats.intervals import rate
from workers.authoring.planted_faults import run_tests
from workers.engines.base import Engine
from workers.engines.local.embedded_model import EMBEDDED

FIELDS = ("caught", "false_alarms", "noticed", "verdicts_as_expected")
PROMPT = Prompt.of("What does the text say?")
"""That of examples without one."""
STATEMENTS = Path(__file__).with_name("fault_rubrics.yaml")
PRESETS = ("advice", "code-review", "summary")


def rubric_of(name: str) -> Rubric:
    (record,) = stream(InputFile(f"{name}.yaml", stream=BytesIO(presets.text(name).encode())))
    assert record.rubric is not None
    return record.rubric


def progress(_total: int, _what: str) -> Callable[[], None]:
    return lambda: print(".", end="", file=sys.stderr, flush=True)


async def measure(judge: Judge, rubric: Rubric, engine: Engine) -> Measured:
    found = await run_tests(engine, judge, rubric, PROMPT, progress, faults=True)
    assert found.faults is not None
    return Measured(rubric, found.examples, found.faults)


def pooled(rates: Sequence[Rate]) -> Rate:
    return rate(sum(one.hits for one in rates), sum(one.n for one in rates))


def shown(found: Rate) -> str:
    if found.value is None:
        return "–"
    return f"{found.hits} of {found.n}: {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


class Measured(NamedTuple):
    """One rubric with its examples and faults."""

    rubric: Rubric
    examples: tuple[ExampleTest, ...]
    report: FaultReport

    def rates(self, *, checked: bool) -> dict[str, tuple[Rate, ...]]:
        """Return by criterion what was caught, false alarms, what was noticed, and verdicts as expected."""
        tests = [one for example in self.examples for one in example.verdicts]
        found: dict[str, tuple[Rate, ...]] = {}
        for one in self.report.criteria:
            if (self.rubric.by_key[one.criterion].check is not None) == checked:
                own = [test.passed for test in tests if test.criterion == one.criterion]
                found[one.criterion] = (one.caught, one.false_alarms, one.noticed, rate(own.count(True), len(own)))
        return found


def print_row(*cells: str, rates: Sequence[Rate]) -> None:
    print(f"| {' | '.join([*cells, *map(shown, rates)])} |", flush=True)


def all_judged(measured: Sequence[Measured]) -> list[Rate]:
    columns = zip(*(rates for one in measured for rates in one.rates(checked=False).values()), strict=True)
    return [pooled(column) for column in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--untrained", action="store_true")
    options = parser.parse_args()
    bare = Judge(name="embedded", engine="transformers_local", model=EMBEDDED, min_answer_mass=0.1)
    judge = bare if options.untrained else judge_from("embedded", model=EMBEDDED)

    def measured(rubric: Rubric) -> Measured:
        return ask(judge, partial(measure, judge, rubric))

    print("| rubric | criterion | decided by | caught | false alarms | noticed | verdicts as expected |")
    print("|---|---|---|---|---|---|---|")
    figures: dict[str, Any] = {}
    for name in PRESETS:
        found = measured(rubric_of(name))
        for checked, kind in ((False, "judge"), (True, "check")):
            for key, rates in found.rates(checked=checked).items():
                print_row(name, f"`{key}`", kind, rates=rates)
        print_row(name, "all judged", "judge", rates=all_judged([found]))
        figures[name] = dict(zip(FIELDS, [one.model_dump() for one in all_judged([found])], strict=True))
    statements = [measured(record.rubric) for record in load(STATEMENTS) if record.rubric is not None]
    print_row("statements", "all judged", "judge", rates=all_judged(statements))
    figures["statements"] = dict(zip(FIELDS, [one.model_dump() for one in all_judged(statements)], strict=True))
    faults = [one for found in statements for one in found.report.faults]
    for kind in sorted({one.kind for one in faults}):
        own = [one.caught for one in faults if one.kind == kind]
        print_row("statements", f"faults: {kind}", "judge", rates=[rate(own.count(True), len(own))])
    print(json.dumps({"judge": judge.digest, **figures}))


if __name__ == "__main__":
    main()
