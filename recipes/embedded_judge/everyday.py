"""Everyday questions, each with an answer of two sentences, a criterion for each of them, and a contrary of one.

So it is known which criteria a completion of some of these sentences meets. A contrary has many words of the sentence
in its place and does not meet its criterion. Some prompts state the answer and ask to pass it on: a fact that stands
in the prompt is not said by a completion without it. ``everyday.txt`` has the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from recipes.embedded_judge.damaged import FILLER
from recipes.embedded_judge.edits import sentences
from recipes.embedded_judge.swapped import Neighbours
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from trainer.judge_training.data import Example, Target

SOURCE = "everyday"

_VARIANTS = ("both", "both", "both", "first", "second", "contrary", "contrary_alone", "near", "empty_phrases")
"""Criteria are met by half of them."""


_SENTENCE = (
    'Says: "{}"',
    'Makes this statement: "{}"',
    'Says this in these or in other words: "{}"',
    'Agrees with this: "{}"',
    'Gives this advice or information: "{}"',
)
"""Criteria on a sentence or its contrary, of which one is in the completion."""


_WITH_REFERENCE = 0.3
"""How often the whole answer is shown as the reference of the prompt."""

_STATED = 0.4
"""How often the prompt itself states one or both sentences of the answer."""

_TASKS = (
    "{question}\n\nSay this in your reply: {facts}",
    'Somebody asked me: "{question}" Write a reply. My notes: {facts}',
    "Write a short message to a friend who asks: {question} It should say the following. {facts}",
    'Write an e-mail to our customers in answer to "{question}". Points to make: {facts}',
    "I know this: {facts}\n\nWith that in mind: {question}",
    "Put this into your own words for a leaflet: {facts}",
    "Summarise the following for somebody who wonders: {question}\n\n{facts}",
    "{facts}\n\nRewrite the text above in simple words.",
)
"""Prompts that state what is to be said."""

_AGREES = (
    "Agrees with the reference answer",
    "Is right, by the reference answer",
    "Contradicts nothing in the reference answer",
    "Gives the same information as the reference",
    "Is consistent with the reference answer",
)
"""Criteria on a completion with both sentences of the reference, or with the contrary of one."""


class Entry(NamedTuple):
    """A question, the two sentences of its answer, and the criterion that each of them meets.

    ``contrary`` is a sentence in the place of the one with the index ``contradicted``.
    """

    question: str
    answer: str
    criteria: tuple[str, ...]
    contrary: str
    contradicted: int


@cache
def entries() -> tuple[Entry, ...]:
    """Return the entries of ``everyday.txt``, four lines each, under headings.

    The lines are the question, the answer, the two criteria, and the contrary of sentence 1 or 2 after that number.
    """
    text = files(__package__).joinpath("everyday.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return tuple(
        Entry(question, answer, tuple(criteria.split(" | ")), contrary[2:], int(contrary[0]) - 1)
        for question, answer, criteria, contrary in zip(*(lines[n::4] for n in range(4)), strict=True)
    )


def everyday_answers() -> list[Example]:
    """Return the questions with their answers, without targets."""
    return [Example(Prompt.of(entry.question), Completion(text=entry.answer), (), source=SOURCE) for entry in entries()]


def everyday_criteria(seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples: a question, and a completion with both, one or none of the sentences of its answer.

    Where the completion has the sentence that has a contrary, or that contrary, one of the two is asked about in full.
    Completions with none are the contrary of one, the answer to a question that shares words with it, or empty phrases.
    """
    rng = Random(f"everyday {seed}")
    answers = everyday_answers()
    neighbours = Neighbours(answers)
    order: list[tuple[int, str]] = []
    for _ in range(count):
        if not order:
            order = [(at, variant) for at in range(len(entries())) for variant in rng.sample(_VARIANTS, 5)]
            rng.shuffle(order)
        at, variant = order.pop()
        entry = entries()[at]
        parts = sentences(entry.answer)
        match variant:
            case "both":
                kept = parts if rng.random() < 0.8 else parts[::-1]
            case "first" | "second":
                kept = [parts[variant == "second"]]
            case "contrary" | "contrary_alone":
                kept = [entry.contrary if n == entry.contradicted else part for n, part in enumerate(parts)]
                kept = kept if variant == "contrary" else [entry.contrary]
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
        present = [part for part in (parts[entry.contradicted], entry.contrary) if part in kept]
        if present:
            asked = rng.choice((parts[entry.contradicted], entry.contrary))
            criterion = Criterion(key="c3", text=rng.choice(_SENTENCE).format(asked))
            targets.append(Target(criterion, float(asked in present), family="everyday_sentence", variant=variant))
        reference = entry.answer if rng.random() < _WITH_REFERENCE else None
        if reference and variant in ("both", "contrary", "contrary_alone"):
            criterion = Criterion(key="c4", text=rng.choice(_AGREES))
            targets.append(Target(criterion, float(variant == "both"), family="agrees", variant=variant))
        rng.shuffle(targets)
        text = "\n".join(f"- {part}" for part in kept) if rng.random() < 0.1 else " ".join(kept)
        # a reference does not decide the other criteria, which are on what the completion says
        asked_of = entry.question
        if rng.random() < _STATED:
            facts = entry.answer if rng.random() < 0.7 else rng.choice(parts)
            asked_of = rng.choice(_TASKS).format(question=entry.question, facts=facts)
        prompt, group = Prompt.of(asked_of, reference=reference), answers[at].split_group
        yield Example(prompt, Completion(text=text), tuple(targets), SOURCE, group=group)
