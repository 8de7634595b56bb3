"""`score` with judges that compare completions or follow an agent's steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import Cli
from tests.scripted_server import labels, scripted_server

CALL = {"name": "search", "arguments": "{}"}


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
