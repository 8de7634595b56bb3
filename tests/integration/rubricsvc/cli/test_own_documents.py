"""The ten lines of docs/environments.md that train a policy on a folder of documents, as they stand there.

A tiny policy, a judge of letters and one step stand in for the sizes that take longer.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import tests.letter_judge  # noqa: F401 - registers the engine "letters"
from tests.cli import Cli
from tests.tiny_model import tiny_model

PAGE = Path(__file__).parents[4] / "docs" / "environments.md"
SMALLER = {
    "steps = 30": "steps = 1",
    "{steps = 16}": "{steps = 1}",
    "every = 10": "every = 1, samples = 1, greedy = false",
    'judge = "embedded"': 'judge = {name = "letters", engine = "letters", model = "m"}',
}
POLICY = """
policy = {model = "policy", dtype = "float32"}
sampling = {prompts_per_step = 1, group_size = 2, max_new_tokens = 8}
"""
DOCUMENTS = {
    "vacuum": "A vacuum removes dead tuples from a table. It runs beside an [index](index.md).",
    "index": "An index speeds up a query of a table. See also the [vacuum](vacuum.md) and the [table](table.md).",
    "table": "A table holds rows of the same columns. An [index](index.md) belongs to one table.",
    "query": "A query asks a table for its rows. An [index](index.md) makes the query faster.",
}


def test_ten_lines_train_on_a_folder_of_documents(cli: Cli, tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("in ten lines\n")[2].partition("\n## ")[0]
    (config,) = re.findall(r"```toml\n(.*?)```", section, re.S)
    (console,) = re.findall(r"```console\n(.*?)```", section, re.S)
    assert len([*config.splitlines(), *console.splitlines()]) == 10
    for shown, small in SMALLER.items():
        assert shown in config
        config = config.replace(shown, small)
    (tmp_path / "run.toml").write_text(POLICY + config)
    (tmp_path / "documents").mkdir()
    for name, text in DOCUMENTS.items():
        (tmp_path / "documents" / f"{name}.md").write_text(f"# {name.title()}\n\n{text}\n")
    tiny_model(tmp_path / "policy", context=4096)
    for line in console.splitlines():
        _, program, *arguments = shlex.split(line, comments=True)
        assert program == "rubricsvc"
        ran = cli(*arguments)
        assert ran.code == 0, f"{line}: {ran.err}"
    assert cli("runs", "show", "1", "--json").json["status"] == "finished"
    names = [line.get("baseline", line["step"]) for line in cli("runs", "evaluations", "1", "--json").lines]
    assert names == [0, 1, "before_demonstrations"]
