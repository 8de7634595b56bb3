from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.scripted_server import ScriptedReply, error, instant, labels, scripted_server
from tests.services import free_port
from tests.tiny_model import tiny_model


def test_a_judge_is_asked_before_it_is_kept(cli: Cli) -> None:
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        ran = cli("judge", "add", "good", "--url", server.url, "--model", "m", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["name"] == "good" and "good answers: P(yes) 0.75\n" in ran.err
    assert cli("judge", "show", "good", "--json").json["judge"]["endpoint"]["base_url"] == server.url
    assert [row["name"] for row in cli("judge", "list", "--json").lines] == ["good"]


@pytest.mark.parametrize(
    ("answer", "reason", "hint"),
    [
        (error(401, "no key"), "refused", "--api-key-env"),
        (ScriptedReply("Yes"), "no_logprobs", "--mode written was tried and failed: unparseable"),
        (error(403, "You are not allowed to request logprobs from this model"), "no_logprobs", "no log-probabilities"),
        (error(404, "The model `m` does not exist."), "refused", "the server has no model 'm'; it has scripted"),
        (error(400, "unknown model"), "refused", "the server has no model 'm'; it has scripted"),
    ],
)
def test_one_that_does_not_answer_is_not_kept(cli: Cli, answer: ScriptedReply, reason: str, hint: str) -> None:
    with scripted_server(answer) as server:
        ran = cli("judge", "add", "bad", "--url", server.url, "--model", "m")
        assert ran.code == 3
        assert f"it does not answer: {reason}" in ran.err and hint in ran.err
        assert cli("judge", "list", "--json").out == ""
        assert cli("judge", "add", "bad", "--url", server.url, "--model", "m", "--no-probe").code == 0


def test_modes_that_work_without_probabilities_are_told(cli: Cli) -> None:
    def script(number: int, body: dict[str, Any]) -> ScriptedReply:
        if body.get("logprobs"):
            return error(400, "logprobs are not supported with reasoning models")
        return instant(number, body)

    with scripted_server(script) as server:
        add = ("judge", "add", "r", "--url", server.url, "--model", "m")
        ran = cli(*add)
        assert ran.code == 3 and "--mode written was tried and works" in ran.err
        assert cli(*add, "--mode", "written").code == 0


LOCAL = ("--model", "m", "--engine", "transformers_local")


def test_a_name_stands_for_one_judge(cli: Cli) -> None:
    add = ("judge", "add", "x", "--no-probe", "--model")
    assert cli(*add, "m").code == 0
    assert cli(*add, "m").code == 0
    ran = cli(*add, "other")
    assert ran.code == 2 and "is another one" in ran.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "which model?"),
        (["--model", "m", "--engine", "nowhere"], "unknown engine 'nowhere'"),
        (["--model", "m", "--mode", "loud"], "--mode: expected 'readout', 'written', "),
        (["--model", "m", "--url", "http://["], "--url: "),
        (["--model", "m", "--url", "foo"], "--url: "),
        (["--model", "m", "--url", "file:///etc/passwd"], "--url: "),
        (["--model", "m", "--timeout", "1e9"], "--timeout: expected a number at most 3600"),
        (["--model", "m", "--concurrency", "9" * 30], "--concurrency: "),
        (["--model", "m", "--max-tokens", "1000000000"], "--max-tokens: expected a number at most 1000000"),
        (["--model", "m", "--threshold", "2"], "--threshold: expected a number below 1"),
        (["--model", "m", "--timeout", "0"], "--timeout: expected a number above 0"),
        (["--embedded", "--model", "m"], "--embedded and --model exclude each other"),
        (["--model", "m", "--template", "none"], "none"),
        (["--model", "m", "--criteria-per-call", "3"], "--criteria-per-call: this judge is asked each criterion by"),
        (["--model", "m", "--mode", "comparative", "--criteria-per-call", "0"], "--criteria-per-call: "),
        (["--model", "m", "--mode", "written", "--threshold", "0.5"], "--threshold is for a readout"),
        (["--model", "m", "--mode", "comparative", "--min-answer-mass", "0.5"], "--min-answer-mass is for a readout"),
        (["--model", "m", "--mode", "trajectory", "--written", "--threshold", "0.5"], "--threshold is for a readout"),
        (["--model", "m", "--mode", "written", "--vote", "median"], "--vote says nothing of a single reply"),
        (["--model", "m", "--max-tokens", "77"], "--max-tokens is for a judge that writes"),
        (["--model", "m", "--temperature", "0.5"], "--temperature is for a judge that writes"),
        (["--model", "m", "--mode", "trajectory", "--top-p", "0.5"], "--top-p is for a judge that writes"),
        (["--model", "m", "--mode", "comparative", "--compare", "pairwise", "--seed", "1"], "--seed is for a judge"),
        ([*LOCAL, "--url", "http://127.0.0.1:9/v1"], "--url is for a judge at a server, not for transformers_local"),
        ([*LOCAL, "--requests-per-minute", "5"], "--requests-per-minute is for a judge at a server"),
        ([*LOCAL, "--timeout", "5"], "--timeout is for a judge at a server"),
        ([*LOCAL, "--no-prompt-lists"], "--prompt-lists is for a judge at a server"),
        (["--model", "m", "--min-answer-mass", "2"], "--min-answer-mass: expected a number at most"),
        (["--model", "m", "--top-p", "0"], "--top-p: expected a number above 0"),
        (["--model", "m", "--max-retries", "21"], "--max-retries: expected a number at most"),
    ],
)
def test_bad_options(cli: Cli, args: list[str], words: str) -> None:
    ran = cli("judge", "add", "x", "--no-probe", *args)
    assert ran.code == 2, ran.err
    assert words in ran.err and "hint: " in ran.err


def test_a_fault_of_the_whole_judge_is_said_without_it(cli: Cli) -> None:
    for args in (["--thinking", 9], ["--mode", "comparative", "--opponents", 2]):
        ran = cli("judge", "add", "x", "--no-probe", "--model", "m", *args)
        assert ran.code == 2 and "error: --:" not in ran.err and "found {" not in ran.err
        assert ran.err.startswith(("error: thinking and require_evidence", "error: --compare: opponents"))


def test_rarer_options_are_the_judges(cli: Cli) -> None:
    more = ("--min-answer-mass", 0.3, "--max-retries", 1, "--no-prompt-lists")
    assert cli("judge", "add", "x", "--no-probe", "--model", "m", *more).code == 0
    drawn = ("--mode", "written", "--top-p", 0.9, "--seed", 7)
    assert cli("judge", "add", "y", "--no-probe", "--model", "m", *drawn).code == 0
    sampling = cli("judge", "show", "y", "--json").json["judge"]["sampling"]
    assert (sampling["top_p"], sampling["seed"]) == (0.9, 7)
    kept = cli("judge", "show", "x", "--json").json["judge"]
    assert kept["min_answer_mass"] == 0.3
    assert (kept["endpoint"]["max_retries"], kept["endpoint"]["prompt_lists"]) == (1, False)


def test_a_model_here_without_a_chat_template_is_told_by_its_engine(cli: Cli, tmp_path: Path) -> None:
    bare = tiny_model(tmp_path / "base")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    ran = cli("judge", "add", "x", "--engine", "transformers_local", "--model", bare)
    assert ran.code == 3 and "has no chat template" in ran.err
    assert "hint: check --model: " in ran.err and "--url" not in ran.err


def test_a_name_has_an_end(cli: Cli) -> None:
    ran = cli("judge", "add", "x" * 5000, "--no-probe", "--model", "m")
    assert ran.code == 2 and "error: NAME: " in ran.err and len(ran.err) < 500


def test_a_closed_port_is_one_clear_line(cli: Cli) -> None:
    ran = cli("judge", "add", "x", "--url", f"http://127.0.0.1:{free_port()}/v1", "--model", "m")
    assert ran.code == 3
    assert ran.err.splitlines()[0].endswith("connection refused")


def test_the_help_says_what_is_meant_where_nothing_is_given(cli: Cli) -> None:
    shown = " ".join(cli("judge", "add", "--help").out.split())
    for words in (
        "openai_http, vllm_local or transformers_local",
        "(openai_http)",
        "(api.openai.com)",
        "(none; the probability is the value)",
        "default: readout",
    ):
        assert words in shown, shown
    shown = " ".join(cli("serve", "--help").out.split())
    assert "8321" in shown and "127.0.0.1" in shown


def test_the_only_model_of_a_server_is_taken(cli: Cli) -> None:
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        ran = cli("judge", "add", "one", "--url", server.url, "--json")
    assert (ran.code, ran.json["model"]) == (0, "scripted"), ran.err
    assert "no --model: taking the only one that the server has, scripted" in ran.err


def test_an_answer_that_is_no_verdict_is_told_with_what_to_do(cli: Cli) -> None:
    with scripted_server(ScriptedReply("I like it.")) as server:
        ran = cli("judge", "add", "vague", "--url", server.url, "--model", "m", "--mode", "written")
    assert ran.code == 0
    assert "vague answers, but without a verdict: unparseable" in ran.err
    assert "hint: it is added" in ran.err
    assert "vague" in cli("judge", "list").out
