"""`rubricsvc completions generate`, as a command and as a process that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.cli import Cli, add_judge
from tests.scripted_server import scripted_server, text_reply


def samples(cli: Cli) -> list[tuple[int, int]]:
    rows = cli("completions", "list", "--limit", 1000, "--json").lines
    contents = [cli("completions", "show", row["id"], "--json").json for row in rows]
    return sorted((one["prompt_id"], one["completion"]["sampling"]["sample"]) for one in contents)


def test_generate_then_score(cli: Cli, rubric_file: Path) -> None:
    assert cli("rubrics", "import", rubric_file).code == 0
    add_judge(cli)
    with scripted_server(text_reply("One.")) as server:
        args = ("completions", "generate", "--url", server.url, "-n", 2, "--policy", "mine")
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
        args = ["completions", "generate", "--url", server.url, "--prompts", str(file), "-n", "4", "--concurrency", "4"]
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
