"""``completions generate`` and ``rubrics generate``."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli, add_judge
from tests.rubric_writer import is_question, writer
from tests.scripted_server import ScriptedReply, scripted_server, text_reply


def samples(cli: Cli) -> list[tuple[int, int]]:
    rows = cli("completions", "list", "--limit", 1000, "--json").lines
    contents = [cli("completions", "show", row["id"], "--json").json for row in rows]
    return sorted((one["prompt_id"], one["completion"]["sampling"]["sample"]) for one in contents)


def test_generate_then_score(cli: Cli, rubric_file: Path) -> None:
    assert cli("rubrics", "import", rubric_file).code == 0
    add_judge(cli)
    with scripted_server(text_reply("One.")) as server:
        args = ("completions", "generate", "--judge", server.url, "--model", "m", "-n", 2, "--policy", "mine")
        first = cli(*args, "--json")
        again = cli(*args, "--json")
    assert (first.code, first.json["stored"], first.json["prompts"]) == (0, 4, 2), first.err
    assert "jobs submit" in first.err and "--rubric" not in first.err
    assert (again.code, again.json["stored"], again.json["existing"], server.count) == (0, 0, 4, 4)
    assert samples(cli) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    ran = cli("jobs", "submit", "--judge", "quick", "--policy", "mine", "--wait", "--json")
    assert (ran.code, ran.json["summary"]["rewards"]) == (0, 4)


def test_generate_continues_after_a_kill(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f'{{"id": "q{n}", "prompt": "What is {n}?"}}\n' for n in range(30)))
    with scripted_server(text_reply("It is a number.", delay_s=0.05)) as server:
        add_writer(cli, server.url, concurrency=4)
        args = ["completions", "generate", "--judge", "writer", "--prompts", str(file), "-n", "4"]
        process = subprocess.Popen([sys.executable, "-m", "rubricsvc", *args], env=dict(os.environ))
        while not 20 <= server.count < 100:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait(10)
        before = len(samples(cli))
        assert 0 < before < 120
        ran = cli(*args, "--json")
    assert (ran.code, ran.json["stored"], ran.json["existing"]) == (0, 120 - before, before)
    assert Counter(samples(cli)) == Counter({(prompt, n): 1 for prompt in range(1, 31) for n in range(4)})
    assert server.count <= 120 + 8, "what was in flight when the process was killed is asked for again"


PROMPTS = [
    {"id": "sky", "prompt": "Why is the sky blue?", "reference": "It is blue because air scatters light. So it is."},
    {"id": "sea", "prompt": "Why is the sea salty?", "reference": "It is salty because rivers bring salt. So it is."},
]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in PROMPTS))
    return file


def add_writer(cli: Cli, url: str, name: str = "writer", **endpoint: Any) -> None:
    judge = {"name": name, "model": "scripted", "endpoint": {"base_url": url, "max_retries": 0, **endpoint}}
    assert cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge)).code == 0


def off_topic_writer(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Meet only what names the air: the first prompt's reference, and not the second's."""
    if not is_question(request):
        return writer(number, request)
    content = request["messages"][-1]["content"].replace("because", "").replace("air scatters", "because")
    return writer(number, {**request, "messages": [{"content": content}]})


def test_generate_writes_tries_and_reports(cli: Cli, prompts: Path) -> None:
    with scripted_server(off_topic_writer) as server:
        add_writer(cli, server.url)
        ran = cli("rubrics", "generate", "--judge", "writer", prompts, "--wait", "--json")
        asked = server.count
        again = cli("rubrics", "generate", "--judge", "writer", prompts, "--wait", "--json")
    assert (ran.code, again.code, server.count) == (0, 0, asked), ran.err
    made = ran.json["summary"]["generation"]
    expected = {"prompts": 2, "rubrics": 2, "drafts": 2, "asked_again": 0, "cost": None}
    assert ran.json["kind"] == "generate" and {**made, **expected} == made
    assert made["refused_by"] == {"praise": 1, "off_topic": 1}
    items = cli("jobs", "items", 1, "--json").lines
    assert [(item["prompt_external_id"], item["rubric"]) for item in items] == [
        ("sky", "sky-one-shot@1"),
        ("sea", "sea-one-shot@1"),
    ]
    found = cli("rubrics", "show", "sky-one-shot@1", "--provenance").json
    assert (found["method"], found["model"], found["gate"]["refused_by"]) == ("one-shot", "scripted", [])
    assert found["gate"]["probes"].keys() >= {"empty", "off_topic", "reference", "shuffled", "truncated", "praise"}
    assert cli("jobs", "list", "--json").lines[0]["kind"] == "generate"


def test_generate_exits_with_1_and_retry_asks_only_for_what_is_missing(cli: Cli, prompts: Path) -> None:
    broken = True

    def script(number: int, request: dict[str, Any]) -> ScriptedReply:
        if broken and "sea salty" in request["messages"][1]["content"] and not is_question(request):
            return ScriptedReply(status=503)
        return writer(number, request)

    with scripted_server(script) as server:
        add_writer(cli, server.url, outage_timeout_s=0.0)
        ran = cli("rubrics", "generate", "--judge", "writer", prompts, "--wait", "--json")
        made = ran.json["summary"]["generation"]
        assert (ran.code, ran.json["status"], made["rubrics"]) == (1, "completed_with_failures", 1), ran.err
        assert sum(made["reasons"].values()) == 1
        broken, before = False, server.count
        retried = cli("jobs", "retry", 1, "--wait", "--json")
    made = retried.json["summary"]["generation"]
    assert (retried.code, made["rubrics"], made["asked_again"]) == (0, 2, 0), retried.err
    assert server.count > before
    written = [request["messages"][1]["content"] for request in server.requests[before:] if not is_question(request)]
    assert len(written) == 1 and "sea salty" in written[0]
