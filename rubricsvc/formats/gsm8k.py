"""GSM8K's example solutions (arXiv 2110.14168): models' solutions, and whether they are correct.

Each solution becomes a record, labelled by ``is_correct``. The ground truth is the prompt's reference, and the model
that wrote the solution its policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.fields import ForeignModel, Text, build
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Record

RUBRIC = Rubric(criteria=(Criterion(key="correct", text="The final number of the solution is the right one."),))


class _Problem(ForeignModel):
    model_config = ConfigDict(extra="allow")

    question: Text
    ground_truth: Text


class _Solution(ForeignModel):
    solution: str
    is_correct: bool


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each valid solution; errors are added to ``file.errors``."""
    for number, (data, location) in enumerate(file.records(), start=1):
        problem = build(_Problem, data, location, file.errors)
        if problem is None:
            continue
        prompt, name = Prompt.of(problem.question, reference=problem.ground_truth), f"gsm8k-{number}"
        others: dict[str, Any] = problem.model_extra or {}
        for policy, row in others.items():
            solution = build(_Solution, row, location, file.errors, (policy,))
            if solution is not None:
                completion = Completion(text=solution.solution, policy=policy)
                label = Label(criterion="correct", annotator="dataset", value=float(solution.is_correct))
                yield Record(prompt, RUBRIC, (completion,), (label,), name, rubric_name(name), location)
