"""The steps of an agent's trajectory, the results of its calls, and the detection of loops in it, without a model.

A step is one message of the assistant with the messages before the next one: results of tools, messages of a user.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from rubricsvc.core.prompt import Completion, Message, ToolCall

MAX_PERIOD = 4
MIN_ROUNDS = 3
REPETITION_THRESHOLD = 0.5
"""The share of repeated words from which on they are reported."""

Step = tuple[Message, ...]


def steps_of(completion: Completion) -> list[Step]:
    """Return the steps in order; a completion without messages is one step.

    The messages before the first one of the assistant belong to the first step.
    """
    if not completion.messages:
        return [(Message(role="assistant", content=completion.text),)]
    starts = [n for n, message in enumerate(completion.messages) if message.role == "assistant"]
    edges = [0, *starts[1:], len(completion.messages)]
    return [completion.messages[start:end] for start, end in pairwise(edges)]


def tool_results(messages: Sequence[Message]) -> Iterator[tuple[ToolCall | None, Message]]:
    """Yield the results of tools with their calls, by the id of the call, else in the order of the calls."""
    pending: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            pending = list(message.tool_calls or ())
        elif message.role == "tool":
            named = (call for call in pending if call.id == message.tool_call_id)
            call = next(named if message.tool_call_id else iter(pending), None)
            if call:
                pending.remove(call)
            yield call, message


class Turn(NamedTuple):
    """What a policy wrote in one message, and its calls with their results.

    A call without a result ended the episode, or its tool did not answer. A result without a call is the answer to a
    malformed one.
    """

    text: str
    calls: tuple[tuple[ToolCall | None, Message | None], ...] = ()


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Return the messages of the assistant in order, each with its calls and their results."""
    turns = []
    for step in steps_of(Completion(messages=tuple(messages))) if messages else ():
        results = list(tool_results(step))
        answered = {id(call): result for call, result in results if call is not None}
        for message in (one for one in step if one.role == "assistant"):
            calls = ((call, answered.get(id(call))) for call in message.tool_calls or ())
            malformed = ((None, result) for call, result in results if call is None)
            turns.append(Turn(message.content, (*calls, *malformed)))
    return turns


def json_of(text: str) -> object:
    """Return a text that is JSON as data, None otherwise."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_error(result: object) -> bool:
    """Return whether the result of a tool, as data, is a JSON object with an ``error``."""
    return isinstance(result, dict) and bool(result.get("error"))


class Cycle(NamedTuple):
    """The same ``period`` steps, ``rounds`` times in a row, from step ``first`` (counted from 1)."""

    first: int
    period: int
    rounds: int


class Repetitions(NamedTuple):
    """What repeats in a trajectory.

    Attributes:
        calls: All tool calls, in order, with their arguments.
        cycles: Sequences of up to `MAX_PERIOD` steps that occur `MIN_ROUNDS` times or more in a row.
        share: Share of the steps that belong to a cycle, its first round not counted.
        text: All repetitions of steps, calls and words, for people; empty if there are none.
    """

    calls: list[str]
    cycles: list[Cycle]
    share: float
    text: str


def repetitions(steps: Sequence[Step]) -> Repetitions:
    """Return what repeats in these steps.

    Steps are equal if their words, calls and results are: polling until another result comes is no cycle. Of
    overlapping cycles the one with the shortest period counts.
    """
    states = [tuple((m.role, m.text) for m in step) for step in steps]
    cycles: list[Cycle] = []
    at = 0
    while at < len(states):
        for period in range(1, MAX_PERIOD + 1):
            rounds, rest = 1, states[at:]
            while rest[rounds * period : (rounds + 1) * period] == rest[:period]:
                rounds += 1
            if rounds >= MIN_ROUNDS:
                cycles.append(Cycle(at + 1, period, rounds))
                at += period * rounds
                break
        else:
            at += 1
    texts = []
    for first, period, rounds in cycles:
        what = "the same step" if period == 1 else f"the same {period} steps"
        texts.append(f"{what} {rounds} times in a row from step {first}")
    calls = [call.text for step in steps for message in step for call in message.tool_calls or ()]
    texts += [f"{call} called {count} times" for call, count in Counter(calls).items() if count > 1]
    spoken = "\n".join(m.content for step in steps for m in step if m.role == "assistant")
    repeated = 1 - distinct_share(re.findall(r"\w+", spoken.lower()), 4)
    if repeated >= REPETITION_THRESHOLD:
        texts.append(f"{repeated:.0%} of its words repeat")
    share = sum(cycle.period * (cycle.rounds - 1) for cycle in cycles) / len(steps)
    return Repetitions(calls, cycles, share, "; ".join(texts))


def distinct_share(words: Sequence[str], n: int) -> float:
    """Return distinct n-grams over all n-grams (distinct-n, arXiv 1510.03055); 1 below ``n`` words.

    The rest of 1 is seq-rep-n of "Neural Text Generation with Unlikelihood Training" (arXiv 1908.04319).
    """
    count = len(words) - n + 1
    different = {hash(gram) for gram in zip(*(islice(words, start, None) for start in range(n)), strict=False)}
    return len(different) / count if count > 0 else 1.0  # by their hashes: the n-grams would need 190 times the text
