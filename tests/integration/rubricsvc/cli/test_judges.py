"""`judges add`, `update`, `init` and `show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge, stored
from tests.rows import invalidate
from tests.scripted_server import ScriptedReply, error, labels, scripted_server
from tests.services import free_port
from tests.tiny_model import tiny_model

SCORED = ("--rubric", "rubric.yaml", "--prompt", "What is one?", "--completion", "-")


def test_add_limits_the_time_of_its_questions(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricsvc.cli.judges.ADD_TIMEOUT_S", 0.2)
    with scripted_server(ScriptedReply(delay_s=600)) as server:
        ran = cli("judges", "add", "slow", "--url", server.url, "--model", "m", "--json")
        assert server.count <= 4, "two questions, and each once more"
    assert (ran.code, ran.out) == (3, "")
    assert "timeout" in ran.err and "0.2 s" in ran.err and "--no-probe" in ran.err


def test_add_asks_no_server_elsewhere_where_the_project_is_local_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy on this machine stands for the way out."""
    (tmp_path / "rubric.yaml").write_text("criteria: [Says one.]\n")
    monkeypatch.setenv("RUBRICSVC_LOCAL_ONLY", "true")
    monkeypatch.setenv("no_proxy", "")
    get_settings.cache_clear()
    with scripted_server(labels(Yes=0.9)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        far = "http://203.0.113.5/v1"
        for args in (("judges", "add", "far", "--url", far), ("score", "--judge", far, *SCORED)):
            ran = cli(*args, stdin="One.")
            assert (ran.code, "203.0.113.5" in ran.err, "local_only" in ran.err) == (2, True, True), ran.err
        assert (proxy.probes, proxy.count) == (0, 0)


def test_add_prints_a_warning_of_a_wait_to_stderr(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.engines.http.throttle._WARN_PAUSE_S", 0.0)
    structlog.reset_defaults()  # as in a process of its own
    with scripted_server([error(429, retry_after=0.01), *[labels(Yes=0.9)] * 3]) as server:
        ran = cli("judges", "add", "j", "--url", server.url, "--model", "m", "--json")
    assert (ran.code, ran.json["name"]) == (0, "j"), ran.out
    assert "seconds=0.01" in ran.err


@pytest.mark.parametrize(
    ("answer", "reason", "hint"),
    [
        (error(401, "no key"), "refused", "--api-key-env"),
        (ScriptedReply("Yes"), "no_logprobs", "--mode written"),
        (error(403, "You are not allowed to request logprobs from this model"), "no_logprobs", "--mode written"),
        (error(404, "The model `m` does not exist."), "refused", "scripted"),
        (error(400, "unknown model"), "refused", "scripted"),
    ],
)
def test_add_refuses_a_judge_that_does_not_answer(cli: Cli, answer: ScriptedReply, reason: str, hint: str) -> None:
    with scripted_server(answer) as server:
        ran = cli("judges", "add", "bad", "--url", server.url, "--model", "m")
        assert ran.code == 3 and reason in ran.err and hint in ran.err
        assert cli("judges", "list", "--json").out == ""
        assert cli("judges", "add", "bad", "--url", server.url, "--model", "m", "--no-probe").code == 0


def test_add_of_a_known_name_needs_the_same_judge(cli: Cli) -> None:
    add = ("judges", "add", "x", "--no-probe", "--model")
    assert cli(*add, "m").code == 0
    assert cli(*add, "m").code == 0
    assert cli(*add, "other").code == 2
    assert stored(cli, "x")["model"] == "m"


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["x"], "--model"),
        ([], "NAME"),
        (["x", "--model", "m", "--mode", "loud"], "--mode"),
        (["x", "--model", "m", "--url", "http://["], "--url"),
        (["x", "--model", "m", "--url", "file:///etc/passwd"], "--url"),
        (["x", "--model", "m", "--url", "http://256.1.1.1/v1"], "--url"),
        (["x", "--model", "a\udcff"], "--model"),
        (["x", "--embedded", "--model", "m"], "--model"),
        (["x", "--embedded", "--url", "http://127.0.0.1:9/v1"], "--url"),
        (["x", "-f", "judge.yaml"], "NAME"),
        (["--embedded", "-f", "judge.yaml"], "--embedded"),
        (["x" * 5000, "--model", "m"], "NAME"),
    ],
)
def test_add_names_the_invalid_option(cli: Cli, args: list[str], option: str) -> None:
    ran = cli("judges", "add", "--no-probe", *args)
    assert ran.code == 2 and option in ran.err and "hint: " in ran.err and len(ran.err) < 500


@pytest.mark.parametrize(
    ("fields", "line", "path"),
    [
        ("endpoint: {timeout_s: 1.0e9}", 3, "endpoint.timeout_s"),
        ("endpoint:\n  max_retries: 21", 4, "endpoint.max_retries"),
        ("endpoint: {base_url: foo}", 3, "endpoint.base_url"),
        ("sampling: {max_tokens: 1000000000}", 3, "sampling.max_tokens"),
        ("threshold: 2", 3, "threshold"),
        ("temperature: 0.5", 3, "temperature"),
        ("mode: comparative\ncomparison: {group_size: 27}", 4, "comparison.group_size"),
        ("mode: trajectory\ntrajectory: {value: best}", 4, "trajectory.value"),
        ("mode: panel\nmembers: [none, x]", 4, "members[0]"),
        ("thinking: {budget_tokens: 9}", 1, ""),
        ("model: other", 3, ""),
    ],
)
def test_add_file_names_line_and_field(cli: Cli, tmp_path: Path, fields: str, line: int, path: str) -> None:
    (tmp_path / "judge.yaml").write_text(f"name: x\nmodel: m\n{fields}\n")
    ran = cli("judges", "add", "-f", "judge.yaml", "--no-probe")
    assert ran.code == 2 and f"judge.yaml:{line}" in ran.err and path in ran.err, ran.err
    assert "--skip-invalid" not in ran.err
    assert cli("judges", "list", "--json").out == ""


@pytest.mark.parametrize(
    ("fields", "setting"),
    [
        ({"criteria_per_call": 3}, "criteria_per_call"),
        ({"mode": "comparative", "criteria_per_call": 0}, "criteria_per_call"),
        ({"mode": "written", "threshold": 0.5}, "threshold"),
        ({"mode": "comparative", "min_answer_mass": 0.5}, "min_answer_mass"),
        ({"mode": "trajectory", "trajectory": {"written": True}, "threshold": 0.5}, "threshold"),
        ({"mode": "written", "voting": {"rule": "median"}}, "voting.rule"),
        ({"sampling": {"max_tokens": 77}}, "sampling.max_tokens"),
        ({"mode": "comparative", "comparison": {"kind": "pairwise"}, "sampling": {"seed": 1}}, "sampling.seed"),
        ({"engine": "transformers_local", "endpoint": {"timeout_s": 5}}, "endpoint.timeout_s"),
        ({"engine": "nowhere"}, "nowhere"),
        ({"template": "none"}, "none"),
    ],
)
def test_add_file_refuses_settings_without_effect(cli: Cli, fields: dict[str, Any], setting: str) -> None:
    judge = {"name": "x", "model": "m"} | fields
    ran = cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge))
    assert ran.code == 2 and setting in ran.err and "hint: " in ran.err


def test_add_file_names_the_file_of_a_setting_without_effect(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "j.yaml"
    file.write_text("{name: x, model: m, engine: transformers_local, endpoint: {timeout_s: 5}}")
    assert str(file) in cli("judges", "add", "-f", str(file)).err


def test_add_file_stores_all_fields(cli: Cli) -> None:
    fields = {
        "mode": "written",
        "sampling": {"temperature": 0.7, "top_p": 0.9, "max_tokens": 77, "seed": 7},
        "voting": {"samples": 3, "rule": "majority"},
        "thinking": {"budget_tokens": 9, "opens": "<think>", "closes": "</think>"},
        "require_evidence": True,
        "max_context": 2048,
    }
    endpoint = {"max_retries": 1, "prompt_lists": False, "price": {"prompt": 1.0, "cached": None, "completion": 2.0}}
    add_judge(cli, "x", engine="openai_http", endpoint=endpoint, **fields)
    judge = stored(cli, "x")
    assert {name: judge[name] for name in fields} == fields
    assert endpoint.items() <= judge["endpoint"].items()


def test_add_file_takes_members_by_name(cli: Cli, tmp_path: Path) -> None:
    add_judge(cli, "a")
    (tmp_path / "judges.yaml").write_text(
        "- {name: b, model: m, engine: instant}\n"
        "- {name: p, mode: panel, members: [a, b], voting: {rule: min}}\n"
        "- {name: c, mode: cascade, members: [a, p], band: [0.2, 0.6]}\n"
    )
    ran = cli("judges", "add", "-f", "judges.yaml", "--no-probe")
    assert ran.code == 0, ran.err
    judge = stored(cli, "c")
    assert (judge["mode"], judge["band"], [one["name"] for one in judge["members"]]) == (
        "cascade",
        [0.2, 0.6],
        ["a", "p"],
    )
    assert judge["members"][1]["voting"]["rule"] == "min"


def test_show_yaml_is_read_back_as_the_same_judge(cli: Cli) -> None:
    add_judge(cli, "a", mode="written", sampling={"temperature": 0.5}, voting={"samples": 2})
    add_judge(cli, "b", endpoint={"concurrency": 3}, threshold=0.4)
    add_judge(cli, "c", mode="cascade", members=["a", "b"], band=[0.3, 0.7])
    for name in ("a", "b", "c"):
        digest = cli("judges", "show", name, "--json").json["digest"]
        file = cli("judges", "show", name, "--yaml").out.replace(f"name: {name}", "name: copy", 1)
        ran = cli("judges", "add", "-f", "-", "--no-probe", "--json", stdin=file.replace("copy", f"copy-{name}"))
        assert (ran.code, ran.json["digest"]) == (0, digest), ran.err
        assert stored(cli, f"copy-{name}")["endpoint"] == stored(cli, name)["endpoint"]


def test_init_writes_a_judge_file_that_can_be_added(cli: Cli) -> None:
    assert cli("judges", "init").code == 0
    assert cli("judges", "init").code == 2
    assert cli("judges", "init", "--force").code == 0
    ran = cli("judges", "add", "-f", "judge.yaml", "--no-probe", "--json")
    assert (ran.code, ran.json["name"], ran.json["judge"]["mode"]) == (0, "strong", "written"), ran.err


def test_update_changes_the_endpoint_only(cli: Cli) -> None:
    add_judge(cli, "x", engine="openai_http", endpoint={"base_url": "http://127.0.0.1:9/v1", "concurrency": 3})
    before = cli("judges", "show", "x", "--json").json
    ran = cli("judges", "update", "x", "--url", "http://127.0.0.1:10/v1", "--api-key-env", "KEY", "--no-probe")
    assert ran.code == 0, ran.err
    after = cli("judges", "show", "x", "--json").json
    assert after["digest"] == before["digest"]
    endpoint = after["judge"]["endpoint"]
    assert (endpoint["base_url"], endpoint["api_key_env"], endpoint["concurrency"]) == (
        "http://127.0.0.1:10/v1",
        "KEY",
        3,
    )


def test_stored_judge_with_an_invalid_address_is_listed_and_can_be_updated(cli: Cli) -> None:
    add_judge(cli, "old", engine="openai_http", endpoint={"base_url": "http://127.0.0.1:9/v1"})
    add_judge(cli, "p", mode="panel", members=[{"name": n, "model": n} for n in "ab"])
    db = Database(get_settings().database_url)
    invalidate(db, "old", base_url="http://user:secret@host/v1")
    db.close()
    listed = cli("judges", "list", "--json")
    assert listed.code == 0
    old, panel = listed.lines
    assert "judges update old" in old["error"] and "secret" not in old["error"] and panel["error"] is None
    assert cli("judges", "show", "old", "--json").json["error"] == old["error"]
    cli("rubrics", "import", "-", stdin='{"name": "r", "prompt": "Why?", "criteria": ["A."], "completions": ["B."]}\n')
    refused = cli("jobs", "submit", "--judge", "old")
    assert refused.code == 2 and "judges update old" in refused.err
    assert cli("judges", "update", "old", "--url", "http://127.0.0.1:10/v1", "--no-probe").code == 0
    assert [row["error"] for row in cli("judges", "list", "--json").lines] == [None, None]
    assert cli("jobs", "submit", "--judge", "old").code == 0


@pytest.mark.parametrize("args", [("x",), ("p", "--url", "http://127.0.0.1:9/v1"), ("x", "--url", "foo")])
def test_update_refuses_what_it_cannot_change(cli: Cli, args: tuple[str, ...]) -> None:
    add_judge(cli, "x", engine="openai_http")
    add_judge(cli, "y")
    add_judge(cli, "p", mode="panel", members=["x", "y"])
    assert cli("judges", "update", *args, "--no-probe").code == 2


def test_add_names_the_missing_chat_template_of_a_local_model(cli: Cli, tmp_path: Path) -> None:
    bare = tiny_model(tmp_path / "base")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    judge = {"name": "x", "engine": "transformers_local", "model": str(bare)}
    ran = cli("judges", "add", "-f", "-", stdin=json.dumps(judge))
    assert ran.code == 3 and "chat template" in ran.err and "--url" not in ran.err


def test_add_reports_a_closed_port(cli: Cli) -> None:
    ran = cli("judges", "add", "x", "--url", f"http://127.0.0.1:{free_port()}/v1", "--model", "m")
    assert ran.code == 3 and "connection refused" in ran.err.lower() and "--url" not in ran.err


def test_add_stores_a_judge_whose_answer_is_no_verdict(cli: Cli) -> None:
    with scripted_server(ScriptedReply("I like it.")) as server:
        ran = cli("judges", "add", "vague", "--url", server.url, "--model", "m", "--mode", "written")
    assert ran.code == 0 and "unparseable" in ran.err and "hint: " in ran.err
    assert stored(cli, "vague")["mode"] == "written"


def test_add_of_a_file_warns_of_the_embedded_model(cli: Cli) -> None:
    judge = {"name": "small", "engine": "transformers_local", "model": "embedded", "threshold": 0.5}
    ran = cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge))
    assert ran.code == 0 and "135M" in ran.err
    ran = cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps({"name": "p", "model": "m"}))
    assert ran.code == 0 and "135M" not in ran.err


def test_show_of_an_unknown_judge_suggests_one(cli: Cli) -> None:
    ran = cli("judges", "show", "embeded")
    assert ran.code == 3 and "judges add embedded --embedded" in ran.err
    assert cli("judges", "add", "careful", "--model", "m", "--no-probe").code == 0
    ran = cli("judges", "show", "carefull")
    assert ran.code == 3 and "'careful'" in ran.err
    assert "judges list" in cli("judges", "show", "other").err


@pytest.mark.parametrize(
    "fields",
    [
        {"members": ["a", "none"]},
        {"members": ["a"]},
        {"members": ["a", "a"]},
        {"members": ["a", "b"], "voting": {"rule": "loudest"}},
        {"mode": "cascade", "members": ["a", "b"], "band": [0.9, 0.1]},
    ],
)
def test_add_refuses_invalid_members(cli: Cli, fields: dict[str, Any]) -> None:
    for name in ("a", "b"):
        add_judge(cli, name)
    judge = {"name": "p", "mode": "panel"} | fields
    assert cli("judges", "add", "-f", "-", stdin=json.dumps(judge)).code == 2
    assert len(cli("judges", "list", "--json").lines) == 2


def test_list_shows_the_members_of_a_panel(cli: Cli) -> None:
    for name in ("a", "b"):
        add_judge(cli, name)
    add_judge(cli, "p", mode="panel", members=["a", "b"], voting={"rule": "min"})
    shown = dict(line.split(None, 1) for line in cli("judges", "show", "p").out.splitlines())
    assert shown["members"] == "a, b" and not {"engine", "model"} & shown.keys()
