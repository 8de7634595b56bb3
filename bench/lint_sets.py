"""The rubrics of the public data sets as the linter's measurements read them, by file and record.

The sets that the service imports are read by their format. The others are read here field by field: what matters is
that a criterion is found again by (set, record, index) and has the text that was labelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.formats import InputFile, stream


@dataclass(frozen=True)
class Sample:
    """One rubric of a data set, with its prompt where it has one."""

    file: str
    record: str
    rubric: Rubric
    prompt: Prompt | None = None


def samples(root: Path) -> Iterator[Sample]:
    """Yield every rubric under the folder of data sets."""
    for pattern, read in READERS.items():
        for path in sorted(root.glob(pattern)):
            for record, rubric, prompt in read(path):
                yield Sample(str(path.relative_to(root)), record, rubric, prompt)


Rows = Iterator[tuple[str, Rubric, Prompt | None]]


def _imported(format: str | None = None) -> Callable[[Path], Rows]:
    def read(path: Path) -> Rows:
        file = path / "criteria.jsonl" if path.is_dir() else path
        for number, record in enumerate(stream(InputFile(file), format, skip_invalid=True)):
            if record.rubric is not None:
                yield record.id or str(number), record.rubric, record.prompt

    return read


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _rubric(texts: list[str], **fields: list[Any]) -> Rubric:
    rows = [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)] or [{}] * len(
        texts
    )
    criteria = [Criterion(key=f"c{n}", text=text, **row) for n, (text, row) in enumerate(zip(texts, rows, strict=True))]
    return Rubric(criteria=tuple(criteria))


def _ordinal(texts: dict[str, str]) -> Ordinal:
    last = len(texts) - 1
    levels = [Level(label=label, value=n / last, text=text) for n, (label, text) in enumerate(texts.items())]
    return Ordinal(levels=tuple(levels))


def _biggen(path: Path) -> Rows:
    for row in _lines(path):
        given = row["score_rubric"]
        scale = _ordinal({str(n): given[f"score{n}_description"] for n in range(1, 6)})
        yield (
            row["id"],
            _rubric([given["criteria"]], scale=[scale]),
            Prompt.of(row["input"], reference=row["reference_answer"]),
        )


def _writingbench(path: Path) -> Rows:
    for row in _lines(path):
        bands = ("1-2", "3-4", "5-6", "7-8", "9-10")
        scales = [_ordinal({band: one[band] for band in bands}) for one in row["checklist"]]
        texts = [one["criteria_description"] for one in row["checklist"]]
        yield str(row["index"]), _rubric(texts, scale=scales), Prompt.of(row["query"])


def _hellobench(path: Path) -> Rows:
    for row in _lines(path):
        yield row["id"], _rubric(row["checklists"]), Prompt.of(row["instruction"])


def _scholarqa(path: Path) -> Rows:
    for number, row in enumerate(_lines(path)):
        given = row["metric_config"]["config"]["other_properties"]
        rubric = _rubric([one["criterion"] for one in given], weight=[one["weight"] for one in given])
        yield str(number), rubric, Prompt.of(row["initial_prompt"])


def _nuggets(path: Path) -> Rows:
    row = json.loads(path.read_text(encoding="utf-8"))
    weights = [2.0 if one["importance"] == "vital" else 1.0 for one in row["nuggets"]]
    yield row["qid"], _rubric([one["text"] for one in row["nuggets"]], weight=weights), Prompt.of(row["query"])


READERS: dict[str, Callable[[Path], Rows]] = {
    "deep_research_bench": _imported(),
    "healthbench_val500/healthbench_val.jsonl": _imported(),
    "paperbench/rubrics/*.json": _imported(),
    "paperbench/human_graded/*.json": _imported(),
    "ifeval/input_data.jsonl": _imported(),
    "ifbench/IFBench_test.jsonl": _imported(),
    "biggen_bench/instances.jsonl": _biggen,
    "writingbench/*.jsonl": _writingbench,
    "hellobench/queries/*.jsonl": _hellobench,
    "scholarqabench/rubrics.jsonl": _scholarqa,
    "deepscholar_bench/gt_nuggets_outputs/*/res.json": _nuggets,
}
"""How each file of rubrics is read."""
