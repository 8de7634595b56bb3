"""The walks of docs/architecture.md name functions that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| *\d+ \| (.*?) \| `([\w/]+\.py)` \|$", PAGE, re.M)


def test_architecture_has_all_walks() -> None:
    assert [len(re.findall(rf"^\| *{n} \|", PAGE, re.M)) for n in (1, 5, 13, 24)] == [3, 3, 3, 1]


def test_architecture_steps_name_definitions() -> None:
    for text, path in STEPS:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert re.findall(r"`(\w+)", text)[0] in {getattr(node, "name", None) for node in tree.body}, text


def test_architecture_names_rooms_that_exist() -> None:
    paths = set(re.findall(r"`((?:rubricsvc|workers|trainer|docs|migrations)/[\w/.]+)`", PAGE))
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []
