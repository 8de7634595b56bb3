"""Plain data as JSON."""

from __future__ import annotations

import math

import pytest

from rubricsvc.core import strict_json


def test_dump_writes_text_as_it_is_on_one_line() -> None:
    data = {"a": ["é\n\u2028", None, 0.1]}
    line = strict_json.dump(data)
    assert "é" in line and "\n" not in line and strict_json.parse(line) == data


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_dump_rejects_numbers_that_json_lacks(value: float) -> None:
    with pytest.raises(ValueError):
        strict_json.dump([value])
