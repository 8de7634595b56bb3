"""`rubricsvc rubrics generate --method M` against a scripted model: what each method shows, stores and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.rubric_writer import RUBRIC, is_question, writer
from tests.scripted_server import ScriptedReply, ScriptedServer, scripted_server, text_reply

SUMMARY = {
    "prompts", "rubrics", "drafts", "refused_by", "checks", "negatives", "empty_reward_max", "cost", "asked_again",
}  # fmt: skip
PROMPT = {"id": "sky", "prompt": "Why is the sky blue?"}
GOOD, BAD = "It is blue because air scatters light.", "It is blue, I think."
CALL = {"role": "assistant", "content": None, "tool_calls": [{"name": "look_up", "arguments": {"word": "sky"}}]}
STYLE = "# Honesty\nSay what you do not know.\n\n# Length\nNever write more than two hundred words.\n"


def scripted(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Write one rubric for all methods, with a source where the method needs one; group what is to be merged."""
    if is_question(request):
        return writer(number, request)
    asked = request["messages"][1]["content"]
    if "Find the criteria that ask the same" in asked:
        return text_reply('{"same": [[1, 2]]}')
    if "<clause-" not in asked:
        other = {"text": "Says that the air is the first cause.", "weight": 7}
        contrasted = [other, *RUBRIC["criteria"][1:]] if "Better answers" in asked else RUBRIC["criteria"]
        return text_reply(json.dumps({"criteria": contrasted}))
    passages = [("Honesty", "what you do not know"), ("Length", "Never write more"), ("Honesty", "Say what you do")]
    sourced = [
        {**one, "sources": [{"document": clause, "passage": passage}]}
        for one, (clause, passage) in zip(RUBRIC["criteria"], passages, strict=True)
    ]
    return text_reply(json.dumps({"criteria": sourced}))


@pytest.fixture
def server(cli: Cli, tmp_path: Path) -> Iterator[ScriptedServer]:
    """A model that writes, a prompt with a one-shot rubric, and completions of three policies, one of them an agent."""
    answers = [
        {"prompt_id": "sky", "text": GOOD, "policy": "new"},
        {"prompt_id": "sky", "text": BAD, "policy": "old"},
        {"prompt_id": "sky", "messages": [CALL, {"role": "assistant", "content": GOOD}], "policy": "agent"},
    ]
    (tmp_path / "style.md").write_text(STYLE)
    with scripted_server(scripted) as server:
        judge = {"name": "writer", "model": "scripted", "endpoint": {"base_url": server.url, "max_retries": 0}}
        assert cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge)).code == 0
        assert generate(cli, "-", stdin=json.dumps(PROMPT))["rubrics"] == 1
        imported = cli("completions", "import", "-", stdin="".join(json.dumps(one) + "\n" for one in answers))
        assert imported.code == 0, imported.err
        yield server


def generate(cli: Cli, *args: object, code: int = 0, stdin: str = "") -> dict[str, Any]:
    ran = cli("rubrics", "generate", "--judge", "writer", *args, "--wait", "--json", stdin=stdin)
    assert ran.code == code, ran.err
    found: dict[str, Any] = ran.json["summary"]["generation"]
    assert found.keys() >= SUMMARY and found["asked_again"] == 0
    return found


def provenance(cli: Cli, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("rubrics", "show", name, "--provenance").json
    return found


def criteria(cli: Cli, ref: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("rubrics", "show", ref, "--json").json["rubric"]["criteria"]
    return found


def test_merge_keeps_each_criterion_once_and_names_its_parents(cli: Cli, server: ScriptedServer) -> None:
    generate(cli, "--method", "contrastive", "--better", "new", "--worse", "old")
    asked = server.count
    found = generate(cli, "--method", "merge", "--no-gate")
    assert (found["rubrics"], found["checks"], found["negatives"], server.count) == (1, 1, 1, asked + 1)
    assert provenance(cli, "sky-merge")["parents"] == ["sky-one-shot@1", "sky-contrastive@1"]
    assert [one["weight"] for one in criteria(cli, "sky-merge@1")] == [6.0, 1.0, -4.0]
    same = ("--rubric", "sky-one-shot@1", "--rubric", "sky-one-shot", "--rubric", "sky-merge")
    short = cli("rubrics", "generate", "--judge", "writer", "--method", "merge", "--no-gate", *same[:2], "--wait")
    assert short.code == 1 and "second rubric" in short.err
    one = generate(cli, "--method", "merge", "--no-gate", *same[:4], code=1)
    assert one["reasons"] == {"no_rubrics": 1}
    assert generate(cli, "--method", "merge", "--no-gate", *same)["rubrics"] == 1
