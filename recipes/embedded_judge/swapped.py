"""Answers swapped between questions: whether an answer is on topic is known by construction."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from recipes.embedded_judge.damaged import Wordings
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError, cut
from trainer.judge_training.data import Example, Target

SOURCE = "swapped"

_MIN_WORDS = 5
"""Shorter completions ("Yes", "I have no comment") may fit many questions; they are left out."""

ON_TOPIC = Wordings(
    "on_topic",
    met=(
        "Answers the question that was asked",
        "Is on topic",
        "Responds to the prompt",
        "Addresses the task",
        "Addresses the question",
        "Is about what was asked",
        "Is relevant to the question",
        "Answers this question and not another one",
        "Deals with the subject of the prompt",
        "The answer fits the question",
        "Gives the information that was asked for",
        "Stays with the subject of the question",
        "Is a response to this request",
        "Speaks to what the user wants to know",
        "The question and the answer belong together",
    ),
    unmet=(
        "Is off topic",
        "Answers another question",
        "Does not answer the question that was asked",
        "Has nothing to do with the prompt",
        "Is about something else than what was asked",
        "Misses the subject of the question",
        "Is irrelevant to the question",
        "Responds to a different request",
        "The answer does not fit the question",
        "Ignores what the user wants to know",
    ),
)


def swapped(examples: Sequence[Example], seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples: a prompt with its own completion or with that of another prompt, half each.

    Half of the foreign completions are near: of the prompts that share the most words with the prompt or its own
    completion, one whose own completion is different. So each completion is met and unmet alike, and overlap of words
    decides less.

    Args:
        examples: Prompts with completions that answer them; their targets are ignored.
        seed: Seed of all choices.
        count: Number of examples.
        negated: Share of the criteria that a completion of another prompt meets.

    Raises:
        InvalidError: There are fewer than two different prompts.
    """
    rng = Random(f"swapped {seed}")
    long = (example for example in examples if len(example.completion.text.split()) >= _MIN_WORDS)
    pool = sorted(long, key=lambda example: example.content)
    neighbours = Neighbours(pool)
    if len(neighbours.groups) < 2:
        raise InvalidError(f"answers of {len(neighbours.groups)} prompts cannot be swapped", hint="pass two or more")
    order: list[int] = []
    for number in range(count):
        if not order:
            order = rng.sample(range(len(pool)), len(pool))
        # two examples in a row share their completion: once with its own prompt, once with another one
        at = order[-1] if number % 2 == 0 else order.pop()
        if number % 2 == 0:
            prompt, variant = pool[at], "own"
        elif rng.random() < 0.5:
            prompt, variant = pool[neighbours.near(at, rng)], "near"
        else:
            prompt, variant = pool[neighbours.far(at, rng)], "far"
        yield _example(prompt, pool[at], variant, negated, rng)


def _example(asked: Example, answered: Example, variant: str, share: float, rng: Random) -> Example:
    targets = []
    same = Random(answered.content)  # for both prompts of a completion, so that it meets half of its criteria
    for n, negated in enumerate((same.random() < share, same.random() < share), 1):
        value = float((variant == "own") != negated)
        text = ON_TOPIC.sample(rng, negated=negated)
        targets.append(Target(Criterion(key=f"c{n}", text=text), value, family=ON_TOPIC.family, variant=variant))
    completion = Completion(text=answered.completion.text)
    return Example(asked.prompt, completion, tuple(targets), SOURCE, group=asked.split_group)


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
