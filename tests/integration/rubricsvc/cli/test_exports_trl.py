"""TRL's SFT and DPO trainers load what `jobs export` writes, and take a step on it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.tiny_model import tiny_model
from workers.queue.drain import Drainer

RUBRIC = {"name": "long", "criteria": [{"text": "Is long.", "check": {"words": {"min": 4}}}]}
TRAJECTORY = [
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "hit"},
    {"role": "assistant", "content": "one two three four"},
]
PROMPTS = ("Count.", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count again."}])
FORMATS = {"sft": "sft.jsonl", "dpo": "dpo.jsonl"}

pytestmark = pytest.mark.usefixtures("trl_installed")


def test_trl_trains_on_exported_examples(cli: Cli, tmp_path: Path) -> None:
    cli("rubrics", "import", "-", stdin=json.dumps(RUBRIC))
    add_judge(cli)
    completions = [{"text": "one"}, {"text": "one two"}, {"messages": TRAJECTORY}]
    lines = [{"prompt": prompt, **one} for prompt in PROMPTS for one in completions]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    assert cli("jobs", "submit", "-", "--judge", "quick", "--rubric", "long", stdin=stdin).code == 0
    db = Database(get_settings().database_url)
    Drainer(db, get_settings()).run(1)
    db.close()
    for kind, name in FORMATS.items():
        assert cli("jobs", "export", 1, "--kind", kind, "--out", name).code == 0
    options = {
        "model": str(tiny_model(tmp_path / "model")),
        "out": str(tmp_path / "out"),
        "data": {kind: str(tmp_path / name) for kind, name in FORMATS.items()},
    }
    command = [sys.executable, "-m", "tests.trl_load", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {kind: one["examples"] for kind, one in found.items()} == {"sft": 2, "dpo": 6}
    for one in found.values():
        assert one["log"][0]["step"] == 1 and math.isfinite(one["log"][0]["loss"])
    first = {kind: one["first"] for kind, one in found.items()}
    asked = "<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\n"
    turns = "<|im_end|>\n<|im_start|>tool\nhit<|im_end|>\n<|im_start|>assistant\n"
    assert first["sft"]["input_ids"] == f"{asked}I look.{turns}one two three four<|im_end|>\n"
    assert list(first["dpo"].values()) == [asked, "one two<|im_end|>\n", "one<|im_end|>\n"]
