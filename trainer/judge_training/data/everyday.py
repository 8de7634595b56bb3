"""Everyday questions, each with an answer of two sentences and a criterion for each of the sentences.

So it is known which criteria a completion of some of the sentences meets. ``everyday.txt`` has the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from trainer.judge_training.data.damaged import FILLER
from trainer.judge_training.data.edits import sentences
from trainer.judge_training.data.overlap import Neighbours
from trainer.judge_training.examples import Example, Target

SOURCE = "everyday"

_VARIANTS = ("both", "both", "first", "second", "first", "second", "near", "empty_phrases")
"""Each criterion is met by half of them."""


class Entry(NamedTuple):
    """A question, the two sentences of its answer, and the criterion that each of them meets."""

    question: str
    answer: str
    criteria: tuple[str, str]


@cache
def entries() -> tuple[Entry, ...]:
    """Return the entries of ``everyday.txt``, which are three lines each, under headings."""
    text = files(__package__).joinpath("everyday.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    threes = zip(lines[::3], lines[1::3], lines[2::3], strict=True)
    return tuple(
        Entry(question, answer, (criteria.partition(" | ")[0], criteria.partition(" | ")[2]))
        for question, answer, criteria in threes
    )


def everyday_answers() -> list[Example]:
    """Return the questions with their answers, without targets."""
    return [
        Example(Prompt.of(entry.question), Completion(text=entry.answer), (), source=SOURCE, origin="constructed")
        for entry in entries()
    ]


def everyday_criteria(seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples: a question, and a completion with both, one or none of the sentences of its answer.

    Completions with none are the answer to a question that shares words with it, or empty phrases.
    """
    rng = Random(f"everyday {seed}")
    neighbours = Neighbours(everyday_answers())
    order: list[tuple[int, str]] = []
    for _ in range(count):
        if not order:
            order = [(at, variant) for at in range(len(entries())) for variant in rng.sample(_VARIANTS, 4)]
            rng.shuffle(order)
        at, variant = order.pop()
        entry = entries()[at]
        parts = sentences(entry.answer)
        match variant:
            case "both":
                kept = parts if rng.random() < 0.8 else parts[::-1]
            case "first" | "second":
                kept = [parts[variant == "second"]]
            case "near":
                kept = sentences(entries()[neighbours.near(at, rng)].answer)
            case _:
                kept = rng.sample(FILLER, rng.randint(2, 3))
        if len(kept) == 1 and rng.random() < 0.6:  # as long as the others
            kept.insert(rng.randint(0, 1), rng.choice(FILLER))
        targets = [
            Target(Criterion(key=f"c{n + 1}", text=text), float(parts[n] in kept), variant=variant)
            for n, text in enumerate(entry.criteria)
        ]
        rng.shuffle(targets)
        text = "\n".join(f"- {part}" for part in kept) if rng.random() < 0.1 else " ".join(kept)
        yield Example(Prompt.of(entry.question), Completion(text=text), tuple(targets), SOURCE, origin="constructed")
