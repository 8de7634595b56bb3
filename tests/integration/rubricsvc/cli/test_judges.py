"""`judges add`, `update`, `init` and `show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge, stored
from tests.rows import invalidate
from tests.scripted_server import ScriptedReply, error, scripted_server


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
