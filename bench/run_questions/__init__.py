"""Questions about Python, each with its rubric and the passages that answer it: a task of one turn for `bench_run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.run_questions.passage_index import PassageIndex
from rubricsvc.collections.sources import python_reference
from rubricsvc.core.prompt import Document, Message, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats import load

QUESTIONS = Path(__file__).with_name("questions.yaml")
FORM = Path(__file__).with_name("form.yaml")
HELD_OUT = "held-out"
RULE = "rule"
"""Key of the criterion that has the sentence of the documentation as its reference."""

INSTRUCTION = "Answer in one sentence and cite the document as [1]."
SHOWN_WORDS = 70
"""Maximum words of passages in a prompt: a model of 135M parameters cannot use more."""


@dataclass(frozen=True)
class Question:
    """A question; its prompt has the passages as documents 1, 2, …, which completions cite."""

    name: str
    text: str
    prompt: Prompt
    rubric: Rubric
    held_out: bool


def load_questions() -> list[Question]:
    """Load ``questions.yaml`` with the criteria of ``form.yaml`` and passages of Python's language reference."""
    (form,) = load(FORM, "native")
    assert form.rubric is not None
    questions = []
    with PassageIndex(python_reference()) as documents:
        for record in load(QUESTIONS, "native"):
            assert record.prompt is not None and record.rubric is not None
            text = record.prompt.text
            rule = record.rubric.by_key[RULE].reference
            changes = {
                "messages": (Message(role="user", content=f"{text}\n{INSTRUCTION}"),),
                "documents": _passages(documents, f"{text} {rule}"),
            }
            prompt = record.prompt.model_copy(update=changes)
            rubric = Rubric(criteria=(*record.rubric.criteria, *form.rubric.criteria))
            questions.append(Question(record.name, text, prompt, rubric, HELD_OUT in record.prompt.tags))
    return questions


def _passages(documents: PassageIndex, query: str) -> tuple[Document, ...]:
    """Return the best passage, and the next ones within ``SHOWN_WORDS``."""
    chosen: list[Document] = []
    words_left = SHOWN_WORDS
    for passage in documents.search(query, limit=3):
        words_left -= len(passage.text.split())
        if chosen and words_left < 0:
            break
        chosen.append(Document(id=str(len(chosen) + 1), text=passage.text, title=passage.id))
    return tuple(chosen)
