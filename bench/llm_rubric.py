"""LLM-Rubric's real dialogues (arXiv 2501.00274): a model's answers to nine questions, a person's overall score."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

QUESTIONS = tuple(f"Q{n}" for n in range(9))
OVERALL = "Q0"
LEVELS = 4


@dataclass(frozen=True)
class Dialogues:
    """N dialogues, one person each. ``distributions`` [N, 9 · 4], ``expected`` [N, 9] and ``scores`` [N] in [0, 1];
    ``raw`` [N] is what the model expects the overall score to be."""

    distributions: list[list[float]]
    expected: list[list[float]]
    scores: list[float]
    people: list[str]

    @property
    def raw(self) -> list[float]:
        return [row[QUESTIONS.index(OVERALL)] for row in self.expected]

    @property
    def columns(self) -> list[str]:
        return [f"{question}={level}" for question in QUESTIONS for level in range(1, LEVELS + 1)]


def read(data: Path) -> Dialogues:
    """From the folder of public data sets."""
    folder = data / "llm_rubric" / "real_data"
    told: dict[str, dict[str, list[float]]] = {}
    for row in _rows(folder / "gpt-3.5-turbo-16k_real_evaluations_FIXED.tsv"):
        chances = [float(row[f"answer{level}_prob"]) for level in range(1, LEVELS + 1)]
        told.setdefault(row["text_id"], {})[row["criterion"]] = [chance / sum(chances) for chance in chances]
    people = _rows(folder / "human_judges_real_convs_FIXED_ANON.tsv")
    answers = [[told[row["text_id"]][question] for question in QUESTIONS] for row in people]
    worth = [level / (LEVELS - 1) for level in range(LEVELS)]
    return Dialogues(
        distributions=[[chance for answer in row for chance in answer] for row in answers],
        expected=[[sum(c * w for c, w in zip(answer, worth, strict=True)) for answer in row] for row in answers],
        scores=[(float(row[OVERALL]) - 1) / (LEVELS - 1) for row in people],
        people=[row["annotator_id"] for row in people],
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))
