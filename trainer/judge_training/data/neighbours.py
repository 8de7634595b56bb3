"""Which texts share words: for swaps and distractors that overlap alone does not give away."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from random import Random

from rubricsvc.errors import InvalidError, cut
from trainer.judge_training.examples import Example

_WORD = re.compile(r"\w{3,}")
_NEAREST = 3
_DRAWS = 100
_SAME = 0.7
"""Prompts or completions that share as much may mean the same."""


def _shared_words(one: str, other: str) -> float:
    """Return the share of the first text's distinct words of three letters or more that the other has."""
    words = set(_WORD.findall(one.casefold()))
    return len(words & set(_WORD.findall(other.casefold()))) / len(words) if words else 0.0


class Neighbours:
    """For each completion the prompts of other groups, near ones and far ones, by words weighted by their rarity."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.groups = list(dict.fromkeys(example.split_group for example in examples))
        self._examples = examples
        self._words = [sorted(set(_WORD.findall(example.prompt.text.casefold()))) for example in examples]
        self._postings: dict[str, list[int]] = defaultdict(list)
        for at, words in enumerate(self._words):
            for word in words:
                self._postings[word].append(at)
        self._nearest: dict[int, list[int]] = {}

    def far(self, at: int, rng: Random) -> int:
        """Return a random example of another group.

        Raises:
            InvalidError: All others ask or say much the same.
        """
        for _ in range(_DRAWS):
            other = rng.randrange(len(self._examples))
            if self._differs(at, other):
                return other
        others = [other for other in range(len(self._examples)) if self._differs(at, other)]
        if not others:
            prompt = cut(repr(self._examples[at].prompt.text), 60)
            raise InvalidError(f"no prompt and completion differ from {prompt}", hint="pass more varied examples")
        return rng.choice(others)

    def near(self, at: int, rng: Random) -> int:
        """Return one of the examples of other groups whose prompts share the most with this prompt and completion."""
        if at not in self._nearest:
            self._nearest[at] = self._rank(at)
        return rng.choice(self._nearest[at] or [self.far(at, rng)])

    def _rank(self, at: int) -> list[int]:
        example = self._examples[at]
        own = sorted(set(_WORD.findall(f"{example.prompt.text} {example.completion.text}".casefold())))
        scores: dict[int, float] = defaultdict(float)
        for word in own:
            postings = self._postings.get(word, [])
            if 1 <= len(postings) <= len(self._examples) / 4:
                weight = math.log(len(self._examples) / len(postings))
                for other in postings:
                    scores[other] += weight / math.sqrt(len(self._words[other]))
        ranked = sorted((-score, other) for other, score in scores.items() if self._differs(at, other))
        first: dict[str, int] = {}
        for _, other in ranked:
            first.setdefault(self._examples[other].split_group, other)
            if len(first) == _NEAREST:
                break
        return list(first.values())

    def _differs(self, at: int, other: int) -> bool:
        """Return whether the second prompt is another question, which the first completion does not answer."""
        one, two = self._examples[at], self._examples[other]
        return (
            one.split_group != two.split_group
            and _shared_words(two.prompt.text, one.prompt.text) < _SAME
            and _shared_words(one.completion.text, two.completion.text) < _SAME
        )
