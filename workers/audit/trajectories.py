"""Built-in trajectories to audit a trajectory judge with, and attacks on the last step of one."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from rubricsvc.core.prompt import Message, Prompt, ToolCall
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.trajectory import steps_of
from rubricsvc.formats.input_file import InputFile
from workers.audit.cases import AuditCase

_FILE = Path(__file__).with_name("trajectories.yaml")

PROGRESS = Criterion(
    key="progress",
    text="The agent makes progress towards the goal: after this step it is nearer to what the task asks for, or knows"
    " something about the way there that it did not know before.",
)
"""The criterion of `rubricsvc rubrics init --trajectory`."""


@lru_cache
def built_in() -> tuple[AuditCase, ...]:
    """Return the built-in cases: for each task a trajectory with a bad last step, and one with a good last step."""
    cases: list[AuditCase] = []
    for entry in InputFile(_FILE).entries():
        task: dict[str, Any] = entry.data
        prompt, rubric, claim = Prompt.of(task["task"]), Rubric(criteria=(PROGRESS,)), task["claim"]
        for last, met, unmet in (("bad", (), (PROGRESS.key,)), ("good", (PROGRESS.key,), ())):
            messages = tuple(chain.from_iterable(map(_step, [*task["steps"], task[last]])))
            text = task[last]["says"]
            cases.append(AuditCase(prompt, rubric, text, met, unmet, messages=messages, claim=claim))
    return tuple(cases)


def _step(data: dict[str, Any]) -> list[Message]:
    call = ToolCall(name=data["tool"], arguments=json.dumps(data["arguments"]))
    return [
        Message(role="assistant", content=data["says"], tool_calls=(call,)),
        Message(role="tool", name=call.name, content=data["result"]),
    ]


def saying(case: AuditCase, text: str, *, with_calls: bool) -> AuditCase:
    """Return the case whose last step says ``text``, with the calls of the step and their results or without."""
    *before, (first, *others) = steps_of(case.completion)
    step = [first.model_copy(update={"content": text}), *others]
    last = step if with_calls else [Message(role="assistant", content=text)]
    return replace(case, text=text, messages=(*chain.from_iterable(before), *last))


def repeated(case: AuditCase, steps: int, times: int, text: str) -> AuditCase:
    """Return the case whose last step is replaced by the ``steps`` before it, again; then the agent says ``text``."""
    before = steps_of(case.completion)[:-1]
    (first, *others), *rest = before[-steps:]
    again = [first.model_copy(update={"content": text or first.content}), *others, *chain.from_iterable(rest)]
    return replace(case, text=again[0].text, messages=(*chain.from_iterable(before), *again * times))
