"""Steps of a trace."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Message, ToolCall, steps_of


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def called(query: str, result: str = "nothing") -> list[Message]:
    call = ToolCall(name="search", arguments=f'{{"q": "{query}"}}')
    return [Message(role="assistant", content="", tool_calls=(call,)), Message(role="tool", content=result)]


def trace(*messages: Message) -> Completion:
    return Completion(messages=messages)


def test_steps_pair_assistant_messages_with_tool_results() -> None:
    opening, closing = Message(role="user", content="Go on."), said("Done.")
    steps = steps_of(trace(opening, *called("a"), *called("b"), closing))
    assert [[message.role for message in step] for step in steps] == [
        ["user", "assistant", "tool"],
        ["assistant", "tool"],
        ["assistant"],
    ]
    assert [message for step in steps for message in step][-1] == closing
    assert steps_of(Completion(text="An answer.")) == [(said("An answer."),)]
    assert steps_of(trace(opening)) == [(opening,)]
