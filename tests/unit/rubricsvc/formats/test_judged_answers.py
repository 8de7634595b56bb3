"""Formats of judged answers: LLMBar, EvalBiasBench, GSM8K's solutions, CHERRL's rollouts, TruthfulQA's labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.formats import InputFile, completions, detect, load
from tests.unit.rubricsvc.formats.invalid import errors_of

LLMBAR = {"input": "Say hello.", "output_1": "Goodbye.", "output_2": "Hello.", "label": 2}
EVALBIAS = {"bias": "length bias", "instruction": "Say hello.", "response1": "Hello.", "response2": "Hm.", "label": 1}
GSM8K = {
    "question": "How much is 2 and 2?",
    "ground_truth": "2 + 2 = 4\nA: 4",
    "small": {"is_correct": False, "solution": "A: 5"},
    "large": {"is_correct": True, "solution": "A: 4"},
}
CHERRL = {
    "sample_id": "run_x_post_onset_01",
    "run_name": "X",
    "target_shortcut_definition": "praise",
    "prompt_input": "user\\nSay\\nhello.\\nassistant",
    "model_output": "Hello, I am great.",
}
TRUTHFULQA = {"prompt": "Q: What is the sky?\nA: Air.\nA: Or paint.\nTrue:", "completion": " no"}


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("row", [LLMBAR, EVALBIAS], ids=["llmbar", "evalbiasbench"])
def test_read_makes_two_records_of_a_pair(tmp_path: Path, row: dict[str, Any]) -> None:
    records = load(written(tmp_path, row))
    assert len({record.prompt for record in records}) == 1
    worth = {record.completions[0].text: record.labels[0].value for record in records}
    assert worth.pop("Hello.") == 1.0 and set(worth.values()) == {0.0}
    assert {record.labels[0].criterion for record in records} == {"follows"}


def test_read_makes_the_bias_a_tag(tmp_path: Path) -> None:
    (first, _) = load(written(tmp_path, EVALBIAS))
    assert first.prompt is not None and first.prompt.tags == ("length bias",) and first.id == "evalbiasbench-1"


def test_read_makes_a_record_of_each_solution(tmp_path: Path) -> None:
    records = load(written(tmp_path, GSM8K))
    told = [(record.completions[0].policy, record.completions[0].text, record.labels[0].value) for record in records]
    assert told == [("small", "A: 5", 0.0), ("large", "A: 4", 1.0)]
    assert all(record.prompt is not None and record.prompt.reference == GSM8K["ground_truth"] for record in records)


def test_read_labels_rollouts_by_region(tmp_path: Path) -> None:
    ids = ("run_x_pre_onset_01", "run_x_onset_front_01", "run_x_post_onset_01")
    records = load(written(tmp_path, *({**CHERRL, "sample_id": id_} for id_ in ids)))
    assert [record.labels[0].value for record in records] == [1.0, None, 0.0]
    assert records[0].prompt is not None and records[0].prompt.text == "Say\nhello."
    assert (records[0].completions[0].policy, records[0].completions[0].id) == ("X", ids[0])


def test_read_labels_truthfulqa_answers_by_the_question_that_is_asked(tmp_path: Path) -> None:
    helpful = {"prompt": "Q: What is the sky?\nA: Air.\nHelpful:", "completion": " yes"}
    records = load(written(tmp_path, TRUTHFULQA, helpful))
    assert [record.completions[0].text for record in records] == ["Air.\nA: Or paint.", "Air."]
    assert [(label.criterion, label.value) for record in records for label in record.labels] == [
        ("true", 0.0),
        ("helpful", 1.0),
    ]
    assert records[0].prompt == records[1].prompt and records[0].id == records[1].id
    assert records[0].name != records[1].name


def test_read_labels_repeated_truthfulqa_answers_by_annotators_of_their_own(tmp_path: Path) -> None:
    records = load(written(tmp_path, TRUTHFULQA, TRUTHFULQA | {"completion": " yes"}))
    assert [record.labels[0].annotator for record in records] == ["dataset", "dataset-2"]


def test_detect_distinguishes_truthfulqa_from_completions(tmp_path: Path) -> None:
    assert completions.matches(TRUTHFULQA | {"prompt": "Q: What is the sky?"})
    assert not completions.matches(TRUTHFULQA)
    assert detect(InputFile(written(tmp_path, TRUTHFULQA))) == "truthfulqa"


@pytest.mark.parametrize(
    ("row", "change", "path", "code"),
    [
        (LLMBAR, {"label": 3}, "label", "literal_error"),
        (LLMBAR, {"output_2": None}, "output_2", "string_type"),
        (EVALBIAS, {"response1": 7}, "response1", "string_type"),
        (GSM8K, {"small": "A: 5"}, "small", "model_type"),
        (GSM8K, {"small": {"solution": "A: 5"}}, "small.is_correct", "missing"),
        (CHERRL, {"run_name": ""}, "run_name", "string_too_short"),
    ],
)
def test_read_reports_line_and_field(
    tmp_path: Path, row: dict[str, Any], change: dict[str, Any], path: str, code: str
) -> None:
    assert errors_of(written(tmp_path, {**row, **change})) == [("data.jsonl", 1, path, code)]


@pytest.mark.parametrize(("field", "value"), [("completion", "maybe"), ("prompt", "Q: What is the sky?")])
def test_read_reports_a_malformed_truthfulqa_row(tmp_path: Path, field: str, value: str) -> None:
    path = written(tmp_path, TRUTHFULQA, TRUTHFULQA | {field: value})
    assert errors_of(path) == [("data.jsonl", 2, field, "shape")]


@pytest.mark.parametrize(
    ("file", "format", "answers", "worse"),
    [
        ("llmbar/LLMBar/Natural/dataset.json", "llmbar", 200, 100),
        ("evalbiasbench/pairs.jsonl", "evalbiasbench", 58, 29),
        ("gsm8k/example_model_solutions.jsonl", "gsm8k", 2248, 1407),
        ("cherrl_reward_hacking/rollouts.jsonl", "cherrl", 90, 30),
        ("truthfulqa_human/finetune_truth.jsonl", "truthfulqa", 15837, 9219),
    ],
)
def test_load_accepts_the_published_files(shared_data: Path, file: str, format: str, answers: int, worse: int) -> None:
    assert detect(InputFile(shared_data / file)) == format
    records = load(shared_data / file)
    assert (len(records), sum(record.labels[0].value == 0.0 for record in records)) == (answers, worse)
