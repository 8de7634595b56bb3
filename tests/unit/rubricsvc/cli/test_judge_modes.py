"""`judges add` for judges that compare answers or follow an agent's steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import Cli
from tests.preference_engine import answers_in, scores
from tests.scripted_server import ScriptedReply, labels, scripted_server, text_reply

CALL = {"name": "search", "arguments": "{}"}


def prefers_greetings(_: int, body: dict[str, Any]) -> ScriptedReply:
    shown = answers_in(body["messages"][1]["content"])
    if body.get("logprobs"):
        return labels(A=0.9, B=0.1) if "Hello" in shown["A"] else labels(A=0.1, B=0.9)
    return text_reply(scores({letter: float("Hello" in text) for letter, text in shown.items()}))


@pytest.mark.parametrize(
    ("options", "kept", "said"),
    [
        ([], {"kind": "groupwise", "group_size": 8}, "1.00"),
        (["--compare", "groupwise", "--group-size", "4"], {"kind": "groupwise", "group_size": 4}, "1.00"),
        (["--compare", "pairwise", "--opponents", "3"], {"kind": "pairwise", "opponents": 3}, "0.90"),
        (["--compare", "pairwise", "--top-n", "1"], {"kind": "pairwise", "top_n": 1}, "1.00"),
    ],
)
def test_a_comparative_judge_is_asked_about_two_answers(
    cli: Cli, options: list[str], kept: dict[str, object], said: str
) -> None:
    with scripted_server(prefers_greetings) as server:
        ran = cli("judge", "add", "c", "--url", server.url, "--model", "m", "--mode", "comparative", *options)
    assert ran.code == 0, ran.err
    assert f"c answers: {said}" in ran.err
    comparison = cli("judge", "show", "c", "--json").json["judge"]["comparison"]
    assert kept.items() <= comparison.items()


def test_a_trajectory_judge(cli: Cli) -> None:
    add = ("judge", "add", "t", "--model", "m", "--mode", "trajectory", "--segment", 2, "--final", "last")
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        ran = cli(*add, "--url", server.url)
    assert ran.code == 0, ran.err
    assert "t answers: P(yes) 0.75" in ran.err
    kept = cli("judge", "show", "t", "--json").json["judge"]["trajectory"]
    assert kept == {"segment": 2, "value": "last", "written": False}


def test_writing_is_an_option_of_both(cli: Cli) -> None:
    add = ("judge", "add", "--model", "m", "--no-probe", "--written", "--thinking", 9)
    assert cli(*add, "pairs", "--mode", "comparative", "--compare", "pairwise").code == 0
    assert cli(*add, "steps", "--mode", "trajectory").code == 0
    assert [row["mode"] for row in cli("judge", "list", "--json").lines] == ["comparative", "trajectory"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--compare", "pairwise"], "--compare is for --mode comparative"),
        (["--top-n", "1"], "--top-n is for --mode comparative"),
        (["--mode", "trajectory", "--group-size", "4"], "--group-size is for --mode comparative"),
        (["--mode", "comparative", "--segment", "4"], "--segment is for --mode trajectory"),
        (["--mode", "written", "--final", "last"], "--final is for --mode trajectory"),
        (["--mode", "written", "--written"], "--written is for --mode comparative or trajectory"),
        (["--mode", "comparative", "--compare", "loud"], "--compare: expected 'pairwise' or 'groupwise'"),
        (["--mode", "comparative", "--group-size", "27"], "--group-size: expected a number at most 26"),
        (["--mode", "comparative", "--group-size", "1"], "--group-size: expected a number at least 2"),
        (["--mode", "comparative", "--opponents", "2"], "--compare: "),
        (["--mode", "trajectory", "--final", "best"], "--final: expected 'last', 'mean', "),
        (["--mode", "comparative", "--template", "readout"], "'readout' is not for a comparative judge"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_option(cli: Cli, options: list[str], words: str) -> None:
    ran = cli("judge", "add", "x", "--model", "m", "--no-probe", *options)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_score_takes_no_comparative_judge_for_one_answer(cli: Cli, tmp_path: Any) -> None:
    cli("judge", "add", "c", "--engine", "instant", "--model", "m", "--mode", "comparative", "--no-probe")
    (tmp_path / "r.yaml").write_text(json.dumps({"prompt": "Why?", "criteria": ["Says why."]}))
    (tmp_path / "a.txt").write_text("Because.")
    ran = cli("score", "--rubric", "r.yaml", "--completion", "a.txt", "--judge", "c")
    assert (ran.code, ran.out) == (2, "")  # before anything is asked
    assert "jobs submit" in ran.err


STEPS = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "1", "content": "hit"},
    {"role": "assistant", "content": "Because."},
]


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        (json.dumps(STEPS), 2),
        (json.dumps({"prompt": "Why?", "messages": STEPS}, indent=1), 2),
        ("\n".join(map(json.dumps, STEPS)), 2),
        (json.dumps(STEPS[-1]), 1),
    ],
)
def test_score_shows_a_trajectory_judge_the_steps(cli: Cli, tmp_path: Any, text: str, looks: int) -> None:
    (tmp_path / "r.yaml").write_text(json.dumps({"prompt": "Why?", "criteria": ["Makes progress."]}))
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        args = ("score", "--rubric", "r.yaml", "--judge", server.url, "--model", "m", "--mode", "trajectory")
        ran = cli(*args, "--completion", "-", "--json", stdin=text)
    assert ran.code == 0, ran.err
    assert [vote["by"] for vote in ran.json["verdicts"][0]["votes"]] == [f"step {n + 1}" for n in range(looks)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Because.", "holds no messages"),
        ("[]", "holds no messages"),
        ('{"text": "Because."}', "holds no messages"),
        ('[{"role": "assistant", "content": "a"},', "ends in the middle of a value"),
        ('[{"role": "tool", "content": "a"}]', "role: assistant"),
        ('[{"role": "robot", "content": "x"}]', "messages[0].role"),
    ],
)
def test_score_refuses_what_is_no_trace(cli: Cli, tmp_path: Any, text: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(json.dumps({"prompt": "Why?", "criteria": ["Makes progress."]}))
    cli("judge", "add", "t", "--engine", "instant", "--model", "m", "--mode", "trajectory", "--no-probe")
    ran = cli("score", "--rubric", "r.yaml", "--judge", "t", "--completion", "-", stdin=text)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
