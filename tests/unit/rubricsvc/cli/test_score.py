from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import Cli
from tests.scripted_server import error, labels, scripted_server


@pytest.mark.usefixtures("new_machine")
def test_a_completion_is_scored_without_a_database(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        args = ("score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", server.url)
        ran = cli(*args, "--model", "m", "--json", stdin="One.\n")
        table = cli(*args, "--model", "m", stdin="One.\n")
        asked = server.requests
    assert ran.code == 0, ran.err
    assert ran.json["reward"] == 0.0 and ran.json["coverage"] == 1.0 and ran.json["formula"] == "weighted_mean"
    assert ran.json["contributions"] == {"c1": 0.75, "c2": -0.75}
    assert [verdict["value"] for verdict in ran.json["verdicts"]] == [0.75, 0.75]
    assert "What is one?" in str(asked[0]) and "One." in str(asked[0])
    assert table.out.splitlines()[0].split() == ["CRITERION", "KIND", "WEIGHT", "VERDICT"]
    assert table.out.splitlines()[1].split() == ["c1", "judged", "1", "0.75"]
    assert "reward 0  (weighted_mean, coverage 100%)" in table.out
    assert not (tmp_path / "books").exists()


def test_no_reward_ends_with_1(cli: Cli, rubric_file: Path) -> None:
    with scripted_server(error(400, "no such model")) as server:
        args = ("score", "--rubric", rubric_file, "--name", "second", "--completion", "-", "--judge", server.url)
        ran = cli(*args, "--model", "m", "--json", stdin="")
        table = cli(*args, "--model", "m", stdin="")
    assert ran.code == 1
    assert ran.json["reward"] is None
    assert ran.json["verdicts"][0]["outcome"] == "failed" and ran.json["verdicts"][0]["reason"] == "refused"
    assert "reward -" in table.out and "no reward: judged share" in table.out and "no such model" in table.out
    assert table.out.splitlines()[0].split()[-1] == "WHY"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--name", "none"], "has 0 rubrics named 'none'"),
        ([], "has 2 rubrics, expected one"),
        (["--name", "first", "--completion", "none.txt"], "none.txt: No such file"),
    ],
)
def test_what_is_asked_must_be_clear(cli: Cli, rubric_file: Path, args: list[str], words: str) -> None:
    ran = cli(
        "score", "--rubric", rubric_file, "--judge", "http://127.0.0.1:9/v1", "--model", "m", "--completion", "-", *args
    )
    assert ran.code == 2, ran.err
    assert words in ran.err


def test_a_prompt_is_needed(cli: Cli, tmp_path: Path) -> None:
    rubric = tmp_path / "r.yaml"
    rubric.write_text("criteria: [a]\n")
    args = ("score", "--rubric", rubric, "--completion", "-", "--judge", "embedded")
    ran = cli(*args)
    assert ran.code == 2 and "has no prompt beside its rubric" in ran.err


def test_a_server_that_is_not_there(cli: Cli, rubric_file: Path) -> None:
    ran = cli(
        "score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", "http://127.0.0.1:9/v1"
    )
    assert ran.code == 3 and "does not answer" in ran.err and "start the model server" in ran.err


@pytest.mark.parametrize("url", ["http://[", "http://", "https://x:port/v1"])
def test_an_address_that_is_none(cli: Cli, rubric_file: Path, url: str) -> None:
    ran = cli("score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", url)
    assert ran.code == 2 and "--url: " in ran.err


@pytest.mark.parametrize("option", ["--completion", "--prompt"])
def test_an_empty_name_of_a_file(cli: Cli, rubric_file: Path, option: str) -> None:
    ran = cli("score", "--rubric", rubric_file, "--completion", "-", "--judge", "embedded", option, "")
    assert ran.code == 2 and f"error: {option} is empty" in ran.err


def test_a_judge_by_name_must_be_there(cli: Cli, rubric_file: Path) -> None:
    ran = cli("score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", "nobody")
    assert ran.code == 3 and "no judge 'nobody'" in ran.err


def test_what_the_formula_does_not_allow_is_no_reward(cli: Cli, tmp_path: Path) -> None:
    rubric = tmp_path / "r.yaml"
    rubric.write_text(
        "{prompt: Q, formula: healthbench, min_coverage: 0,"
        " criteria: [Is good., {text: Is x., weight: -1, check: {contains: {terms: [x]}}}]}\n"
    )
    with scripted_server(error(400)) as server:
        args = ("score", "--rubric", rubric, "--completion", "-", "--judge", server.url, "--model", "m", "--json")
        ran = cli(*args, stdin="x")
    assert ran.code == 1, ran.err
    assert ran.json["reward"] is None and "healthbench needs" in ran.json["null_reason"]


@pytest.mark.usefixtures("new_machine")
def test_a_rubric_of_checks_needs_no_judge(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    rubric = tmp_path / "r.yaml"
    rubric.write_text("{prompt: Q, criteria: [{text: Says x., check: {contains: {terms: [x]}}}]}\n")
    ran = cli("score", "--rubric", rubric, "--completion", "-", "--json", stdin="x")
    assert (ran.code, ran.json["reward"], ran.err) == (0, 1.0, "")
    ran = cli("score", "--rubric", rubric_file, "--name", "first", "--completion", "-", stdin="x")
    assert ran.code == 2 and "c1, c2: no check decides this, and no judge is named" in ran.err and "--judge" in ran.err
    assert not (tmp_path / "books").exists()


def test_a_mistyped_path_is_no_text(cli: Cli, rubric_file: Path) -> None:
    (rubric_file.parent / "r.yaml").write_text("criteria: [{text: Says x., check: {contains: {terms: [x]}}}]\n")
    ran = cli("score", "--rubric", "r.yaml", "--prompt", "no/such.txt", "--completion", "-", stdin="x")
    assert ran.code == 3 and "no file 'no/such.txt'" in ran.err and "stdin" in ran.err
