"""The prompts: questions with one document each, of whose rubrics the document answers a half."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from rubricsvc.core.prompt import Document, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.record import Record

_FILE = Path(__file__).with_name("facts.yaml")
_INSTRUCTION = "Answer in one sentence."


@dataclass(frozen=True)
class Fact:
    """A question, the document that it is asked about, a full and a partial answer, and what an answer should say."""

    name: str
    question: str
    document: str
    full: str
    partial: str
    says: tuple[str, ...]
    held_out: bool = False

    @property
    def record(self) -> Record:
        """The prompt with its rubric: one judged criterion with the texts to be said in quotation marks."""
        prompt = Prompt.of(f"{self.question} {_INSTRUCTION}", documents=(Document(id="1", text=self.document),))
        wanted = ", ".join(f"“{text}”" for text in self.says)
        rubric = Rubric(criteria=(Criterion(key="says", text=f"Says {wanted}."),))
        return Record(name=self.name, prompt=prompt, rubric=rubric)


def load_facts() -> list[Fact]:
    """Load ``facts.yaml``."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return [Fact(**{**row, "says": tuple(row["says"])}) for row in rows]
