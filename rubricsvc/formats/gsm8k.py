"""GSM8K's example solutions (arXiv 2110.14168): models' solutions, and whether they are correct.

Each solution becomes a record, labelled by ``is_correct``. The ground truth is the prompt's reference, and the model
that wrote the solution its policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ConfigDict

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.record import Entry, ForeignModel, Record, Text

RUBRIC = Rubric(criteria=(Criterion(key="correct", text="The final number of the solution is the right one."),))


class _Solution(ForeignModel):
    solution: str
    is_correct: bool


class _Problem(ForeignModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Solution]

    question: Text
    ground_truth: Text


def read(entry: Entry) -> Iterator[Record]:
    """Yield a record for each solution of a problem."""
    problem, name = entry.build(_Problem, entry.data), f"gsm8k-{entry.number}"
    prompt = Prompt.of(problem.question, reference=problem.ground_truth)
    for policy, solution in problem.__pydantic_extra__.items():
        completion = Completion(text=solution.solution, policy=policy)
        label = Label(criterion="correct", annotator="dataset", value=float(solution.is_correct))
        yield Record(prompt, RUBRIC, (completion,), (label,), name, name, entry.location)
