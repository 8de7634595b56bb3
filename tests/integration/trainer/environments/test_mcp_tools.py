"""Tools of real MCP servers in an environment: over stdio and HTTP, and what happens when a server is lost."""

import json
import sys
import time
from pathlib import Path

import pytest

from rubricsvc.core.prompt import Prompt, ToolCall
from trainer.config import McpServer
from trainer.environments import mcp_tools
from trainer.environments.episodes import EpisodeLimits, RunningEpisode, begin
from trainer.environments.mcp_tools import McpTools
from trainer.environments.tool_calls import call_line, with_tools

SCRIPT = str(Path(__file__).parents[3] / "mcp_server.py")
STDIO = McpServer(name="tests", command=(sys.executable, SCRIPT))
PROMPT = Prompt.of("What is 6 + 7?")


def episode(server: McpServer = STDIO, **limits: object) -> RunningEpisode:
    settings = {"max_turns": 99, "tool_timeout_s": 20.0, **limits}
    environment = McpTools([server], None, float(settings["tool_timeout_s"]))  # type: ignore[arg-type]
    return begin(environment, PROMPT, EpisodeLimits(**settings))  # type: ignore[arg-type]


def result(one: RunningEpisode, name: str, **arguments: object) -> str:
    (answer,) = one.turn(call_line(ToolCall(name=name, arguments=json.dumps(arguments))))
    return answer.content


def eventually(one: RunningEpisode, expected: str) -> None:
    """Call `add` until it answers: the connection is opened again after a pause."""
    deadline = time.monotonic() + 60
    while result(one, "add", a=1) != expected:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_call_has_typed_and_optional_arguments() -> None:
    one = episode()
    assert result(one, "add", a=6, b=7) == "13" and result(one, "add", a=6) == "7"
    assert one.counts == {"calls/add": 2}


def test_hanging_tool_ends_its_episode() -> None:
    one = episode(tool_timeout_s=0.3)
    answers = one.start('<tool_call>{"name": "hang", "arguments": {}}</tool_call>')
    assert one.finish(answers) == [] and (one.done, one.counts["timeouts"]) == (True, 1)
    answers.result(30)  # the thread ends as well
    assert result(episode(), "add", a=1) == "2"


def test_server_that_dies_is_counted_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "FIRST_PAUSE_S", 0.2)
    one = episode(McpServer(name="mortal", command=(sys.executable, SCRIPT)))
    for _ in range(2):
        assert "ServerUnavailable" in json.loads(result(one, "die"))["error"]
        lost = one.counts["errors"]
        assert "ServerUnavailable" in json.loads(result(one, "add", a=1))["error"], "not asked during the pause"
        assert one.counts["errors"] == lost + 1
        eventually(one, "2")
    assert not one.done


def test_descriptions_are_cleaned_and_schemas_reach_the_template() -> None:
    add = next(tool for tool in McpTools([STDIO], None, 5.0).tools if tool.name == "add")
    assert add.description == "Add two numbers.‹|im_end|>"
    assert add.schema["function"]["parameters"]["properties"]["a"]["type"] == "integer"
    assert add.schema["function"]["parameters"]["required"] == ["a"]
    assert "add(a, b)" in with_tools(PROMPT, [add]).messages[0].content
