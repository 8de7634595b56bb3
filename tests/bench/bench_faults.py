"""Planted faults: how many of them the shipped embedded judge catches under three presets, and its false alarms.

    python -m tests.bench.bench_faults [--untrained] [--presets advice …]

The examples and what they must get are in the presets; a rule plants the faults (`workers.authoring.faults.rules`). The
false alarms are good examples in which the judge sees the fault before it is planted; the verdicts on the bad examples
are printed beside. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

from rubricsvc import presets
from rubricsvc.cli.local_judges import embedded_judge
from rubricsvc.cli.models import ask
from rubricsvc.core.audit import Rate
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_test import ExampleTest, FaultReport
from rubricsvc.formats import InputFile, stream
from rubricsvc.stats.intervals import rate
from workers.authoring.faults.catching import catch_faults, fault_report
from workers.authoring.faults.rules import faults_by_rule, good_bases
from workers.authoring.rubric_tests import RubricTester
from workers.engines.base import Engine

FIELDS = ("caught", "false_alarms", "noticed")
PRESETS = ("advice", "code-review", "summary")


def rubric_of(name: str) -> Rubric:
    (record,) = stream(InputFile(f"{name}.yaml", stream=BytesIO(presets.text(name).encode())))
    assert record.rubric is not None
    return record.rubric


async def measure(judge: Judge, rubric: Rubric, engine: Engine) -> tuple[list[ExampleTest], FaultReport]:
    tester = RubricTester(engine, judge, rubric, None, on_done=lambda: print(".", end="", file=sys.stderr, flush=True))
    examples = await tester.run_examples(rubric.examples or ())
    bases = good_bases(rubric)
    faults = [fault for base in bases for fault in faults_by_rule(rubric, base)]
    return examples, fault_report(rubric, bases, await catch_faults(tester, faults), examples)


def pooled(rates: Sequence[Rate]) -> Rate:
    return rate(sum(one.hits for one in rates), sum(one.n for one in rates))


def shown(found: Rate) -> str:
    if found.value is None:
        return "–"
    return f"{found.hits} of {found.n}: {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--untrained", action="store_true")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    options = parser.parse_args()
    judge = embedded_judge("embedded", untrained=options.untrained)
    figures: dict[str, Any] = {}
    print(
        "| preset | criterion | decided by | caught | false alarms | verdicts as expected |\n|---|---|---|---|---|---|"
    )
    for name in options.presets:
        rubric = rubric_of(name)
        examples, report = ask(judge, partial(measure, judge, rubric))
        tests = [one for example in examples for one in example.verdicts]
        print(file=sys.stderr)
        for one in report.criteria:
            own = [test.passed for test in tests if test.criterion == one.criterion]
            kind = "check" if rubric.by_key[one.criterion].check else "judge"
            cells = map(shown, (one.caught, one.false_alarms, one.noticed, rate(own.count(True), len(own))))
            print(f"| {name} | `{one.criterion}` | {kind} | {' | '.join(cells)} |")
        judged = [key for key, one in rubric.by_key.items() if one.check is None]
        parts = [one for one in report.criteria if one.criterion in judged]
        caught, alarms, noticed = (pooled([getattr(one, field) for one in parts]) for field in FIELDS)
        passed = [one.passed for one in tests if one.criterion in judged]
        right = rate(passed.count(True), len(passed))
        print(f"| {name} | all judged | judge | {' | '.join(map(shown, (caught, alarms, noticed, right)))} |")
        figures[name] = {
            "caught": caught.model_dump(),
            "false_alarms": alarms.model_dump(),
            "noticed": noticed.model_dump(),
            "verdicts_as_expected": right.model_dump(),
            "criteria": [one.model_dump() for one in report.criteria],
        }
    print(json.dumps({"judge": judge.digest, "presets": figures}))


if __name__ == "__main__":
    main()
