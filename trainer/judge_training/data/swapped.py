"""Answers swapped between questions: whether an answer is on topic is known by construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data.neighbours import Neighbours
from trainer.judge_training.data.wordings import Wordings
from trainer.judge_training.examples import Example, Target

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
