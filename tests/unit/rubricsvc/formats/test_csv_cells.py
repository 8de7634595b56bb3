"""Text in CSV files that a spreadsheet would run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.formats.csv_cells import neutralized, restored


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "'=", "''@"])
def test_neutralized_prefixes_formulas(start: str) -> None:
    assert neutralized(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"


@pytest.mark.parametrize("value", ["text", "'quoted'", "1=1", "", " ", -1.5, 3, None])
def test_neutralized_keeps_other_text_and_numbers(value: object) -> None:
    assert neutralized(value) is value


@given(st.text(alphabet=st.sampled_from("'=+-@\t\ra1 ")))
def test_restored_reverses_neutralized(text: str) -> None:
    assert restored(neutralized(text)) == text
