from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import InvalidError
from tests.made_passport import made_passport

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
