"""GSM8K's example solutions (arXiv 2110.14168): what models answered to its problems, and whether that is correct.

Each solution becomes a record, labelled by ``is_correct``. The ground truth is the prompt's reference, and the model
that wrote the solution its policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults
from rubricsvc.formats.fields import Foreign, build
from rubricsvc.formats.native import usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

RUBRIC = Rubric(criteria=(Criterion(key="correct", text="The final number of the solution is the right one."),))
Text = Annotated[str, Field(min_length=1)]


class _Problem(Foreign):
    model_config = ConfigDict(extra="allow")

    question: Text
    ground_truth: Text


class _Solution(Foreign):
    solution: str
    is_correct: bool


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """One record a solution; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    for number, (data, place) in enumerate(documents(source, faults), start=1):
        problem = build(_Problem, data, place, faults)
        if problem is None:
            continue
        prompt, name = Prompt.of(problem.question, reference=problem.ground_truth), f"gsm8k-{number}"
        others: dict[str, Any] = problem.model_extra or {}
        for policy, said in others.items():
            solution = build(_Solution, said, place, faults, (policy,))
            if solution is not None:
                answer = (Completion(text=solution.solution, policy=policy),)
                label = Verdict.scored("correct", float(solution.is_correct))
                yield Record(prompt, RUBRIC, answer, (label,), name, usable_name(name), place)
