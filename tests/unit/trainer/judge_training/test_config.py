"""Which judges and mixtures a configuration may name, and what its page says of it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.config_page import DOCS, check_default, fields, kind, table_rows
from trainer.judge_training.config import FileData, JudgeTrainConfig, LabelData, QuestionData, VerdictData, load_config

JUDGE: dict[str, Any] = {"name": "j", "engine": "transformers_local", "model": "m"}
LABELS: dict[str, Any] = {"kind": "labels", "name": "people"}
CHECKS: dict[str, Any] = {"kind": "questions", "name": "made", "path": "made.jsonl"}
MEMBERS = [JUDGE, JUDGE | {"name": "k"}]


def config(judge: dict[str, Any], *data: dict[str, Any]) -> JudgeTrainConfig:
    return JudgeTrainConfig.model_validate({"judge": JUDGE | judge, "data": data, "out": "out"})


def test_config_refuses_judges_that_cannot_be_trained() -> None:
    cases = [
        {"mode": "comparative"},
        {"mode": "trajectory"},
        {"mode": "panel", "model": "", "members": MEMBERS},
        {"mode": "cascade", "model": "", "members": MEMBERS, "band": [0.2, 0.8]},
        {"engine": "openai_http"},
        {"adapter": "folder"},
        {"mode": "written"},
    ]
    for judge in cases:
        with pytest.raises(ValidationError) as caught:
            config(judge, LABELS)
        assert [error["loc"] for error in caught.value.errors()] == [("judge",)]


def test_config_needs_a_weight_and_different_names() -> None:
    for changes in [{"weight": 0}, {"name": "people", "weight": 1}]:
        with pytest.raises(ValidationError) as caught:
            config({}, LABELS | {"weight": 0}, CHECKS | changes)
        assert [error["loc"] for error in caught.value.errors()] == [("data",)]


@pytest.mark.parametrize(("model", "is_folder"), [("base", True), ("hub/name", False), ("embedded", False)])
def test_load_config_finds_the_models_folder_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, is_folder: bool
) -> None:
    for name in ("conf/base", "conf/embedded", "base"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "conf/mine.toml").write_text(
        f'judge = {{name = "j", engine = "transformers_local", model = "{model}"}}\n'
        'data = [{kind = "labels", name = "people"}]\n'
    )
    monkeypatch.chdir(tmp_path)
    loaded = load_config(Path("conf/mine.toml"))
    assert loaded.judge.model == (str(tmp_path / "conf/base") if is_folder else model)


ROWS = table_rows((DOCS / "judge-training.md").read_text(encoding="utf-8").partition("## Reference")[2])
INGREDIENTS = (FileData, QuestionData, LabelData, VerdictData)
FIELDS = dict(fields(JudgeTrainConfig, replaced={"judge": None, "data": None}))
OF_DATA = {
    f"data.{name}": field
    for name, field in chain.from_iterable(one.model_fields.items() for one in INGREDIENTS)
    if name not in ("kind", "license")
}


def test_page_lists_every_field() -> None:
    assert set(ROWS) == {*FIELDS, *OF_DATA, "judge", "data", "data.kind", "data.license"}
    assert all(meaning.strip() for *_, meaning in ROWS.values())


def test_page_has_types_and_defaults() -> None:
    for name, field in (FIELDS | OF_DATA).items():
        shown, default, _ = ROWS[name]
        assert shown == kind(field.annotation, field.metadata), name
        check_default(field, default, required="`judges/NAME`" if name == "out" else "required")


def test_page_lists_every_kind_of_data() -> None:
    kinds = [kind(one.model_fields["kind"].annotation, []) for one in INGREDIENTS]
    assert ROWS["data.kind"][0] == " or ".join(kinds)
