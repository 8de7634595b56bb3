"""Tool calls in the text of a model."""

from __future__ import annotations

import json

from rubricsvc.core.prompt import Message, Prompt
from trainer.environments.tool_calls import call_text, parse, with_tools
from trainer.environments.tools import Calculator


def test_parse_reads_what_call_text_writes() -> None:
    turn = parse(f"I will look.\n{call_text('search', query='a “quoted” </b> text')}")
    assert turn.error is None
    assert turn.content == "I will look."
    assert [call.name for call in turn.calls] == ["search"]
    assert json.loads(turn.calls[0].arguments) == {"query": "a “quoted” </b> text"}


def test_parse_without_call_is_text() -> None:
    turn = parse("  The report.  ")
    assert (turn.content, turn.calls, turn.error) == ("The report.", (), None)


MALFORMED = [
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": "open", "arguments": []}</tool_call>',
    '<tool_call>{"name": 3}</tool_call>',
    '<tool_call>{"name": "open", "name": "find"}</tool_call>',
    "<tool_call>open 3</tool_call>",
    "<tool_call>" + "[" * 100_000 + "</tool_call>",
    '<tool_call>{"name": "open", "arguments": {"id": "a"}}',
    '{"name": "open"}</tool_call>',
    '<tool_call><tool_call>{"name": "open"}</tool_call>',
]


def test_parse_malformed_calls_makes_no_call() -> None:
    turns = [parse(text) for text in MALFORMED]
    assert all(turn.error and turn.calls == () for turn in turns)


def test_with_tools_keeps_the_system_message() -> None:
    prompt = Prompt(messages=(Message(role="system", content="Be brief."), Message(role="user", content="6 * 7?")))
    shown = with_tools(prompt, Calculator.tools)
    assert [message.role for message in shown.messages] == ["system", "user"]
    assert shown.messages[0].content.startswith("Be brief.")
    assert "calculate(expression)" in shown.messages[0].content
    assert parse(shown.messages[0].content).calls[0].name == "calculate"
