"""`rubricsvc completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.formats import InputFile
from rubricsvc.services.importing import import_file
from rubricsvc.store import completions, prompts
from rubricsvc.store.session import Database
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
    assert [(row["prompt_id"], row["policy"], row["text"]) for row in rows] == [
        (1, "p", "1"),
        (2, "q", "2"),
        (3, "", ""),
    ]
    assert [row["text"] for row in cli("completions", "list", "--policy", "q", "--json").lines] == ["2"]
    assert [row["text"] for row in cli("completions", "list", "--prompt", "one", "--json").lines] == ["1"]
    assert cli("completions", "show", rows[0]["id"], "--json").json["completion"]["step"] == 4


def test_import_lists_unknown_prompts_with_their_lines(cli: Cli) -> None:
    stdin = lines({"prompt": "Q", "text": "a"}, {"prompt_id": "none", "text": "b"}, {"prompt": "Q"})
    ran = cli("completions", "import", "-", stdin=stdin)
    assert ran.code == 2
    assert "<stdin>:2: prompt_id: " in ran.err and "<stdin>:3:" in ran.err
    assert cli("completions", "list", "--json").out == ""
    ran = cli("completions", "import", "-", "--skip-invalid", "--json", stdin=stdin)
    assert ran.code == 0 and ran.json["new"]["completions"] == 1 and len(ran.json["skipped"]) == 2


def test_import_without_a_valid_completion_exits_with_2(cli: Cli) -> None:
    stdin = lines({"prompt_id": "none", "text": "b"})
    ran = cli("completions", "import", "-", "--skip-invalid", stdin=stdin)
    assert ran.code == 2 and "<stdin>:1: prompt_id" in ran.err


def test_import_finds_a_prompt_by_each_of_its_ids(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("- {id: x, prompt: Q., criteria: [a]}\n- {id: y, prompt: Q., criteria: [b]}\n")
    ran = cli("rubrics", "import", "r.yaml", "--json")
    assert ran.json["new"] == {"prompts": 1, "rubrics": 2, "completions": 0}
    stdin = lines({"prompt_id": "x", "text": "a"}, {"prompt_id": "y", "text": "b"})
    assert cli("completions", "import", "-", stdin=stdin).code == 0
    assert [row["prompt_id"] for row in cli("completions", "list", "--json").lines] == [1, 1]


def test_import_counts_all_skipped_errors(cli: Cli) -> None:
    stdin = lines({"prompt": "Q", "text": "a"}, *({"prompt": "Q"} for _ in range(1234)))
    ran = cli("completions", "import", "-", "--skip-invalid", "--json", stdin=stdin)
    assert ran.code == 0
    assert (len(ran.json["skipped"]), ran.json["skipped_count"]) == (1000, 1234)
    assert ran.err.count("\n") == 1001


def test_import_counts_only_its_own_rows(each_db: Database, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({"prompt": "Q", "text": "a"}, {"prompt": "Q", "text": "a"}, {"prompt": "R", "text": "b"}))
    with each_db.write() as session:
        with each_db.write() as another:
            prompt = prompts.add(another, Prompt.of("Another's"))
            completions.add(another, Completion(text="another's"), prompt.id)
        first = import_file(session, InputFile(path))
        again = import_file(session, InputFile(path))
    assert (first.new, again.existing) == ({"prompts": 2, "rubrics": 0, "completions": 2},) * 2
    assert (again.new, first.existing) == ({"prompts": 0, "rubrics": 0, "completions": 0},) * 2


def test_import_of_records_stores_no_rubrics(cli: Cli) -> None:
    line = {
        "prompt_id": "h",
        "prompt": [{"role": "user", "content": "x"}],
        "rubrics": [{"criterion": "c", "points": 1}],
        "completion": "y",
    }
    ran = cli("completions", "import", "-", "--json", stdin=lines(line))
    assert ran.json["new"] == {"prompts": 1, "rubrics": 0, "completions": 1}


def test_list_and_show_replace_control_characters(cli: Cli) -> None:
    cli("completions", "import", "-", stdin=lines({"prompt": "Q", "text": "a\x1b[2Jb"}))
    for ran in (cli("completions", "list"), cli("completions", "show", 1)):
        assert ran.code == 0 and "\x1b" not in ran.out


def test_import_resolves_text_ids_before_numbers(cli: Cli, tmp_path: Path) -> None:
    rubrics = "- {id: 2, prompt: First., criteria: [a]}\n- {id: x, prompt: Second., criteria: [a]}\n"
    (tmp_path / "r.yaml").write_text(rubrics)
    cli("rubrics", "import", "r.yaml")
    answers = [{"prompt_id": "2", "text": "a"}, {"prompt_id": 2, "text": "b"}, {"prompt_id": "1", "text": "c"}]
    assert cli("completions", "import", "-", stdin=lines(*answers)).code == 0
    rows = cli("completions", "list", "--json").lines
    assert [(row["prompt_id"], row["text"]) for row in rows] == [(1, "a"), (2, "b"), (1, "c")]
    for ref in (10**30, "9" * 30):
        ran = cli("completions", "import", "-", stdin=lines({"prompt_id": ref, "text": "d"}))
        assert ran.code == 2 and "no prompt" in ran.err
