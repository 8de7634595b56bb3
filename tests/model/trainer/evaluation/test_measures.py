"""What completions do beside their scores, over prompts."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from trainer.data.tasks import Task
from trainer.evaluation.evaluator import Judged, behaviour, criteria

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Is good."),))
TASKS = [
    Task(Prompt.of("What is a vacuum?", item={"pages": [["vacuum"], ["index", "index.2"]]}), RUBRIC),
    Task(Prompt.of("And then?"), RUBRIC),
]


def episode(report: str, *opened: str) -> Completion:
    messages = []
    for at, id_ in enumerate(opened):
        call = ToolCall(id=str(at), name="open", arguments=f'{{"id": "{id_}"}}')
        messages += [
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content=f"The page {id_}.", name="open", tool_call_id=str(at)),
        ]
    return Completion(text=report, messages=(*messages, Message(role="assistant", content=report)))


def test_behaviour_measures_calls_and_citations_by_prompt() -> None:
    found = behaviour(
        TASKS,
        [
            Judged(0, episode("So it is [vacuum].", "vacuum"), ()),
            Judged(0, episode("So it is [index.2] [else].", "index.2", "else"), ()),
            Judged(1, episode("I know."), ()),
        ],
    )
    assert {name: one.value for name, one in found.items()} == {
        "tool_use": 0.5,
        "valid_calls": 0.5,
        "citation_recall": pytest.approx(0.5),
        "citation_precision": pytest.approx(0.75),
    }


def test_criteria_leave_out_failed_verdicts_and_other_rubrics() -> None:
    verdicts = [Verdict.scored("a", 0.25), Verdict.failed("b", reason="timeout")]
    judged = [Judged(0, episode(""), verdicts), Judged(0, episode(""), [Verdict.scored("a", 0.75)])]
    found = criteria(TASKS, [*judged, Judged(1, episode(""), [Verdict.scored("c", 1.0)])])
    assert {key: one.value for key, one in found.items()} == {"a": 0.5, "c": 1.0}
