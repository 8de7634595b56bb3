"""`rubricsvc rubrics analyse`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli import Cli, add_judge


def scored(cli: Cli, tmp_path: Path, completions: int = 40, prompts: int = 2) -> None:
    """A job over completions of some prompts, judged by a check and by the instant judge."""
    rubric = tmp_path / "rubric.yaml"
    checks = "{key: full, text: Has 10 words., check: {name: words, args: {min: 10}}}, " + (
        "{key: short, text: Has at most 40 characters., check: {name: characters, args: {max: 40}}}"
    )
    rubric.write_text(f"criteria: [{{key: clear, text: Is clear., weight: 2}}, {checks}]\n")
    answers = tmp_path / "answers.jsonl"
    lines = [
        {"prompt": f"Why {n % prompts}?", "text": f"Because of {n}. " + "More. " * (n % 10)} for n in range(completions)
    ]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    add_judge(cli)
    assert cli("rubrics", "import", rubric, "--name", "plain").code == 0
    ran = cli("jobs", "submit", answers, "--judge", "quick", "--rubric", "plain", "--wait")
    assert ran.code == 0, ran.err


def test_analyse_prints_a_table_and_json(cli: Cli, tmp_path: Path) -> None:
    scored(cli, tmp_path)
    ran = cli("rubrics", "analyse", "plain")
    assert (ran.code, "clear" in ran.out, "short" in ran.out) == (0, True, True), ran.err
    found = cli("rubrics", "analyse", "--job", 1, "--json").json
    assert (found["rubric"], found["judge"], found["completions"]) == ("plain@1", "quick", 40)
    assert [one["key"] for one in found["criteria"]] == ["clear", "full", "short"]


def test_fit_prints_weights_and_saves_a_draft(cli: Cli, tmp_path: Path) -> None:
    scored(cli, tmp_path, prompts=20)
    people = tmp_path / "people.jsonl"
    rows = [
        {
            "completion_id": n,
            "rubric": "plain@1",
            "criterion": "overall",
            "annotator": "ann",
            "value": 1 - (n - 1) % 10 / 10,
        }
        for n in range(1, 41)
    ]
    people.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("labels", "import", people).code == 0
    options = ("--to", "labels", "--resamples", 0)
    ran = cli("rubrics", "fit", "plain", *options)
    assert (ran.code, "short" in ran.out, "gain" in ran.out) == (0, True, True), ran.err
    found = cli("rubrics", "fit", "plain", *options, "--save", "--json").json
    assert (found["n"], found["prompts"], found["saved"]) == (40, 20, "plain@2")
    assert cli("rubrics", "show", "plain@2", "--json").json["state"] == "draft"
    assert cli("rubrics", "fit", "plain", "--to", "preferences").code == 2  # 20 pairs
