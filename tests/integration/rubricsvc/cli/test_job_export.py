"""`rubricsvc jobs export` with a judge that answers at once."""

from __future__ import annotations

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
