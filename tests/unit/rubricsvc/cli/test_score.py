"""``score`` without a database."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.scripted_server import ScriptedReply, labels, scripted_server


@pytest.mark.usefixtures("new_machine")
def test_score_works_without_a_database(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        args = ("score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", server.url)
        ran = cli(*args, "--model", "m", "--json", stdin="One.\n")
        table = cli(*args, "--model", "m", stdin="One.\n")
        requests = server.requests
    assert ran.code == 0, ran.err
    assert ran.json["reward"] == 0.0 and ran.json["coverage"] == 1.0 and ran.json["formula"] == "weighted_mean"
    assert ran.json["contributions"] == {"c1": 0.75, "c2": -0.75}
    assert [verdict["value"] for verdict in ran.json["verdicts"]] == [0.75, 0.75]
    assert "What is one?" in str(requests[0]) and "One." in str(requests[0])
    assert ["c1", "judged", "1", "0.75"] in [line.split() for line in table.out.splitlines()]
    assert not (tmp_path / "books").exists()


def test_score_refuses_missing_rubrics_and_files(cli: Cli, rubric_file: Path) -> None:
    judge = ("--judge", "http://127.0.0.1:9/v1", "--model", "m", "--completion", "-")
    for args, words in (
        (["--name", "none"], "'none'"),
        ([], "--name"),
        (["--name", "first", "--completion", "none.txt"], "none.txt"),
    ):
        ran = cli("score", "--rubric", rubric_file, *judge, *args)
        assert ran.code == 2 and words in ran.err, ran.err


def test_score_exits_with_3_for_an_unreachable_server(cli: Cli, rubric_file: Path) -> None:
    ran = cli(
        "score", "--rubric", rubric_file, "--name", "first", "--completion", "-", "--judge", "http://127.0.0.1:9/v1"
    )
    assert ran.code == 3 and "http://127.0.0.1:9/v1" in ran.err and "hint: " in ran.err


def test_score_compares_several_completions(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    def judge(number: int, body: dict[str, Any]) -> ScriptedReply:
        asked = str(body["messages"])
        if "rude" in asked and "Uno." in asked:
            return ScriptedReply("?", logprobs={"?": -0.01})
        return labels(Yes=0.75, No=0.25) if "Uno." in asked else labels(Yes=0.25, No=0.75)

    (tmp_path / "a.txt").write_text("Uno.")
    lines = tmp_path / "more.csv"
    lines.write_text("id,text,policy\n,Due.,mine\nlast,Tre.,\n")
    with scripted_server(judge) as server:
        args = ("score", "--rubric", rubric_file, "--name", "first", "--judge", server.url, "--model", "m")
        args = (*args, "--completion", "a.txt", "--completions", lines)
        ran, table = cli(*args, "--json"), cli(*args)
        lenient = cli(*args, "--min-coverage", 0.5, "--json")
    assert (ran.code, table.code, lenient.code) == (1, 1, 0)
    assert [line["name"] for line in ran.lines] == ["a.txt", "mine 1", "last"]
    assert [line["reward"] for line in ran.lines] == [None, 0.0, 0.0]
    assert [line["reward"] for line in lenient.lines] == [0.75, 0.0, 0.0]
    first = [line.split("  ")[0].strip() for line in table.out.splitlines()]
    assert first[:4] == ["NAME", "a.txt", "mine 1", "last"] and first.count("c2") == 3
    assert "coverage 0.5 < 1: no_answer ×1" in table.out


CALL = {"name": "search", "arguments": "{}"}
STEPS = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "1", "content": "hit"},
    {"role": "assistant", "content": "Because."},
]


def test_score_shows_a_trajectory_judge_the_steps(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(json.dumps({"prompt": "Why?", "criteria": ["Makes progress."]}))
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        args = ("score", "--rubric", "r.yaml", "--judge", server.url, "--model", "m", "--mode", "trajectory")
        for text, looks in (
            (json.dumps(STEPS), 2),
            (json.dumps({"prompt": "Why?", "messages": STEPS}, indent=1), 2),
            ("\n".join(map(json.dumps, STEPS)), 2),
            (json.dumps(STEPS[-1]), 1),
        ):
            ran = cli(*args, "--completion", "-", "--json", stdin=text)
            assert ran.code == 0, ran.err
            assert [vote["by"] for vote in ran.json["verdicts"][0]["votes"]] == [f"step {n + 1}" for n in range(looks)]
