"""Examples of files with labels, and their duplicates."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.errors import InvalidError
from trainer.judge_training.data.files import examples_of_file
from trainer.judge_training.examples import merge


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def row(answer: str, asked: str, label: str) -> dict[str, Any]:
    return {"prompt": f"Q: Why is the sky blue?\nA: {answer}\n{asked}:", "completion": label}


def test_merge_joins_two_files_on_question_and_answer(tmp_path: Path) -> None:
    true = written(tmp_path / "truth.jsonl", row("Air scatters it.", "True", " yes"), row("Paint.", "True", " no"))
    helpful = written(tmp_path / "info.jsonl", row("Paint.", "Helpful", " yes"))
    merged = merge(chain(examples_of_file(true), examples_of_file(helpful)))
    got = [(e.completion.text, {t.criterion.key: t.value for t in e.targets}) for e in merged.examples]
    assert got == [("Air scatters it.", {"true": 1.0}), ("Paint.", {"true": 0.0, "helpful": 1.0})]
    assert {example.source for example in merged.examples} == {"truthfulqa"}


def test_merge_averages_contradictions_and_counts_duplicates(tmp_path: Path) -> None:
    labels = [row("Paint.", "True", label) for label in (" no", " yes", " no", " no")]
    merged = merge(examples_of_file(written(tmp_path / "truth.jsonl", *labels, row("Air.", "True", " yes"))))
    assert [example.targets[0].value for example in merged.examples] == [0.25, 1.0]
    assert (merged.duplicates, merged.contradictions) == (3, 1)


def test_examples_of_file_reads_each_persons_label(tmp_path: Path) -> None:
    record = {
        "prompt": "Why is the sky blue?",
        "criteria": [{"key": "a", "text": "Names air."}, {"key": "b", "text": "Is short.", "check": "max_words"}],
        "completions": [{"text": "Air.", "policy": "m"}],
        "labels": {"a": {"ann": True, "bob": False, "cy": None}, "overall": 0.5},
    }
    record["criteria"][1]["check"] = {"max_words": {"n": 5}}  # type: ignore[index]
    left_out = Counter[str]()
    (example,) = examples_of_file(written(tmp_path / "x.jsonl", record), source="mine", left_out=left_out)
    assert [target.value for target in example.targets] == [1.0, 0.0]
    assert (example.source, example.completion.policy) == ("mine", "m")
    assert left_out == {"null": 1, "overall": 1}


def test_examples_of_file_rejects_a_file_without_labels(tmp_path: Path) -> None:
    record = {"prompt": "Why?", "criteria": ["Is kind."], "completions": ["So."], "labels": {"c1": None}}
    with pytest.raises(InvalidError) as caught:
        list(examples_of_file(written(tmp_path / "x.jsonl", record)))
    assert caught.value.path == str(tmp_path / "x.jsonl") and "1 null" in caught.value.message


def test_examples_of_file_rejects_labels_of_a_stored_rubric(tmp_path: Path) -> None:
    record = {"prompt": "Why?", "rubric": "manners", "completions": ["So."], "labels": {"kind": True}}
    with pytest.raises(InvalidError) as caught:
        list(examples_of_file(written(tmp_path / "x.jsonl", record)))
    assert "manners" in caught.value.message


def test_merge_of_the_published_files_has_the_known_duplicates(shared_data: Path) -> None:
    folder = shared_data / "truthfulqa_human"
    truth, info = (list(examples_of_file(folder / f"finetune_{name}.jsonl")) for name in ("truth", "info"))
    merged = [merge(examples) for examples in (truth, info)]
    assert len(truth) == len(info) == 15_837
    assert [len(one.examples) for one in merged] == [12_936, 12_936]
    assert [(one.duplicates, one.contradictions) for one in merged] == [(2_901, 18), (2_901, 33)]
    both = merge(chain(truth, info))
    assert len(both.examples) == 12_936 and all(len(example.targets) == 2 for example in both.examples)
    assert len({example.split_group for example in both.examples}) == 576
