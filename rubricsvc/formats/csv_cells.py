"""Cells of CSV files: text that a spreadsheet would run as a formula is written as text."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"'*\s*[=+\-@\t\r\n＝＋－＠]")
"""Beginnings that make a spreadsheet take a cell for a formula (OWASP, CSV injection), quoted or not."""


def restored(cell: str) -> str:
    """Return the text that `neutralized` wrote into a cell; ``'-`` is left as it is, since texts may begin with it."""
    return cell[1:] if cell.startswith("'") and cell[1:2] != "-" and _FORMULA.match(cell) else cell


def restored_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the text of its cells."""
    return {name: restored(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def neutralized(value: Any) -> Any:
    """Return a text behind a single quote if a spreadsheet could take it for a formula; other values as they are."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
