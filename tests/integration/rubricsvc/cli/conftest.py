"""The command line as a fixture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tests.letter_judge  # noqa: F401 - registers the engine "letters"
from tests.cli import Cli, add_judge, cli, new_machine, rubric_file

__all__ = ["Cli", "cli", "new_machine", "rubric_file"]


@pytest.fixture
def ready(cli: Cli, rubric_file: Path) -> Cli:
    """Store two rubrics, three completions (the third of a prompt without a rubric) and a judge."""
    stdin = "".join(
        json.dumps({"id": f"own{text}", "prompt": prompt, "text": text, "policy": policy}) + "\n"
        for prompt, text, policy in (
            ("What is one?", "1", "a"),
            ("What is two?", "2", "b"),
            ("What is three?", "3", "b"),
        )
    )
    assert cli("rubrics", "import", rubric_file).code == 0
    assert cli("completions", "import", "-", stdin=stdin).code == 0
    add_judge(cli)
    return cli
