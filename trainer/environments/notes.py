"""Notes: the policy writes down what it needs of what it read, and goes on in a fresh context that has only its notes.

The tokens before a note stay part of the completion, and are learned from the same reward: that of a report which was
written from the notes alone. The notes are given to the fresh context as the calls that made them, so that nothing of
what was read reaches it but these words; tokens of a context see the prompt and each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rubricsvc.core.prompt import Message
from rubricsvc.core.trajectory import tool_results
from trainer.environments.environment import Tool

NOTE = Tool(
    "note",
    "Write down what you need of what you have read. Only your notes are kept; all else is forgotten.",
    {"text": "The note."},
)
KEPT = "Noted. Only your notes are kept."


def is_note(message: Message) -> bool:
    """Return whether a tool's message answers a note, after which only notes are kept."""
    return message.role == "tool" and message.name == NOTE.name and message.content == KEPT


def notes_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the notes of a trajectory so far, each as its call and the answer."""
    notes: list[Message] = []
    for call, answer in tool_results(messages):
        if call is not None and is_note(answer):
            notes += Message(role="assistant", content="", tool_calls=(call,)), answer
    return tuple(notes)


def took_note(messages: Iterable[Message]) -> bool:
    """Return whether one of these messages answers a note."""
    return any(map(is_note, messages))
