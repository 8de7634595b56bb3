"""What repeats in a text or in an agent's trajectory, without a model."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from rubricsvc.core.prompt import Step

MAX_PERIOD = 4
MIN_ROUNDS = 3
REPETITION_THRESHOLD = 0.5  # the share of repeated words from which on they are reported


class Cycle(NamedTuple):
    """The same ``period`` steps, ``rounds`` times in a row, from step ``first`` (counted from 1)."""

    first: int
    period: int
    rounds: int


class Repetitions(NamedTuple):
    """What repeats in a trajectory.

    Attributes:
        cycles: Sequences of up to `MAX_PERIOD` steps that occur `MIN_ROUNDS` times or more in a row.
        share: Share of the steps that belong to a cycle, its first round not counted.
        text: All repetitions of steps, calls and words, for people; empty if there are none.
    """

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
    calls = (call.text for step in steps for message in step for call in message.tool_calls or ())
    texts += [f"{call} called {count} times" for call, count in Counter(calls).items() if count > 1]
    spoken = "\n".join(m.content for step in steps for m in step if m.role == "assistant")
    repeated = 1 - distinct_share(re.findall(r"\w+", spoken.lower()), 4)
    if repeated >= REPETITION_THRESHOLD:
        texts.append(f"{repeated:.0%} of its words repeat")
    share = sum(cycle.period * (cycle.rounds - 1) for cycle in cycles) / len(steps)
    return Repetitions(cycles, share, "; ".join(texts))


UNSPACED = (
    "\u0e01-\u0ede\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\uff66-\uff9f\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Characters of Thai, Lao, Burmese, Khmer, kana and Han, which are written without blanks between words."""
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")  # a word without punctuation; in those scripts a character
_PART = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def words_of(text: str) -> list[str]:
    """Return what blanks separate; where a text has a script without blanks, each of its letters counts as a word."""
    parts = _PART.findall(text)
    return [part for part in parts if any(map(str.isalnum, part))] if re.search(f"[{UNSPACED}]", text) else parts


def is_long(word: str) -> bool:
    """Tell whether a word is long enough to say something, as one character of Chinese does."""
    return len(word) > 3 or re.fullmatch(f"[{UNSPACED}]+", word) is not None


def distinct_share(words: Sequence[str], n: int) -> float:
    """Return distinct n-grams over all n-grams (distinct-n, arXiv 1510.03055); 1 below ``n`` words.

    The rest of 1 is seq-rep-n of "Neural Text Generation with Unlikelihood Training" (arXiv 1908.04319).
    """
    count = len(words) - n + 1
    different = {hash(gram) for gram in zip(*(islice(words, start, None) for start in range(n)), strict=False)}
    return len(different) / count if count > 0 else 1.0  # by their hashes: the n-grams would need 190 times the text
