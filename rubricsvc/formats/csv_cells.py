"""Cells of CSV files: text that a spreadsheet would run as a formula is written as text."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""Beginnings that make a spreadsheet take a cell for a formula (OWASP, CSV injection), quoted or not."""


def neutralized(value: Any) -> Any:
    """Return a text behind a single quote if a spreadsheet could take it for a formula; other values as they are."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
