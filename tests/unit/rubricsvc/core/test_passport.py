from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Ablation, Figure, Measure, Passport, Row, Table
from rubricsvc.errors import InvalidError
from tests.made_passport import WEIGHTS, made_passport

READOUT: dict[str, Any] = {"name": "j", "engine": "transformers_local", "model": "m"}


def test_passport_survives_json() -> None:
    passport = made_passport()
    assert Passport.model_validate_json(passport.model_dump_json()) == passport


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"version": 2}, ("version",)),
        ({"weights_sha256": "ad"}, ("weights_sha256",)),
        ({"judge": "j"}, ("judge",)),
        ({"description": "\0"}, ("description",)),
    ],
)
def test_passport_rejects_other_fields(change: dict[str, object], path: tuple[str, ...]) -> None:
    data = json.loads(made_passport().model_dump_json()) | change
    with pytest.raises(ValidationError) as caught:
        Passport.model_validate_json(json.dumps(data))
    assert [error["loc"] for error in caught.value.errors()] == [path]


def test_check_judge_accepts_its_judge() -> None:
    made_passport().check_judge(Judge(**READOUT))
    made_passport().check_judge(Judge(**READOUT, template="readout", weights_sha256=WEIGHTS))


@pytest.mark.parametrize(
    "judge",
    [
        Judge(**READOUT, weights_sha256="0" * 64),
        Judge(**READOUT, template="readout_short"),
        Judge(**READOUT | {"mode": "written"}),
        Judge(name="p", mode="panel", members=(Judge(name="a", model="m"), Judge(name="b", model="m"))),
    ],
    ids=["weights", "template", "mode", "panel"],
)
def test_check_judge_rejects_another_judge(judge: Judge) -> None:
    with pytest.raises(InvalidError) as caught:
        made_passport().check_judge(judge)
    assert caught.value.path == "passport"


def row(scorer: str, value: float | None, part: str = "") -> Row:
    figure = Figure(value=value)
    return Row(scorer=scorer, part=part, n=9, positives=4, figures={"auroc": figure, "brier": figure})


def test_table_finds_the_judge_and_the_best_baseline_of_the_whole_set() -> None:
    rows = (row("length", 0.6), row("overlap", 0.7), row("none", None), row("untrained", 0.8), row("trained", 0.9))
    table = Table(name="t", rows=(*rows, row("length", 0.99, "part"), row("trained", 0.1, "part")))
    assert table.trained == row("trained", 0.9) and table.best_baseline == row("overlap", 0.7)
    assert table.model_copy(update={"measure": "brier"}).best_baseline == row("length", 0.6)
    (part,) = table.parts
    assert (part.name, part.whole) == ("part", [row("length", 0.99), row("trained", 0.1)])
    empty = Table(name="t", rows=())
    assert empty.trained is None and empty.best_baseline is None


def test_ablation_gain_is_positive_if_the_part_helps() -> None:
    def gain(measure: str, complete: float | None) -> float | None:
        figures = {"complete": Figure(value=complete), "without": Figure(value=0.25)}
        return Ablation.model_validate({"left_out": "a", "table": "t", "measure": measure, **figures}).gain

    assert (gain("auroc", 0.75), gain("brier", 0.125), gain("auroc", None)) == (0.5, 0.125, None)


@pytest.mark.parametrize(
    ("measure", "trained", "expected"),
    [("auroc", 0.8, True), ("auroc", 0.7, False), ("brier", 0.6, True), ("brier", 0.8, False), ("auroc", None, None)],
)
def test_beats_baselines_compares_with_the_best_one(
    measure: Measure, trained: float | None, expected: bool | None
) -> None:
    values = {"length": 0.7, "overlap": 0.7, "untrained": 0.9, "trained": trained}
    rows = [Row(scorer=name, n=9, positives=4, figures={measure: Figure(value=v)}) for name, v in values.items()]
    assert Table(name="t", measure=measure, rows=tuple(rows)).beats_baselines is expected
