"""docs/judge-training.md lists every field of the configuration, with its type and default."""

from __future__ import annotations

from itertools import chain

from tests.config_page import DOCS, check_default, fields, kind, table_rows
from trainer.judge_training.config import FileData, JudgeTrainConfig, LabelData, QuestionData, VerdictData

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
