"""The samples of docs/judges.md, of replies and servers' responses, in its tables of what is accepted and refused."""

import json
import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "judges.md").read_text(encoding="utf-8")
_SECTION = PAGE.partition("\n## What is accepted and what is refused\n")[2].partition("\n## ")[0]
_VERDICT = re.compile(r"(?<!\w)([VW])(\d?)(?!\w)(\{[^{}]*\})?")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
COMPLETION, _V = re.findall(r"`(First.*?|\{\"criterion\".*?\})`", _SECTION.partition("`V{")[0])[::-1]


def rows(header: str) -> list[list[str]]:
    """Return the cells of each row of the table whose header begins so."""
    lines = _SECTION.split(f"\n| {header}")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def spans(cell: str) -> list[str]:
    """Return the texts in backticks of a cell, with the line ends and marks that they stand for."""
    texts = [span[2].strip() for span in _SPAN.finditer(cell)]
    return [text.replace(r"\|", "|").replace("⏎", "\n").replace("<BOM>", "\ufeff") for text in texts]


def with_verdicts(text: str) -> str:
    """Return a sample with the JSON objects that V and W stand for."""

    def written(found: re.Match[str]) -> str:
        letter, number, fields = found.groups()
        verdict = json.loads(_V) | {"criterion": f"C{number or 1}"} | ({"verdict": "not_met"} if letter == "W" else {})
        return json.dumps(verdict | json.loads(fields or "{}"))

    return _VERDICT.sub(written, text)
