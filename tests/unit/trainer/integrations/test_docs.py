"""docs/integrations.md shows what there is."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

from trainer.integrations.trl import RubricReward

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "integrations.md").read_text(encoding="utf-8")


def test_integrations_page_lists_every_option_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", PAGE, re.M))
    options = inspect.signature(RubricReward).parameters.values()
    defaults = {one.name: one.default for one in options if one.kind is one.KEYWORD_ONLY}
    shown = {name: "unset" if value is None else str(value).removesuffix(".0") for name, value in defaults.items()}
    assert {name: value.strip('"') for name, value in rows.items()} == shown


def test_integrations_page_python_is_valid() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 3
    for block in blocks:
        ast.parse(block)


def test_integrations_import_no_trainer() -> None:
    code = "import sys, trainer.integrations.trl; print({'torch', 'trl', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
