from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.label import Label
from rubricsvc.core.reward import reward
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import load
from tests.unit.rubricsvc.formats.invalid import errors_of

EXAMPLE: dict[str, Any] = {
    "prompt_id": "p-1",
    "prompt": [{"role": "user", "content": "My head hurts."}, {"role": "assistant", "content": "Since when?"}],
    "example_tags": ["theme:pain"],
    "canary": "canary-1",
    "rubrics": [
        {"criterion": "Asks about fever.", "points": 10, "tags": ["level:example", "axis:accuracy"]},
        {"criterion": "Names a specialist.", "points": 5, "tags": ["axis:completeness"]},
        {"criterion": "Diagnoses at once.", "points": -8, "tags": []},
        {"criterion": "Asks about fever.", "points": 1, "tags": ["axis:accuracy"]},
    ],
}


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "hb.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_read_makes_a_rubric_with_signed_weights(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, EXAMPLE))
    assert record.id == "p-1" and record.name == "healthbench-p-1"
    assert record.prompt is not None and [m.role for m in record.prompt.messages] == ["user", "assistant"]
    assert record.prompt.tags == ("theme:pain", "canary:canary-1")
    assert record.rubric is not None and record.rubric.formula == "healthbench"
    assert [criterion.weight for criterion in record.rubric.criteria] == [10, 5, -8, 1]


def test_read_makes_unique_keys_independent_of_position(tmp_path: Path) -> None:
    (first,) = load(write(tmp_path, EXAMPLE))
    (turned,) = load(write(tmp_path, {**EXAMPLE, "rubrics": EXAMPLE["rubrics"][1:3]}))
    assert first.rubric is not None and turned.rubric is not None
    keys = [criterion.key for criterion in first.rubric.criteria]
    assert len(set(keys)) == 4
    assert keys[3] == f"{keys[0]}-2" and keys[0].startswith("accuracy-")
    assert [criterion.key for criterion in turned.rubric.criteria] == keys[1:3]


def test_read_gives_the_reference_reward(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, {**EXAMPLE, "rubrics": EXAMPLE["rubrics"][:3]}))
    assert record.rubric is not None
    values = zip(record.rubric.criteria, (1.0, 0.0, 1.0), strict=True)
    found = reward(record.rubric, [Verdict.scored(criterion.key, value) for criterion, value in values])
    assert found.value == pytest.approx(2 / 15)


def test_read_yields_completions_of_all_kinds(tmp_path: Path) -> None:
    ideal = {"ideal_completion": "Best.", "ideal_completions_ref_completions": ["One.", "Two."]}
    (record,) = load(write(tmp_path, {**EXAMPLE, "completion": "Mine.", "ideal_completions_data": ideal}))
    found = [(completion.text, completion.policy) for completion in record.completions]
    assert found == [("Mine.", ""), ("Best.", "physician"), ("One.", "reference"), ("Two.", "reference")]


META: dict[str, Any] = {
    "prompt_id": "p-2",
    "prompt": [{"role": "user", "content": "x"}],
    "completion": "y",
    "completion_id": "c-1",
    "rubric": "Is careful.",
    "category": "cluster:hedging",
    "binary_labels": [True, False],
    "anonymized_physician_ids": ["a", "b"],
}


def test_read_names_rubrics_by_prompt_and_criterion(tmp_path: Path) -> None:
    records = load(write(tmp_path, META, {**META, "completion": "z"}, {**META, "prompt_id": "p-3"}))
    names = [record.name for record in records]
    assert names[0] == names[1] != names[2]
    assert [name.rpartition("-criterion-")[0] for name in names[1:]] == ["healthbench-meta-p-2", "healthbench-meta-p-3"]


def test_read_makes_labels_of_the_meta_evaluation(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, META))
    assert record.rubric is not None
    (criterion,) = record.rubric.criteria
    assert record.completions[0].id == "c-1"
    assert record.labels == (
        Label(criterion=criterion.key, annotator="a", value=1.0),
        Label(criterion=criterion.key, annotator="b", value=0.0),
    )


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"rubrics": []}, "rubrics", "too_short"),
        ({"rubrics": [{"criterion": "a", "points": "5"}]}, "rubrics[0].points", "float_type"),
        ({"rubrics": [{"criterion": "a"}]}, "rubrics[0].points", "missing"),
        ({"rubrics": [{"criterion": "a", "points": 0}]}, "", "value_error"),
        ({"rubrics": [{"criterion": "a", "points": -1}]}, "formula", "formula"),
        ({"prompt": "x"}, "prompt", "tuple_type"),
        ({"prompt": [{"role": "doctor", "content": "x"}]}, "prompt[0].role", "literal_error"),
        ({"prompt_id": 7}, "prompt_id", "string_type"),
    ],
)
def test_read_reports_line_and_field(tmp_path: Path, change: dict[str, Any], path: str, code: str) -> None:
    assert errors_of(write(tmp_path, EXAMPLE, {**EXAMPLE, **change})) == [("hb.jsonl", 2, path, code)]


def test_read_accepts_the_published_file(shared_data: Path) -> None:
    records = load(shared_data / "healthbench_val500" / "healthbench_val.jsonl")
    criteria = [criterion for record in records if record.rubric for criterion in record.rubric.criteria]
    assert len(records) == 257
    assert len(criteria) == 2989
    assert min(criterion.weight for criterion in criteria) == -10
    assert max(criterion.weight for criterion in criteria) == 10
