"""Text in CSV files that a spreadsheet would run."""

from __future__ import annotations

import pytest

from rubricsvc.formats.input_file import neutralized


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "'=", "''@", " =", "\u00a0+"])
def test_neutralized_prefixes_formulas(start: str) -> None:
    assert neutralized(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"


@pytest.mark.parametrize("value", ["text", "'quoted'", "1=1", "", " ", -1.5, 3, None])
def test_neutralized_keeps_other_text_and_numbers(value: object) -> None:
    assert neutralized(value) is value
