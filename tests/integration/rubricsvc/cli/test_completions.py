"""`rubricsvc completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.cli import Cli


def lines(*records: Mapping[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_import_list_and_show(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    stdin = lines(
        {"prompt_id": "one", "completion": "1", "policy": "p", "step": 4},
        {"prompt": "What is two?", "text": "2", "policy": "q"},
        {"prompt": "What is three?", "text": ""},
    )
    ran = cli("completions", "import", "-", "--json", stdin=stdin)
    assert ran.code == 0
    assert ran.json["new"] == {"prompts": 1, "rubrics": 0, "completions": 3}
    assert cli("completions", "import", "-", "--json", stdin=stdin).json["new"]["completions"] == 0
    rows = cli("completions", "list", "--json").lines
    assert [(row["prompt_id"], row["completion"]["policy"], row["completion"]["text"]) for row in rows] == [
        (1, "p", "1"),
        (2, "q", "2"),
        (3, "", ""),
    ]
    assert [row["completion"]["text"] for row in cli("completions", "list", "--policy", "q", "--json").lines] == ["2"]
    assert [row["completion"]["text"] for row in cli("completions", "list", "--prompt", "one", "--json").lines] == ["1"]
    assert cli("completions", "show", rows[0]["id"], "--json").json["completion"]["step"] == 4


def test_import_lists_unknown_prompts_with_their_lines(cli: Cli) -> None:
    stdin = lines({"prompt": "Q", "text": "a"}, {"prompt_id": "none", "text": "b"}, {"prompt": "Q"})
    ran = cli("completions", "import", "-", stdin=stdin)
    assert ran.code == 2
    assert "<stdin>:2: prompt_id: " in ran.err and "<stdin>:3:" in ran.err
    assert cli("completions", "list", "--json").out == ""
    ran = cli("completions", "import", "-", "--skip-invalid", "--json", stdin=stdin)
    assert ran.code == 0 and ran.json["new"]["completions"] == 1 and len(ran.json["skipped"]) == 2
