"""An agent's trace: its steps, and the marks of one that goes round in circles. No model is needed for that.

A step is one message of the assistant with whatever comes before the next one: tools' results, a user's words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rubricsvc.core.prompt import Completion, Message

LONGEST_PERIOD = 4
LEAST_ROUNDS = 3
DRONING = 0.5
"""From which share of repeated words on they are told."""

Step = tuple[Message, ...]


def steps_of(completion: Completion) -> list[Step]:
    """The steps of a trace, in order; a completion without messages is one step. What opens a trace is in its first."""
    if not completion.messages:
        return [(Message(role="assistant", content=completion.text),)]
    starts = [n for n, message in enumerate(completion.messages) if message.role == "assistant"]
    edges = [0, *starts[1:], len(completion.messages)]
    return [completion.messages[start:end] for start, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Cycle:
    """The same ``period`` steps, calls and results, ``rounds`` times running from step ``first`` (counted from 1)."""

    first: int
    period: int
    rounds: int

    @property
    def steps(self) -> range:
        return range(self.first, self.first + self.period * self.rounds)

    @property
    def text(self) -> str:
        what = "the same step" if self.period == 1 else f"the same {self.period} steps"
        return f"{what} {self.rounds} times running from step {self.first}"


@dataclass(frozen=True)
class Circling:
    """What repeats in a trace."""

    steps: tuple[Step, ...]

    @cached_property
    def calls(self) -> list[str]:
        """All tool calls, in order, with their arguments."""
        return [call.text for step in self.steps for message in step for call in message.tool_calls or ()]

    @cached_property
    def repeated_calls(self) -> dict[str, int]:
        """Calls with the same name and the same arguments that were made more than once, and how often."""
        return {call: count for call, count in Counter(self.calls).items() if count > 1}

    @cached_property
    def cycles(self) -> list[Cycle]:
        """Steps that come back at once, `LEAST_ROUNDS` times or more: one step, or up to `LONGEST_PERIOD` in turn.

        Steps are the same where their words, calls and results are: to ask again until another result comes is no
        cycle. Of several that overlap the shortest period stands.
        """
        states = [tuple((m.role, m.text) for m in step) for step in self.steps]
        found: list[Cycle] = []
        at = 0
        while at < len(states):
            here = (Cycle(at + 1, period, _rounds(states[at:], period)) for period in range(1, LONGEST_PERIOD + 1))
            cycle = next((cycle for cycle in here if cycle.rounds >= LEAST_ROUNDS), None)
            found += [cycle] if cycle else []
            at += len(cycle.steps) if cycle else 1
        return found

    @property
    def share(self) -> float:
        """The share of steps that only go round: those of every cycle beyond its first round."""
        lost = sum(len(cycle.steps) - cycle.period for cycle in self.cycles)
        return lost / len(self.steps)

    @property
    def text(self) -> str:
        """What repeats, in words; empty where nothing does."""
        calls = [f"{call} called {count} times" for call, count in self.repeated_calls.items()]
        words = f"{self.repeated_words:.0%} of its words repeat" if self.repeated_words >= DRONING else ""
        return "; ".join(filter(None, (*(cycle.text for cycle in self.cycles), *calls, words)))

    @cached_property
    def repeated_words(self) -> float:
        """`repetition` of all that the assistant wrote."""
        return repetition("\n".join(m.content for step in self.steps for m in step if m.role == "assistant"))


def circling(steps: Sequence[Step]) -> Circling:
    return Circling(tuple(steps))


def _rounds(states: Sequence[object], period: int) -> int:
    """How often the first ``period`` states stand there in a row."""
    rounds = 1
    while states[rounds * period : (rounds + 1) * period] == states[:period]:
        rounds += 1
    return rounds


def repetition(text: str, n: int = 4) -> float:
    """The share of a text's n-grams of words that stood there before, 0 to 1; 0 where it has fewer than ``n`` words.

    seq-rep-n of "Neural Text Generation with Unlikelihood Training" (arXiv 1908.04319). Capitals do not matter.
    """
    words = re.findall(r"\w+", text.lower())
    grams = [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
