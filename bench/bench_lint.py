"""Precision and recall of each rule of the linter on labelled criteria; see bench/lint_labels/README.md.

The labels of public data sets are divided by the SHA-256 of the text: the rules were tuned on one half (``tuned``) and
are reported on the other (``held out``). The criteria that were written for the rules (``own``) are always there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.lint_sets import Sample, samples
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.record import Entry, Location, read
from rubricsvc.lint import RULES, lint
from rubricsvc.stats.intervals import rate
from workers import checks

HERE = Path(__file__).parent / "lint_labels"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CHANGED = {"weight": {"sign", "absence"}, "append": {"unknown-placeholder", "mixed-scale", "dangling-reference"}}
"""The rules that count for a criterion that was changed, by what was changed."""
LABELLED = frozenset(
    {
        "absence",
        "dangling-reference",
        "double-negation",
        "mixed-scale",
        "near-duplicate",
        "scoring-instruction",
        "sign",
        "two-questions",
        "unknown-placeholder",
        "vague",
    }
)
"""The rules that every criterion of the data sets was read for."""


@dataclass(frozen=True)
class Case:
    """A criterion in its rubric, the rules that it breaks, and the rules that were looked at."""

    part: str
    rubric: Rubric
    key: str
    prompt: Prompt | None
    broken: frozenset[str]
    counted: frozenset[str]


def data_cases(root: Path) -> Iterator[Case]:
    """Yield the labelled criteria of the data sets; one whose text is another today is an error."""
    rows = [json.loads(line) for line in (HERE / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    wanted = {(row["set"], row["record"]) for row in rows}
    found: dict[tuple[str, str], Sample] = {
        (one.file, one.record): one for one in samples(root) if (one.file, one.record) in wanted
    }
    for row in rows:
        sample = found[row["set"], row["record"]]
        criterion = sample.rubric.criteria[row["criterion"]]
        digest = hashlib.sha256(criterion.text.encode()).hexdigest()
        if digest != row["sha256"]:
            raise ValueError(f"{row['set']} {row['record']} {row['criterion']}: another text than was labelled")
        part = "tuned" if digest[0] in "01234567" else "held out"
        rubric, counted = sample.rubric, LABELLED
        if change := row.get("change"):
            rubric, counted = _changed(criterion, change), frozenset(CHANGED[next(iter(change))])
        yield Case(part, rubric, criterion.key, sample.prompt, frozenset(row["rules"]), counted)


def _changed(criterion: Criterion, change: dict[str, Any]) -> Rubric:
    fields = {"text": criterion.text + change["append"]} if "append" in change else change
    return Rubric(criteria=(criterion.model_copy(update={**fields, "group": ()}),))


def own_cases() -> Iterator[Case]:
    """Yield the criteria that were written for the rules, and each rubric as a whole under the key ""."""
    every = frozenset(RULES)
    for data in yaml.safe_load_all((HERE / "own.yaml").read_text(encoding="utf-8")):
        breaks, whole = data.pop("breaks"), data.pop("rubric_breaks", ())
        (record,) = read(Entry(data, Location("own.yaml")))
        if record.rubric is None:
            raise ValueError(f"{record.name} has no criteria")
        for key in ("", *record.rubric.by_key):
            broken = frozenset(breaks.get(key, whole if not key else ()))
            yield Case("own", record.rubric, key, record.prompt, broken, every)


@cache
def _broken(rubric: Rubric, prompt: Prompt | None) -> dict[str, set[str]]:
    by_key: defaultdict[str, set[str]] = defaultdict(set)
    for finding in lint(rubric, prompt, empty_value=checks.value_of_empty):
        by_key[finding.criterion or ""].add(finding.rule)
    return by_key


def outcomes(cases: list[Case], rule: str) -> dict[str, int]:
    """Count true and false positives and negatives of a rule."""
    counts = {"tp": 0, "fp": 0, "fn": 0, "tn": 0}
    for case in cases:
        if rule in case.counted:
            found = rule in _broken(case.rubric, case.prompt).get(case.key, ())
            counts[("tp" if rule in case.broken else "fp") if found else ("fn" if rule in case.broken else "tn")] += 1
    return counts


def main() -> None:
    """Print the table, or the errors of a rule in the tuned half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--errors", metavar="RULE", help="list the errors of a rule in the tuned half")
    args = parser.parse_args()
    cases = [*own_cases(), *(data_cases(args.data) if args.data.is_dir() else ())]
    if args.errors:
        print_errors([case for case in cases if case.part != "held out"], args.errors)
    else:
        print_table(cases)


def print_errors(cases: list[Case], rule: str) -> None:
    """Print the criteria that a rule gets wrong."""
    for case in cases:
        found = rule in _broken(case.rubric, case.prompt).get(case.key, ())
        if rule in case.counted and found != (rule in case.broken):
            text = case.rubric.by_key[case.key].text if case.key else "(rubric)"
            print("false" if found else "missed", case.part, " ".join(text.split())[:300])


def print_table(cases: list[Case]) -> None:
    """Print counts, precision and recall of each rule: of each part, and of own and held-out criteria together."""
    for parts in (("own",), ("tuned",), ("held out",), ("own", "held out")):
        chosen = [case for case in cases if case.part in parts]
        print(f"\n{' and '.join(parts)}: {len(chosen)} criteria")
        print(f"{'rule':<20} {'found':>6} {'right':>6} {'broken':>6}  {'precision':<18}  recall")
        for rule in RULES:
            counts = outcomes(chosen, rule)
            hits, found, broken = counts["tp"], counts["tp"] + counts["fp"], counts["tp"] + counts["fn"]
            if found or broken:
                shares = f"{_share(hits, found):<18}  {_share(hits, broken)}"
                print(f"{rule:<20} {found:>6} {hits:>6} {broken:>6}  {shares}")


def _share(hits: int, of: int) -> str:
    measured = rate(hits, of)
    return "-" if measured.value is None else f"{measured.value:.2f} [{measured.low:.2f}, {measured.high:.2f}]"


if __name__ == "__main__":
    main()
