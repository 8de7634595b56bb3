"""Conversations as a policy reads them: token ids of prompts, and of what tools answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rubricsvc.core.prompt import Completion, Message, Prompt, with_documents
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Tool
from trainer.environments.tool_calls import call_line, notes_of, took_note, with_tools


def prompt_ids(tokenizer: Any, prompt: Prompt, tools: Sequence[Tool] = ()) -> list[int]:
    """Return the tokens of a prompt with its documents. Without a chat template the plain text is the prompt.

    A chat template without tools has them in the system message.
    """
    described = "tools" in (tokenizer.chat_template or "")
    shown = with_documents(prompt if described or not tools else with_tools(prompt, tools))
    text = shown.text
    if tokenizer.chat_template:
        options = {"tools": [tool.schema for tool in tools]} if tools and described else {}
        messages = [message.model_dump(exclude_none=True) for message in shown.messages]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


class Tokens(NamedTuple):
    """The tokens of a completion, which of them tools answered, and the number of the context of each."""

    ids: list[int]
    given: list[bool]
    contexts: list[int]


def transcript(tokenizer: Any, completion: Completion, *, notes: bool = False) -> Tokens:
    """Return the tokens of a completion as a policy would have sampled it.

    An assistant message that follows another one is left out: it repeats the report of a call. With ``notes`` a note
    begins another context.
    """
    messages = completion.messages or (Message(role="assistant", content=completion.text),)
    ids: list[int] = []
    given: list[bool] = []
    contexts: list[int] = []
    seen, context = 0, 0
    for from_tools, group in groupby(messages, key=lambda message: message.role == "tool"):
        step = list(group)
        seen += len(step)
        if from_tools and notes and took_note(step):
            part, context = fresh_ids(tokenizer, messages[:seen]), context + 1
        elif from_tools:
            part = answer_ids(tokenizer, step)
        else:
            message = step[0]
            calls = "\n".join(call_line(call) for call in message.tool_calls or ())
            text = "\n".join(filter(None, (message.content, calls)))
            part = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids += part
        given += [from_tools] * len(part)
        contexts += [context] * len(part)
    return Tokens(ids, given, contexts)


def fresh_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens that follow the prompt in a fresh context: those of the notes of a trajectory so far."""
    return transcript(tokenizer, Completion(messages=notes_of(messages))).ids


def answer_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens between the end token of a message and the policy's next one: the messages of tools.

    Raises:
        InvalidError: The chat template cannot continue a conversation by messages of tools.
    """
    if not tokenizer.chat_template:
        text = "".join(f"\n{message.text}\n" for message in messages)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    begun = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    answers = [message.model_dump(exclude_none=True) for message in messages]
    before = tokenizer.apply_chat_template(begun, tokenize=False)
    after = tokenizer.apply_chat_template([*begun, *answers], add_generation_prompt=True, tokenize=False)
    if not after.startswith(before):
        raise InvalidError(
            "the policy's chat template changes earlier messages when a tool answers",
            hint="use a model whose template only appends, or change the template",
        )
    after_end = before.rpartition(tokenizer.eos_token)[2] if tokenizer.eos_token in before else ""
    ids: list[int] = tokenizer(after_end + after[len(before) :], add_special_tokens=False)["input_ids"]
    return ids
