"""The configuration of a run as fields by path."""

from __future__ import annotations

from rubricsvc.core.run_report import flat


def test_flat_leaves_out_what_is_not_set() -> None:
    config = {"steps": 2, "policy": {"model": "m"}, "judge": {"name": "j", "voting": None}, "eval": None, "store": []}
    assert dict(flat(config)) == {"steps": 2, "policy.model": "m", "judge.name": "j"}


def test_flat_numbers_tables_in_a_list() -> None:
    config = {"eval": {"judges": [{"name": "j"}, {"name": "k"}]}, "stages": [0.5, 1.0], "names": ["a"]}
    expected = {"eval.judges.0.name": "j", "eval.judges.1.name": "k", "stages": [0.5, 1.0], "names": ["a"]}
    assert dict(flat(config)) == expected
