"""`rubricsvc jobs export` with a judge that answers at once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.cli import Cli


def test_export_writes_each_format(ready: Cli, tmp_path: Path) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    lines = ready("jobs", "export", 1).lines
    assert [(line["prompt"], line["completion"]) for line in lines] == [("What is one?", "1"), ("What is two?", "2")]
    for name in ("rewards.parquet", "rewards.csv", "rewards.jsonl"):
        assert ready("jobs", "export", 1, "--out", tmp_path / name).code == 0
    assert parquet.read_table(tmp_path / "rewards.parquet").column("completion").to_pylist() == ["1", "2"]
    assert (tmp_path / "rewards.csv").read_text().startswith("job_id,")
    assert json.loads((tmp_path / "rewards.jsonl").read_text().splitlines()[0]) == lines[0]
    assert ready("jobs", "export", 1, "--format", "datasets", "--out", tmp_path / "set").code == 0
    assert parquet.read_table(tmp_path / "set" / "data").num_rows == 2
    again = ready("jobs", "export", 1, "--format", "datasets", "--out", tmp_path / "set")
    assert again.code == 2 and parquet.read_table(tmp_path / "set" / "data").num_rows == 2


@pytest.mark.parametrize("name", ["rewards.xlsx", "rewards.json", "rewards.jsonl.gz"])
def test_export_refuses_an_unknown_ending(ready: Cli, tmp_path: Path, name: str) -> None:
    assert ready("jobs", "submit", "--judge", "quick").code == 0
    for options in ((), ("--kind", "dpo")):
        ran = ready("jobs", "export", 1, "--out", tmp_path / name, *options)
        assert ran.code == 2 and ".parquet" in ran.err and not (tmp_path / name).exists()
    assert ready("jobs", "export", 1, "--out", tmp_path / name, "--format", "jsonl").code == 0
    assert len((tmp_path / name).read_text().splitlines()) == 2


def test_export_neutralizes_formulas_in_csv(ready: Cli) -> None:
    stdin = json.dumps({"id": "-1+1", "name": "=cmd", "prompt": "@SUM(A1)", "criteria": [{"key": "+k", "text": "=1"}]})
    ready("rubrics", "import", "-", stdin=stdin)
    hostile = {"prompt_id": "-1+1", "text": "\t=1", "policy": "=HYPERLINK(1)", "id": "@id"}
    assert ready("jobs", "submit", "-", "--judge", "quick", "--wait", stdin=json.dumps(hostile)).code == 0
    (row,) = csv.DictReader(ready("jobs", "export", 1, "--format", "csv").out.splitlines())
    assert not [value for value in row.values() if value and value[0] in "=+-@\t\r"]
    assert (row["policy"], row["prompt_external_id"], row["rubric"]) == ("'=HYPERLINK(1)", "'-1+1", "'=cmd@1")
    assert (row["completion_external_id"], row["prompt"]) == ("'@id", "'@SUM(A1)")
