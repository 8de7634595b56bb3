"""Completions to make criteria about: sentences of CPython's documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from rubricsvc.collections.python_reference import python_reference
from rubricsvc.core.prompt import Completion, Prompt
from trainer.judge_training.data.edits import sentences
from trainer.judge_training.data.passages import passages
from trainer.judge_training.examples import Example

_REQUESTS = (
    "What does Python's documentation say about {title}?", "Tell me about {title} in Python.", "Explain {title}.",
    "Write some lines on {title} in Python's language reference.", "What is to be known about {title}?",
)  # fmt: skip


def document_answers(seed: int, count: int) -> Iterator[Example]:
    """Yield completions of one to four sentences from a passage of CPython's language reference, without targets.

    Raises:
        UnavailableError: This Python was installed without its language reference.
    """
    rng = Random(f"documents {seed}")
    prose = []
    for document in python_reference():
        for passage in passages(document):
            whole = [sentence for sentence in sentences(passage.text) if _is_prose(sentence)]
            if whole:
                prose.append((document.id, document.title.strip("* "), whole))
    for _ in range(count):
        ident, title, whole = rng.choice(prose)
        number = min(rng.randint(1, 4), len(whole))
        first = rng.randint(0, len(whole) - number)
        text = " ".join(whole[first : first + number])
        prompt = Prompt.of(rng.choice(_REQUESTS).format(title=title))
        yield Example(prompt, Completion(text=text), (), source="documents", group=ident)


def _is_prose(sentence: str) -> bool:
    """Return whether it is one sentence of 5 to 45 words: a capital, a full stop, no code, no number of a list item."""
    number = len(sentence.split())
    return 5 <= number <= 45 and re.fullmatch(r"[A-Z](?:(?!- )[^\n:=>|])*[^\d\n][.]", sentence) is not None
